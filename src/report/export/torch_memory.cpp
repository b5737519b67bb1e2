// A memory snapshot as torch.cuda.memory._dump_snapshot pickles it, for memory_viz. Only the opcodes of
// pickle that memory_viz itself reads are used.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>

#include "report/export/export.h"
#include "report/export/memory_places.h"

namespace rooflm::report {
namespace {

/// The viewer spreads a list into the arguments of one call.
constexpr std::size_t kBatch = 1000;

/// Writes pickle, protocol 2.
class Pickle {
 public:
  explicit Pickle(const TextSink& sink) : sink_(sink) { raw("\x80\x02"); }
  void raw(std::string_view bytes) { sink_(bytes); }
  void text(std::string_view value) {
    raw("X");
    little(value.size(), 4);
    raw(value);
  }
  void integer(std::int64_t value) {
    if (value >= -(std::int64_t{1} << 31U) && value < (std::int64_t{1} << 31U)) {
      raw("J");
      return little(static_cast<std::uint64_t>(value), 4);
    }
    raw("\x8a\x08");
    little(static_cast<std::uint64_t>(value), 8);
  }
  void stop() { raw("."); }
  /// Remembers what is on the stack under the next number, which is returned.
  std::size_t remember() {
    raw("r");
    little(remembered_, 4);
    return remembered_++;
  }
  void recall(std::size_t number) {
    raw("j");
    little(number, 4);
  }
  /// A list of `count` items, each written by `item(i)`.
  template <class Item>
  void list(std::size_t count, const Item& item) {
    raw("]");
    for (std::size_t begin = 0; begin < count; begin += kBatch) {
      raw("(");
      for (std::size_t i = begin; i < std::min(count, begin + kBatch); ++i) item(i);
      raw("e");
    }
  }
  /// A dictionary whose keys and values `fill` writes.
  template <class Fill>
  void dictionary(const Fill& fill) {
    raw("}(");
    fill();
    raw("u");
  }

 private:
  void little(std::uint64_t value, unsigned bytes) {
    std::string out;
    for (unsigned i = 0; i < bytes; ++i) out += static_cast<char>(value >> 8 * i & 0xFFU);
    raw(out);
  }

  const TextSink& sink_;
  std::size_t remembered_ = 0;
};

/// An allocation or what gives it back.
struct Action {
  bool is_alloc = false;
  std::int64_t address = 0, bytes = 0, time_us = 0;
  const record::MemoryEvent* event = nullptr;
};

/// A stretch of memory in use, or the whole of a segment.
using Spans = std::map<std::int64_t, std::int64_t>;  ///< address, end

struct DeviceMemory {
  std::vector<Action> actions;
  std::map<std::int64_t, const Action*> live;  ///< by address, at the end
  Spans segments;
};

class SnapshotWriter {
 public:
  SnapshotWriter(const ExportSource& source, const TextSink& sink)
      : run_(source.run), epoch_us_(source.file.epoch_utc_ns / 1000), pickle_(sink) {}

  std::vector<std::string> write() {
    collect();
    pickle_.dictionary([&] {
      pickle_.text("segments");
      write_segments();
      pickle_.text("device_traces");
      pickle_.list(devices_.size(), [&](std::size_t i) { write_trace(devices_[i]); });
      pickle_.text("allocator_settings");
      pickle_.raw("}");
    });
    pickle_.stop();
    if (run_.memory_events.empty()) {
      notes_.push_back(fmt::format("run {} has no memory events: the snapshot is empty", run_.run.id));
    }
    if (skipped_ > 0) {
      notes_.push_back(fmt::format(
          "{} memory events free what was not allocated, or have impossible sizes, and are left out",
          skipped_));
    }
    return notes_;
  }

 private:
  /// The viewer knows GPUs alone; what only processors allocated is shown as if it were the first one's.
  void collect() {
    const PlacedMemory placed = placed_memory(run_);
    skipped_ = placed.left_out;
    const bool has_gpu =
        std::ranges::any_of(placed.changes, [](const MemoryChange& change) { return is_gpu(change.device); });
    std::size_t of_host = 0;
    DeviceNumbers numbers;
    for (const MemoryChange& change : placed.changes) {
      if (has_gpu && !is_gpu(change.device)) {
        ++of_host;
        continue;
      }
      const auto number = static_cast<std::size_t>(numbers.of(change.device));
      if (devices_.size() <= number) devices_.resize(number + 1);
      std::vector<Action>& actions = devices_[number].actions;
      // Steps that a simulator or a plan made have no times: there events are a microsecond apart.
      const std::int64_t last = actions.empty() ? epoch_us_ : actions.back().time_us;
      actions.push_back(
          {.is_alloc = change.bytes > 0,
           .address = change.address,
           .bytes = std::abs(change.bytes),
           .time_us = change.event->time_ns > 0 ? epoch_us_ + change.event->time_ns / 1000 : last + 1,
           .event = change.event});
    }
    if (of_host > 0) {
      notes_.push_back(fmt::format(
          "{} memory events are of the host and are left out: the snapshot has those of GPUs", of_host));
    }
    for (DeviceMemory& device : devices_) finish(device);
  }

  static void finish(DeviceMemory& device) {
    Spans all;
    for (const Action& action : device.actions) {
      if (action.is_alloc) {
        device.live[action.address] = &action;
        std::int64_t& end = all[action.address];
        end = std::max(end, action.address + action.bytes);
      } else {
        device.live.erase(action.address);
      }
    }
    // What touches or overlaps is one segment: blocks that are taken and given back lie in it.
    for (const auto& [begin, end] : all) {
      if (!device.segments.empty() && begin <= std::prev(device.segments.end())->second) {
        std::int64_t& last = std::prev(device.segments.end())->second;
        last = std::max(last, end);
      } else {
        device.segments[begin] = end;
      }
    }
  }

  void entry(std::string_view key, std::int64_t value) {
    pickle_.text(key);
    pickle_.integer(value);
  }
  void entry(std::string_view key, std::string_view value) {
    pickle_.text(key);
    pickle_.text(value);
  }

  const record::Tensor* tensor_of(const record::MemoryEvent& event) {
    if (tensors_.empty()) {
      for (const record::Tensor& tensor : run_.tensors) tensors_[tensor.tensor] = &tensor;
    }
    const auto found = event.tensor ? tensors_.find(*event.tensor) : tensors_.end();
    return found == tensors_.end() ? nullptr : found->second;
  }

  /// Tensor, place in the program and op, as if they were a line of a stack.
  void write_frames(const record::MemoryEvent& event) {
    pickle_.text("frames");
    const std::pair key{event.tensor.value_or(-1), event.op.value_or(-2)};
    const auto known = frames_.find(key);
    if (known != frames_.end()) return pickle_.recall(known->second);
    std::string name = "allocation";
    std::string file = run_.run.label;
    const record::Tensor* tensor = tensor_of(event);
    if (tensor != nullptr) name = fmt::format("{} ({})", tensor->name, tensor->role);
    const TimedOp* op = event.op ? run_.find_op(*event.op) : nullptr;
    if (op != nullptr) file = fmt::format("{} {} {}", op->op.phase, op->op.scope, op->op.kind);
    pickle_.list(event.tensor || event.op ? 1 : 0, [&](std::size_t) {
      pickle_.dictionary([&] {
        entry("name", name);
        entry("filename", file);
        entry("line", event.op.value_or(0));
      });
    });
    frames_[key] = pickle_.remember();
  }

  void write_trace(const DeviceMemory& device) {
    std::vector<std::pair<const Action*, const char*>> entries;
    bool has_categories = false;
    for (const Action& action : device.actions) {
      has_categories = has_categories || tensor_of(*action.event) != nullptr;
      if (action.is_alloc) {
        entries.emplace_back(&action, "alloc");
      } else {
        entries.emplace_back(&action, "free_requested");
        entries.emplace_back(&action, "free_completed");
      }
    }
    // The viewer colours by categories, and fails where there are some but none is "unknown": the mark of the
    // snapshot itself has that one.
    const Action snapshot{.time_us = device.actions.empty() ? epoch_us_ : device.actions.back().time_us};
    if (has_categories) entries.emplace_back(&snapshot, "snapshot");
    pickle_.list(entries.size(), [&](std::size_t i) {
      const Action& action = *entries[i].first;
      pickle_.dictionary([&] {
        entry("action", entries[i].second);
        entry("addr", action.address);
        entry("size", action.bytes);
        entry("stream", 0);
        entry("time_us", action.time_us);
        const record::Tensor* tensor = action.event == nullptr ? nullptr : tensor_of(*action.event);
        if (has_categories) entry("category", tensor == nullptr ? "unknown" : tensor->role);
        if (action.event != nullptr) write_frames(*action.event);
      });
    });
  }

  void write_segments() {
    std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> all;  // device, begin, end
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      for (const auto& [begin, end] : devices_[i].segments) all.emplace_back(i, begin, end);
    }
    pickle_.list(all.size(), [&](std::size_t i) {
      const auto& [device, begin, end] = all[i];
      write_segment(static_cast<std::size_t>(device), begin, end);
    });
  }

  /// Its blocks cover all of it, in the order of their addresses.
  void write_segment(std::size_t number, std::int64_t begin, std::int64_t end) {
    struct SegmentBlock {
      std::int64_t address = 0, bytes = 0;
      const Action* action = nullptr;
    };
    std::vector<SegmentBlock> blocks;
    std::int64_t at = begin;
    std::int64_t live_bytes = 0;
    const auto& live = devices_[number].live;
    for (auto next = live.lower_bound(begin); next != live.end() && next->first < end; ++next) {
      if (next->first < at) continue;  // within the one before it: an address that was given out twice
      if (next->first > at) blocks.push_back({at, next->first - at});
      blocks.push_back({next->first, next->second->bytes, next->second});
      live_bytes += next->second->bytes;
      at = next->first + next->second->bytes;
    }
    if (at < end) blocks.push_back({at, end - at});
    pickle_.dictionary([&] {
      entry("device", static_cast<std::int64_t>(number));
      entry("address", begin);
      entry("total_size", end - begin);
      entry("allocated_size", live_bytes);
      entry("active_size", live_bytes);
      entry("requested_size", live_bytes);
      entry("stream", 0);
      entry("segment_type", "large");
      pickle_.text("segment_pool_id");
      pickle_.integer(0);
      pickle_.integer(0);
      pickle_.raw("\x86");
      pickle_.text("is_expandable");
      pickle_.raw("\x89");
      pickle_.text("frames");
      pickle_.raw("]");
      pickle_.text("blocks");
      pickle_.list(blocks.size(), [&](std::size_t i) {
        pickle_.dictionary([&] {
          entry("address", blocks[i].address);
          entry("size", blocks[i].bytes);
          entry("requested_size", blocks[i].action == nullptr ? 0 : blocks[i].bytes);
          entry("state", blocks[i].action == nullptr ? "inactive" : "active_allocated");
          if (blocks[i].action != nullptr) write_frames(*blocks[i].action->event);
        });
      });
    });
  }

  const RunData& run_;
  std::int64_t epoch_us_;  ///< zero of the record's times
  Pickle pickle_;
  std::map<std::int64_t, const record::Tensor*> tensors_;
  std::vector<DeviceMemory> devices_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> frames_;  ///< by tensor and op
  std::vector<std::string> notes_;
  std::size_t skipped_ = 0;
};

}  // namespace

std::vector<std::string> write_torch_memory(const ExportSource& source, const TextSink& sink) {
  std::vector<std::string> notes = SnapshotWriter(source, sink).write();
  if (source.scope.step)
    notes.emplace_back("memory events are of one step in any case: --step changes nothing");
  return notes;
}

}  // namespace rooflm::report
