// Memory snapshots of PyTorch (torch.cuda.memory._dump_snapshot).
#include <fmt/format.h>

#include <map>
#include <set>
#include <tuple>

#include "core/error.h"
#include "core/printable.h"
#include "foreign/import.h"
#include "foreign/unpickle.h"

namespace rooflm::foreign {
namespace {

constexpr std::size_t kMostTraces = 256;

class SnapshotReader {
 public:
  SnapshotReader(std::string_view bytes, const std::string& where, ForeignRun& run)
      : where_(where), run_(run), pickle_(bytes, where), allowance_(bytes.size()) {}

  void read() {
    const auto traces = pickle_.find(pickle_.root(), "device_traces");
    const auto segments = pickle_.find(pickle_.root(), "segments");
    if (!traces && !segments) {
      throw core::InputError(fmt::format(
          "{}: the pickle holds no memory snapshot (a dictionary with \"segments\" and \"device_traces\")",
          where_));
    }
    if (traces) {
      const auto& devices = pickle_.items(*traces);
      for (std::size_t i = 0; i < devices.size(); ++i) {
        if (i >= kMostTraces) {
          run_.count("devices beyond the 256th were left out", devices.size() - i);
          break;
        }
        for (const PickleRef entry : pickle_.items(devices[i])) read_entry(entry, i);
      }
    }
    if (segments) read_segments(*segments);
    if (ooms_ > 0) {
      run_.status = "oom";
      run_.add_fact({.key = "oom_events", .value = static_cast<double>(ooms_), .unit = "", .text = oom_});
    }
  }

 private:
  /// A list may stand in many places of a pickle: together they are not longer than the file.
  void count_visit() {
    if (allowance_-- == 0) {
      throw core::InputError(fmt::format("{}: the pickle holds the same lists again and again", where_));
    }
  }

  void read_entry(PickleRef entry, std::size_t device) {
    count_visit();
    const std::string_view action = pickle_.text(entry, "action");
    const auto address = pickle_.integer(entry, "addr");
    const auto bytes = pickle_.integer(entry, "size");
    std::int64_t time_ns = 0;
    const std::int64_t time_us = pickle_.integer(entry, "time_us").value_or(last_us_[device] + 1);
    if (time_us < last_us_[device]) run_.count("trace entries are earlier than the one before");
    last_us_[device] = time_us;
    if (__builtin_mul_overflow(time_us, std::int64_t{1000}, &time_ns)) {
      return run_.count("allocations with impossible times or sizes were left out");
    }
    if (action == "oom") {
      ++ooms_;
      oom_ = fmt::format("{} bytes were requested, {} were free", bytes.value_or(0),
                         pickle_.integer(entry, "device_free").value_or(0));
    } else if (action == "alloc" || action == "free_completed") {
      if (!address || !bytes || *bytes <= 0)
        return run_.count("allocations without address or size were left out");
      const bool is_alloc = action == "alloc";
      run_.add_memory(time_ns, is_alloc ? *bytes : -*bytes, address, fmt::format("cuda:{}", device));
      if (is_alloc) {
        live_.insert({device, *address});
      } else {
        live_.erase({device, *address});
      }
    } else if (action.empty()) {
      run_.count("entries of the trace without an action were left out");
    }
    // Segments and marks are the allocator's own; a free that was asked for is one when it is completed.
  }

  /// What is allocated in the end and was not seen to be taken was there before the trace began.
  void read_segments(PickleRef segments) {
    std::int64_t reserved = 0;
    for (const PickleRef segment : pickle_.items(segments)) {
      count_visit();
      const std::int64_t device = pickle_.integer(segment, "device").value_or(0);
      if (device < 0 || device >= static_cast<std::int64_t>(kMostTraces)) {
        run_.count("segments of devices beyond the 256th were left out");
        continue;
      }
      std::int64_t address = pickle_.integer(segment, "address").value_or(0);
      if (__builtin_add_overflow(reserved, pickle_.integer(segment, "total_size").value_or(0), &reserved))
        reserved = 0;
      const auto blocks = pickle_.find(segment, "blocks");
      if (!blocks) continue;
      for (const PickleRef block : pickle_.items(*blocks)) {
        count_visit();
        const std::int64_t bytes = pickle_.integer(block, "size").value_or(0);
        address = pickle_.integer(block, "address").value_or(address);
        const bool is_used = pickle_.text(block, "state").starts_with("active");
        const std::pair place{static_cast<std::size_t>(device), address};
        if (is_used && bytes > 0 && !live_.contains(place)) {
          run_.add_memory_before(bytes, address, fmt::format("cuda:{}", device));
          live_.insert(place);
        }
        if (__builtin_add_overflow(address, bytes, &address)) address = 0;
      }
    }
    if (reserved > 0)
      run_.add_fact(
          {.key = "reserved_bytes", .value = static_cast<double>(reserved), .unit = "B", .text = ""});
  }

  const std::string& where_;
  ForeignRun& run_;
  Pickle pickle_;
  std::size_t allowance_;
  std::map<std::size_t, std::int64_t> last_us_;
  std::set<std::pair<std::size_t, std::int64_t>> live_;  ///< device, address
  std::size_t ooms_ = 0;
  std::string oom_;
};

}  // namespace

void read_torch_memory(std::string_view bytes, const std::string& where, ForeignRun& run) {
  SnapshotReader(bytes, where, run).read();
}

}  // namespace rooflm::foreign
