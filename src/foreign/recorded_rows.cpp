// Rows of a stream as activities.
#include "foreign/recorded_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "core/printable.h"
#include "foreign/captured_graphs.h"
#include "foreign/collectives.h"
#include "foreign/kernel_work.h"
#include "foreign/learned_steps.h"
#include "foreign/module_ops.h"
#include "foreign/recorded_samples.h"
#include "foreign/xla_ops.h"

namespace rooflm::foreign {
namespace {

using inject::RangeKind;
using inject::Row;
using inject::RowKind;

constexpr std::size_t kMostSaid = 300;  ///< letters of a reason
constexpr std::array<const char*, 10> kKinds = {"",    "kernel",   "copy",   "memset", "sync",
                                                "api", "overhead", "memory", "range",  "range"};

/// Of one device: sums stay whole numbers.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 52U;

bool is_block(const Row& row) { return row.kind == RowKind::memory && row.range == RangeKind::block; }

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
        samples_(into.facts, texts) {}

  void read() {
    find_calls();
    find_ops();
    find_work();
    find_xla();
    find_owners();
    for (std::size_t i = 0; i < rows_.size(); ++i) add(i);
    into_.only_samples = is_python_that_only_ran();
    add_collectives();
    add_work();
    if (auto rate = samples_.rate()) run_.add_fact(std::move(*rate));
    if (std::string problem = samples_.problem(); !problem.empty()) run_.say(std::move(problem));
    run_.set_ops(xla_ops_.empty() ? ops_.take() : std::move(xla_ops_));
  }

 private:
  /// Whether nothing is known but where threads were, some of them in Python. Of a native program that is a
  /// run.
  [[nodiscard]] bool is_python_that_only_ran() const {
    bool has_python = false;
    for (const Row& row : rows_) {
      if (!RecordedSamples::is_sample(row)) return false;
      has_python = has_python || samples_.has_python(row);
    }
    return has_python;
  }

  /// Programs of XLA have no modules that are marked: their instructions say whose each kernel is.
  void find_xla() {
    if (!ops_.ops().empty()) return;
    std::vector<Launch> launches;
    for (const auto& [launch, row] : launched_) launches.push_back(launch);
    XlaOps found = find_xla_ops(rows_, texts_, into_.facts, launches);
    for (std::size_t i = 0; i < std::min(launches.size(), found.op_of.size()); ++i) {
      if (found.op_of[i]) op_of_row_[launched_[i].second] = *found.op_of[i];
      if (found.work_of[i]) work_of_row_[launched_[i].second] = *found.work_of[i];
    }
    xla_ops_ = std::move(found.ops);
    work_ = std::move(found.work);
    run_.set_kernel_works(std::move(found.works));
    if (const auto why = into_.facts.find("no hlo"); why != into_.facts.end()) {
      run_.say("what XLA made of the program is missing: " + core::printable(why->second, kMostSaid));
    }
  }

  /// What each kernel has to do, where the operators of a step were noted.
  void find_work() {
    std::map<std::string, std::size_t> problems;
    work_ = ops_.add_work(problems);
    for (const auto& [what, times] : problems) run_.count(what, times);
    std::vector<Execution> executions;
    executions.reserve(launched_.size());
    for (const auto& [launch, row] : launched_) {
      const Row& ran = rows_[row];
      const auto origin = captured_.find(row);
      const auto op = op_of_row_.find(row);
      executions.push_back({.op = op == op_of_row_.end() ? std::nullopt : std::optional(op->second),
                            .name = ran.name,
                            .call = origin == captured_.end()
                                        ? ops_.call_of(launch.thread, launch.call_ns)
                                        : ops_.call_of(origin->second.thread, origin->second.time_ns),
                            .replay = ran.has_node == 1 ? ran.correlation : 0,
                            .step = ops_.step_of(launch.call_ns),
                            .duration_ns = ran.end_ns > ran.start_ns ? ran.end_ns - ran.start_ns : 0});
    }
    KernelWorks shared = share_work(ops_.priced(), executions, [this](std::uint32_t name) {
      const auto text = texts_.find(name);
      return text == texts_.end() ? std::string_view() : std::string_view(text->second);
    });
    for (std::size_t i = 0; i < launched_.size(); ++i) {
      if (shared.of[i]) work_of_row_[launched_[i].second] = *shared.of[i];
    }
    run_.set_kernel_works(std::move(shared.works));
  }

  /// What the ops of a step need, where the operators of one were noted.
  void add_work() {
    constexpr std::string_view kDevice = "device ";
    for (const auto& [key, value] : into_.facts) {
      if (!key.starts_with(kDevice)) continue;
      run_.device_names[key.substr(kDevice.size())] = core::printable(value);
    }
    if (const auto why = into_.facts.find("no shapes"); why != into_.facts.end()) {
      run_.say("shapes of operators are missing: " + core::printable(why->second));
    }
    if (const auto why = into_.facts.find("no stacks"); why != into_.facts.end()) {
      run_.say(core::printable(why->second, kMostSaid));
    }
    if (work_.empty()) return;
    std::int64_t flop = 0;
    for (const record::Op& op : xla_ops_.empty() ? ops_.ops() : xla_ops_) flop += op.matmul_flop;
    run_.add_fact({.key = "matmul_flop", .value = static_cast<double>(flop), .unit = "flop", .text = ""});
    run_.add_fact({.key = "priced_by",
                   .value = {},
                   .unit = "",
                   .text = std::string("shapes of ") +
                           (xla_ops_.empty() ? "PyTorch's operators in its second step"
                                             : "the instructions that XLA made of the program") +
                           ": FLOP and bytes that they need at least, not counted"});
    run_.set_work(std::move(work_));
  }

  /// Each collective of NCCL as an activity on a lane of its communicator: while its kernel runs, or, where
  /// there is none, the moment at which the host asked for it.
  void add_collectives() {
    const auto call = [this](const Row& row) { return call_of(row); };
    for (const Collective& one : find_collectives(rows_, texts_, call)) {
      const Row& shown = rows_[one.kernel.value_or(one.row)];
      if (!has_times(shown)) {
        run_.count("collectives with impossible times were left out");
        continue;
      }
      const std::string name = "NCCL " + one.communicator;
      record::Activity made{
          .name = run_.name("communication", one.op),
          .lane = run_.lane(name, {.kind = "link", .device = device_of(shown), .name = name}),
          .start_ns = static_cast<std::int64_t>(shown.start_ns) - zero_ns_,
          .end_ns = static_cast<std::int64_t>(one.kernel ? shown.end_ns : shown.start_ns) - zero_ns_,
          .bytes = one.bytes,
          .extra = one.extra};
      if (!one.kernel) add_member(made.extra, R"("host":1)");
      if (one.kernel && shown.correlation != 0) made.correlation = shown.correlation;
      run_.add(std::move(made));
    }
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

  /// Whether PyTorch's allocator told of its blocks, and whose they are.
  void find_owners() {
    has_blocks_ = std::ranges::any_of(rows_, is_block);
    if (!has_blocks_) return;
    BlockOwners owners;
    for (const auto& [key, value] : into_.facts) {
      const bool is_begin = key.starts_with("begin ");
      if (!is_begin && !key.starts_with("end ")) continue;
      const std::size_t device = key.find(' ') + 1;
      const std::size_t address = key.find(' ', device);
      const std::size_t name = value.find(' ');
      if (address == std::string::npos || name == std::string::npos) continue;
      auto& places = is_begin ? owners.at_begin : owners.at_end;
      places[{key.substr(device, address - device), std::strtoll(key.c_str() + address, nullptr, 10)}] = {
          .role = core::printable(value.substr(0, name)), .name = core::printable(value.substr(name + 1))};
    }
    run_.set_owners(std::move(owners));
  }

  void find_ops() {
    captured_ = captured_calls(rows_, texts_);
    const auto captured = captured_calls_outside_of_modules();
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const Row* call = runs_on_device(rows_[i].kind) ? call_of(rows_[i]) : nullptr;
      if (call == nullptr) continue;
      launched_.push_back({{.call_ns = call->start_ns, .thread = call->place, .name = rows_[i].name}, i});
    }
    // Kernels of one graph have one call: they are told apart by when they ran.
    std::ranges::stable_sort(launched_, [this](const auto& a, const auto& b) {
      if (a.first.call_ns != b.first.call_ns) return a.first.call_ns < b.first.call_ns;
      return rows_[a.second].start_ns < rows_[b.second].start_ns;
    });
    std::vector<Launch> launches;
    std::vector<std::size_t> rows;
    for (const auto& [launch, row] : launched_) {
      if (const auto origin = captured.find(row); origin != captured.end()) {
        const auto op = ops_.op_of(origin->second.thread, origin->second.time_ns);
        if (op) op_of_row_[row] = *op;
      } else {
        launches.push_back(launch);
        rows.push_back(row);
      }
    }
    const LearnedOps learned = learn_ops(ops_, launches);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (learned.ops[i]) op_of_row_[rows[i]] = *learned.ops[i];
    }
    if (learned.unlike > 0) {
      run_.count(
          "launches have no counterpart in a step whose modules were marked, so they belong to no module",
          learned.unlike);
    }
  }

  /// Calls that captured what a graph runs, of graphs that are replayed where nothing is marked: a whole
  /// step, say. What a module or a phase replays is of that.
  [[nodiscard]] std::unordered_map<std::size_t, CapturedCall> captured_calls_outside_of_modules() const {
    auto captured = captured_;
    std::set<std::uint64_t> of_marks;    // graphs that are replayed by a module or a phase
    std::set<std::uint64_t> with_marks;  // whose capture had some
    for (const auto& [row, origin] : captured) {
      const Row* call = call_of(rows_[row]);
      if (call != nullptr && ops_.is_marked(call->place, call->start_ns)) of_marks.insert(origin.graph);
      if (ops_.is_marked(origin.thread, origin.time_ns)) with_marks.insert(origin.graph);
    }
    std::erase_if(captured, [&](const auto& one) {
      return of_marks.contains(one.second.graph) || !with_marks.contains(one.second.graph);
    });
    return captured;
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
    if (row.kind == RowKind::range && row.range == RangeKind::collective) return;  // add_collectives
    if (row.kind == RowKind::range && row.range == RangeKind::operator_) return;   // find_work
    if (is_inner_call(i) || (row.kind == RowKind::mark && row.range == RangeKind::gradient)) return;
    if (!has_times(row)) return run_.count("events with impossible times were left out");
    if (is_block(row)) return add_block(row);
    if (row.kind == RowKind::mark && row.range == RangeKind::amount) return add_amount(row);
    const bool has_addresses = RecordedSamples::has_addresses(row);
    const bool is_recorder = row.kind == RowKind::range && row.range == RangeKind::recorder;
    record::Activity made{
        .name = run_.name(RecordedSamples::is_sample(row) ? "sample"
                          : is_recorder                   ? "overhead"
                                                          : kKinds[kind],
                          has_addresses ? samples_.name_of(row) : text_of(row.name, "unknown")),
        .lane = lane_of(row),
        .start_ns = static_cast<std::int64_t>(row.start_ns) - zero_ns_,
        .end_ns = static_cast<std::int64_t>(row.end_ns) - zero_ns_};
    if (row.kind == RowKind::range && row.range == RangeKind::step) made.step = steps_++;
    const std::uint64_t periods = has_addresses ? samples_.take_periods(row) : 1;
    if (has_addresses && RecordedSamples::is_waiting(row)) add_member(made.extra, R"("waiting":1)");
    if (periods > 1) add_member(made.extra, fmt::format(R"("periods":{})", periods));
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
    if (const auto work = work_of_row_.find(i); work != work_of_row_.end()) made.work = work->second;
    if (run_.add(std::move(made)) && row.kind == RowKind::kernel) ++into_.kernels;
  }

  static bool has_times(const Row& row) {
    return row.start_ns < kMostStreamTime && row.end_ns < kMostStreamTime;
  }

  /// Puts a member into the text of an object.
  static void add_member(std::string& object, const std::string& member) {
    object =
        object.size() < 2 ? "{" + member + "}" : object.substr(0, object.size() - 1) + "," + member + "}";
  }

  static std::string device_of(const Row& row) { return fmt::format("cuda:{}", row.device); }

  /// What an allocator within the program gave out or took back.
  void add_block(const Row& row) {
    constexpr std::uint64_t kMostAddress = std::numeric_limits<std::int64_t>::max();
    if (row.other > kMostAddress) return run_.count("blocks with impossible addresses were left out");
    const auto address = static_cast<std::int64_t>(row.other);
    if (row.start_ns == 0) return run_.add_memory_before(row.bytes, address, device_of(row));
    run_.add_memory(static_cast<std::int64_t>(row.start_ns) - zero_ns_, row.bytes, address, device_of(row),
                    ops_.op_at(row.start_ns));
  }

  void add_amount(const Row& row) {
    run_.add_gauge({.device = device_of(row),
                    .name = text_of(row.name, "unknown"),
                    .time_ns = static_cast<std::int64_t>(row.start_ns) - zero_ns_,
                    .value = static_cast<double>(row.bytes),
                    .unit = "byte"});
  }

  /// Memory of a device; what is the host's is in the activities. Where blocks are known it is what the
  /// allocator has reserved, and what libraries took by themselves.
  void take_memory(const Row& row, const std::string& text, std::int64_t time_ns) {
    const bool is_of_device =
        text.find(" device memory") != std::string::npos || text.find(" managed memory") != std::string::npos;
    constexpr std::uint64_t kMostAddress = std::numeric_limits<std::int64_t>::max();
    if (!is_of_device || row.other > kMostAddress) return;
    if (has_blocks_) {
      std::int64_t& taken = taken_[row.device];
      taken = std::max<std::int64_t>(0, taken + std::clamp(row.bytes, -kMostBytes, kMostBytes));
      return run_.add_gauge({.device = device_of(row),
                             .name = "taken_bytes",
                             .time_ns = time_ns,
                             .value = static_cast<double>(taken),
                             .unit = "byte"});
    }
    run_.add_memory(time_ns, row.bytes, static_cast<std::int64_t>(row.other), device_of(row));
  }

  const std::vector<Row>& rows_;
  const std::unordered_map<std::uint32_t, std::string>& texts_;
  std::int64_t zero_ns_;
  RecordedProcess& into_;
  ForeignRun& run_;
  ModuleOps ops_;
  RecordedSamples samples_;
  std::int64_t steps_ = 0;
  std::vector<std::pair<Launch, std::size_t>> launched_;  ///< rows of devices, in the order of their calls
  std::unordered_map<std::size_t, CapturedCall> captured_;
  std::vector<OpWork> work_;
  std::vector<record::Op> xla_ops_;
  std::unordered_map<std::size_t, std::int64_t> op_of_row_;    ///< of launches
  std::unordered_map<std::size_t, std::int64_t> work_of_row_;  ///< the same
  std::unordered_map<std::uint32_t, std::size_t> calls_;       ///< the outermost of each correlation
  std::map<std::uint32_t, std::int64_t> threads_;
  bool has_blocks_ = false;
  std::map<std::uint16_t, std::int64_t> taken_;  ///< bytes of each device
  std::map<std::pair<std::uint16_t, std::uint32_t>, std::int64_t> streams_;
};

}  // namespace

void add_rows(const std::vector<Row>& rows, const std::unordered_map<std::uint32_t, std::string>& texts,
              std::int64_t zero_ns, RecordedProcess& into) {
  RowReader(rows, texts, zero_ns, into).read();
}

}  // namespace rooflm::foreign
