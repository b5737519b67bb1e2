// Rows of a stream as activities.
#include "foreign/recorded_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <utility>

#include "core/printable.h"
#include "foreign/learned_steps.h"
#include "foreign/module_ops.h"
#include "foreign/stack_names.h"

namespace rooflm::foreign {
namespace {

using inject::RangeKind;
using inject::Row;
using inject::RowKind;

constexpr std::size_t kMostSaid = 300;  ///< letters of a reason
constexpr std::array<const char*, 10> kKinds = {"",    "kernel",   "copy",   "memset", "sync",
                                                "api", "overhead", "memory", "range",  "range"};

bool runs_on_device(RowKind kind) {
  return kind == RowKind::kernel || kind == RowKind::copy || kind == RowKind::memset;
}

class RowReader {
 public:
  RowReader(const std::vector<Row>& rows, const std::unordered_map<std::uint32_t, std::string>& texts,
            std::int64_t zero_ns, RecordedProcess& into)
      : rows_(rows),
        texts_(texts),
        zero_ns_(zero_ns),
        into_(into),
        run_(into.run),
        ops_(rows, texts, into.facts),
        stacks_(into.facts) {}

  void read() {
    find_calls();
    find_ops();
    for (std::size_t i = 0; i < rows_.size(); ++i) add(i);
    add_work();
    run_.set_ops(ops_.take());
    run_.may_repeat = true;
  }

 private:
  /// What the ops of a step need, where the operators of one were noted.
  void add_work() {
    std::map<std::string, std::size_t> problems;
    std::vector<OpWork> work = ops_.add_work(problems);
    for (const auto& [what, times] : problems) run_.count(what, times);
    constexpr std::string_view kDevice = "device ";
    for (const auto& [key, value] : into_.facts) {
      if (key.starts_with(kDevice)) run_.device_names[key.substr(kDevice.size())] = core::printable(value);
    }
    if (const auto why = into_.facts.find("no shapes"); why != into_.facts.end()) {
      run_.say("shapes of operators are missing: " + core::printable(why->second));
    }
    if (const auto why = into_.facts.find("no stacks"); why != into_.facts.end()) {
      run_.say(core::printable(why->second, kMostSaid));
    }
    if (work.empty()) return;
    std::int64_t flop = 0;
    for (const record::Op& op : ops_.ops()) flop += op.matmul_flop;
    run_.add_fact({.key = "matmul_flop", .value = static_cast<double>(flop), .unit = "flop", .text = ""});
    run_.add_fact({.key = "priced_by",
                   .value = {},
                   .unit = "",
                   .text =
                       "shapes of PyTorch's operators in its second step: FLOP and bytes that they need at "
                       "least, not counted"});
    run_.set_work(std::move(work));
  }

  /// A call of the runtime and the call of the driver that it makes have the same correlation: the outer one
  /// begins first, and the inner one says nothing more.
  void find_calls() {
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const Row& row = rows_[i];
      if (row.kind != RowKind::api || row.correlation == 0) continue;
      const auto [entry, is_new] = calls_.try_emplace(row.correlation, i);
      if (!is_new && row.start_ns < rows_[entry->second].start_ns) entry->second = i;
    }
  }

  void find_ops() {
    std::vector<std::pair<Launch, std::size_t>> found;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const Row* call = runs_on_device(rows_[i].kind) ? call_of(rows_[i]) : nullptr;
      if (call == nullptr) continue;
      found.push_back({{.call_ns = call->start_ns, .thread = call->place, .name = rows_[i].name}, i});
    }
    // Kernels of one graph have one call: they are told apart by when they ran.
    std::ranges::stable_sort(found, [this](const auto& a, const auto& b) {
      if (a.first.call_ns != b.first.call_ns) return a.first.call_ns < b.first.call_ns;
      return rows_[a.second].start_ns < rows_[b.second].start_ns;
    });
    std::vector<Launch> launches;
    launches.reserve(found.size());
    for (const auto& [launch, row] : found) launches.push_back(launch);
    const LearnedOps learned = learn_ops(ops_, launches);
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (learned.ops[i]) op_of_row_[found[i].second] = *learned.ops[i];
    }
    if (learned.unlike > 0) {
      run_.count("launches have no counterpart in a step whose modules were marked: they are of no module",
                 learned.unlike);
    }
  }

  [[nodiscard]] const Row* call_of(const Row& row) const {
    const auto found = row.correlation == 0 ? calls_.end() : calls_.find(row.correlation);
    return found == calls_.end() ? nullptr : &rows_[found->second];
  }

  [[nodiscard]] bool is_inner_call(std::size_t i) const {
    if (rows_[i].kind != RowKind::api || rows_[i].correlation == 0) return false;
    const Row& outer = rows_[calls_.at(rows_[i].correlation)];
    return &outer != &rows_[i] && outer.end_ns >= rows_[i].end_ns;
  }

  std::string text_of(std::uint32_t number, const char* what) {
    const auto found = texts_.find(number);
    if (found != texts_.end()) return core::printable(found->second, 4096);
    run_.count("names are not in the stream");
    return what;
  }

  /// Each text once: its addresses have to be looked up.
  const std::string& stack_of(std::uint32_t number) {
    const auto [entry, is_new] = stack_texts_.try_emplace(number);
    const auto found = is_new ? texts_.find(number) : texts_.end();
    if (found != texts_.end()) entry->second = stacks_.text_of(found->second);
    if (entry->second.empty()) entry->second = "[unknown]";
    return entry->second;
  }

  std::int64_t thread_lane(std::uint32_t thread) {
    const auto [entry, is_new] = threads_.try_emplace(thread, 0);
    if (is_new) {
      const auto said = into_.facts.find(fmt::format("thread {}", thread));
      std::string name = fmt::format("thread {}", thread);
      if (thread == into_.process) name += ", main";
      if (said != into_.facts.end()) name += ", " + core::printable(said->second);
      entry->second = run_.lane(fmt::format("host {}", thread),
                                {.kind = "host", .device = "cpu", .thread = thread, .name = name});
    }
    return entry->second;
  }

  std::int64_t stream_lane(std::uint16_t device, std::uint32_t stream) {
    const auto [entry, is_new] = streams_.try_emplace({device, stream}, 0);
    if (is_new) {
      entry->second =
          run_.lane(fmt::format("stream {} {}", device, stream), {.kind = "device",
                                                                  .device = fmt::format("cuda:{}", device),
                                                                  .stream = stream,
                                                                  .name = fmt::format("stream {}", stream)});
    }
    return entry->second;
  }

  [[nodiscard]] std::int64_t lane_of(const Row& row) {
    if (runs_on_device(row.kind)) return stream_lane(row.device, row.place);
    const Row* call = row.kind == RowKind::sync || row.kind == RowKind::memory ? call_of(row) : nullptr;
    if (call != nullptr) return thread_lane(call->place);
    const bool names_thread =
        row.kind == RowKind::api || row.kind == RowKind::range || row.kind == RowKind::mark;
    return thread_lane(names_thread ? row.place : static_cast<std::uint32_t>(into_.process));
  }

  void add(std::size_t i) {
    const Row& row = rows_[i];
    const auto kind = static_cast<std::size_t>(row.kind);
    if (kind == 0 || kind >= kKinds.size()) return run_.count("rows of an unknown kind were left out");
    if (is_inner_call(i) || (row.kind == RowKind::mark && row.range == RangeKind::gradient)) return;
    constexpr std::uint64_t kMost = std::uint64_t{1} << 62U;
    if (row.start_ns >= kMost || row.end_ns >= kMost) {
      return run_.count("events with impossible times were left out");
    }
    const bool is_addresses = row.kind == RowKind::mark && row.range == RangeKind::addresses;
    const bool is_sample = is_addresses || (row.kind == RowKind::mark && row.range == RangeKind::stack);
    record::Activity made{.name = run_.name(is_sample ? "sample" : kKinds[kind],
                                            is_addresses ? stack_of(row.name) : text_of(row.name, "unknown")),
                          .lane = lane_of(row),
                          .start_ns = static_cast<std::int64_t>(row.start_ns) - zero_ns_,
                          .end_ns = static_cast<std::int64_t>(row.end_ns) - zero_ns_};
    if (row.kind == RowKind::range && row.range == RangeKind::step) made.step = steps_++;
    if (row.correlation != 0) made.correlation = row.correlation;
    const bool has_bytes =
        row.kind == RowKind::copy || row.kind == RowKind::memset || row.kind == RowKind::memory;
    if (has_bytes) made.bytes = row.bytes;
    if (row.extra != 0) made.extra = text_of(row.extra, "");
    if (row.has_node == 1) add_member(made.extra, fmt::format(R"("node":{})", row.other));
    if (row.kind == RowKind::memory) {
      add_member(made.extra, fmt::format(R"("address":{})", row.other));
      take_memory(row, run_.name_of(made).text, made.start_ns);
    }
    if (const auto op = op_of_row_.find(i); op != op_of_row_.end()) made.op = op->second;
    if (run_.add(std::move(made)) && row.kind == RowKind::kernel) ++into_.kernels;
  }

  /// Puts a member into the text of an object.
  static void add_member(std::string& object, const std::string& member) {
    object =
        object.size() < 2 ? "{" + member + "}" : object.substr(0, object.size() - 1) + "," + member + "}";
  }

  /// Memory of a device; what is the host's is in the activities.
  void take_memory(const Row& row, const std::string& text, std::int64_t time_ns) {
    const bool is_of_device =
        text.find(" device memory") != std::string::npos || text.find(" managed memory") != std::string::npos;
    constexpr std::uint64_t kMostAddress = std::numeric_limits<std::int64_t>::max();
    if (!is_of_device || row.other > kMostAddress) return;
    run_.add_memory(time_ns, row.bytes, static_cast<std::int64_t>(row.other),
                    fmt::format("cuda:{}", row.device));
  }

  const std::vector<Row>& rows_;
  const std::unordered_map<std::uint32_t, std::string>& texts_;
  std::int64_t zero_ns_;
  RecordedProcess& into_;
  ForeignRun& run_;
  ModuleOps ops_;
  StackNames stacks_;
  std::int64_t steps_ = 0;
  std::unordered_map<std::uint32_t, std::string> stack_texts_;
  std::unordered_map<std::size_t, std::int64_t> op_of_row_;  ///< of launches
  std::unordered_map<std::uint32_t, std::size_t> calls_;     ///< the outermost of each correlation
  std::map<std::uint32_t, std::int64_t> threads_;
  std::map<std::pair<std::uint16_t, std::uint32_t>, std::int64_t> streams_;
};

}  // namespace

void add_rows(const std::vector<Row>& rows, const std::unordered_map<std::uint32_t, std::string>& texts,
              std::int64_t zero_ns, RecordedProcess& into) {
  RowReader(rows, texts, zero_ns, into).read();
}

}  // namespace rooflm::foreign
