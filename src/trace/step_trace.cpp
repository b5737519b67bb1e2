// Activities of traced steps, assigned to steps and ops, as rows of a run record.
#include "trace/step_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "trace/launch_text.h"

namespace rooflm::trace {
namespace {

constexpr const char* kStepRange = "step";
/// Lanes of threads follow those of streams; this one is for threads that CUPTI does not name.
constexpr std::int64_t kNoThread = -1;

bool runs_on_device(const DeviceActivity& activity) {
  return activity.kind == ActivityKind::kernel || activity.kind == ActivityKind::copy ||
         activity.kind == ActivityKind::memset;
}

/// The API call that requested some work.
struct Call {
  std::int64_t start_ns = 0;
  std::optional<std::int64_t> thread{};
};

/// Numbers lanes: device streams first, by number, then threads.
class Lanes {
 public:
  void see(const DeviceActivity& activity) {
    if (runs_on_device(activity)) streams_.insert({activity.device, activity.stream});
    if (activity.thread) threads_.insert(*activity.thread);
  }
  [[nodiscard]] std::vector<record::Lane> rows(const std::string& device_name) {
    std::vector<record::Lane> rows;
    for (const auto& [device, stream] : streams_) {
      numbers_[{0, device, stream}] = static_cast<std::int64_t>(rows.size());
      rows.push_back({.lane = static_cast<std::int64_t>(rows.size()),
                      .kind = "device",
                      .device = fmt::format("{}:{}", device_name, device),
                      .stream = stream,
                      .name = fmt::format("stream {}", stream)});
    }
    if (threads_.empty()) threads_.insert(kNoThread);
    for (const std::int64_t thread : threads_) {
      numbers_[{1, 0, thread}] = static_cast<std::int64_t>(rows.size());
      rows.push_back({.lane = static_cast<std::int64_t>(rows.size()), .kind = "host", .device = "cpu"});
      if (thread != kNoThread) rows.back().thread = thread;
      rows.back().name = thread == kNoThread ? "host" : fmt::format("thread {}", thread);
    }
    return rows;
  }
  [[nodiscard]] std::int64_t of_stream(const DeviceActivity& activity) const {
    return numbers_.at({0, activity.device, activity.stream});
  }
  /// The lane of a thread; if it is unknown, that of the first thread.
  [[nodiscard]] std::int64_t of_thread(std::optional<std::int64_t> thread) const {
    return numbers_.at({1, 0, thread.value_or(*threads_.begin())});
  }

 private:
  std::set<std::pair<std::int64_t, std::int64_t>> streams_;
  std::set<std::int64_t> threads_;
  std::map<std::tuple<int, std::int64_t, std::int64_t>, std::int64_t> numbers_;
};

/// The names of a record, each kind and text once.
class Names {
 public:
  std::int64_t number(const std::string& kind, const std::string& text) {
    const auto [entry, is_new] = numbers_.try_emplace({kind, text}, static_cast<std::int64_t>(rows_.size()));
    if (is_new) rows_.push_back({.name = entry->second, .kind = kind, .text = text});
    return entry->second;
  }
  [[nodiscard]] std::vector<record::ActivityName> take() { return std::move(rows_); }

 private:
  std::map<std::pair<std::string, std::string>, std::int64_t> numbers_;
  std::vector<record::ActivityName> rows_;
};

const TracedStep* step_at(std::span<const TracedStep> steps, std::int64_t time_ns) {
  const auto after =
      std::upper_bound(steps.begin(), steps.end(), time_ns,
                       [](std::int64_t time, const TracedStep& step) { return time < step.asked_ns; });
  if (after == steps.begin()) return nullptr;
  const TracedStep& step = *std::prev(after);
  return time_ns <= step.end_ns ? &step : nullptr;
}

std::optional<std::size_t> op_at(const TracedStep& step, std::int64_t time_ns) {
  const auto after = std::upper_bound(step.ops.begin(), step.ops.end(), time_ns,
                                      [](std::int64_t time, const OpSpan& op) { return time < op.begin_ns; });
  if (after == step.ops.begin()) return std::nullopt;
  const OpSpan& op = *std::prev(after);
  return time_ns <= op.end_ns ? std::optional(op.op) : std::nullopt;
}

/// The op for which memory was allocated or that used it last: outputs are allocated before their op is
/// submitted, and freed after their last reader.
std::optional<std::size_t> op_of_memory(const TracedStep& step, const DeviceActivity& activity) {
  const auto after = std::upper_bound(step.ops.begin(), step.ops.end(), activity.start_ns,
                                      [](std::int64_t time, const OpSpan& op) { return time < op.begin_ns; });
  const bool is_within = after != step.ops.begin() && activity.start_ns <= std::prev(after)->end_ns;
  if (is_within || activity.bytes.value_or(0) < 0) {
    return after == step.ops.begin() ? std::nullopt : std::optional(std::prev(after)->op);
  }
  return after == step.ops.end() ? std::nullopt : std::optional(after->op);
}

/// Converts one trace to rows.
class RowMaker {
 public:
  RowMaker(const DeviceTrace& trace, std::span<const TracedStep> steps, std::int64_t epoch_ns)
      : trace_(&trace), steps_(steps.begin(), steps.end()), epoch_ns_(epoch_ns) {
    std::ranges::sort(steps_, {}, &TracedStep::asked_ns);
    find_calls();
    find_launches();
  }

  TraceRows make(const std::string& device_name) {
    for (const DeviceActivity& activity : trace_->activities) lanes_.see(activity);
    rows_.lanes = lanes_.rows(device_name);
    for (const TracedStep& step : steps_) add_range(step);
    for (const DeviceActivity& activity : trace_->activities) add(activity);
    rows_.names = names_.take();
    std::ranges::stable_sort(rows_.activities, {}, &record::Activity::start_ns);
    for (std::size_t i = 0; i < rows_.activities.size(); ++i) {
      rows_.activities[i].id = static_cast<std::int64_t>(i);
    }
    return std::move(rows_);
  }

 private:
  /// A runtime call and the driver call that it makes have the same correlation id; the outer one begins
  /// first.
  void find_calls() {
    for (const DeviceActivity& activity : trace_->activities) {
      if (activity.kind != ActivityKind::api || !activity.correlation) continue;
      const Call call{.start_ns = activity.start_ns, .thread = activity.thread};
      const auto [entry, is_new] = calls_.try_emplace(*activity.correlation, call);
      if (!is_new && call.start_ns < entry->second.start_ns) entry->second = call;
    }
  }

  [[nodiscard]] const Call* call_of(const DeviceActivity& activity) const {
    if (!activity.correlation) return nullptr;
    const auto found = calls_.find(*activity.correlation);
    return found == calls_.end() ? nullptr : &found->second;
  }

  void add_range(const TracedStep& step) {
    record::Activity row{.name = names_.number("range", kStepRange)};
    row.lane = lanes_.of_thread(thread_of(step));
    row.start_ns = step.begin_ns - epoch_ns_;
    row.end_ns = step.end_ns - epoch_ns_;
    row.step = step.step;
    rows_.activities.push_back(row);
  }

  /// The thread of the first API call within the step.
  [[nodiscard]] std::optional<std::int64_t> thread_of(const TracedStep& step) const {
    for (const DeviceActivity& activity : trace_->activities) {
      if (activity.thread && activity.start_ns >= step.asked_ns && activity.start_ns <= step.end_ns) {
        return activity.thread;
      }
    }
    return std::nullopt;
  }

  /// The step in which the host requested the work, otherwise the one in which it began.
  [[nodiscard]] const TracedStep* step_of(const DeviceActivity& activity, const Call* call) const {
    const TracedStep* step = call == nullptr ? nullptr : step_at(steps_, call->start_ns);
    return step == nullptr ? step_at(steps_, activity.start_ns) : step;
  }

  /// Each graph launch has its own correlation id, in increasing order.
  void find_launches() {
    for (const DeviceActivity& activity : trace_->activities) {
      if (!activity.graph_node || !activity.correlation) continue;
      const TracedStep* step = step_of(activity, call_of(activity));
      if (step != nullptr) launches_[step].insert(*activity.correlation);
    }
  }

  /// Index of the graph, among those that the step launches, that the activity belongs to.
  [[nodiscard]] std::size_t part_of(const DeviceActivity& activity, const TracedStep& step) const {
    if (step.nodes->parts() <= 1 || !activity.correlation) return 0;
    const std::set<std::int64_t>& launches = launches_.at(&step);
    return static_cast<std::size_t>(std::distance(launches.begin(), launches.find(*activity.correlation)));
  }

  void add(const DeviceActivity& activity) {
    const Call* call = call_of(activity);
    const TracedStep* step = step_of(activity, call);
    if (step == nullptr) {
      ++rows_.outside;
      return;
    }
    record::Activity row;
    row.start_ns = activity.start_ns - epoch_ns_;
    row.end_ns = activity.end_ns - epoch_ns_;
    row.correlation = activity.correlation;
    row.bytes = activity.bytes;
    row.step = step->step;
    row.name = names_.number(name_of(activity.kind), trace_->names.at(activity.name));
    if (runs_on_device(activity)) {
      row.lane = lanes_.of_stream(activity);
      const auto op = join_op(activity, call, *step);
      if (op) row.op = static_cast<std::int64_t>(*op);
    } else {
      const auto thread = activity.thread ? activity.thread : call == nullptr ? std::nullopt : call->thread;
      row.lane = lanes_.of_thread(thread);
    }
    if (activity.kind == ActivityKind::memory) {
      const auto op = op_of_memory(*step, activity);
      if (op) row.op = static_cast<std::int64_t>(*op);
      if (activity.address) row.extra = fmt::format(R"({{"address":{}}})", *activity.address);
    }
    if (activity.launch) {
      row.extra = describe_launch(trace_->launches.at(*activity.launch), limits_of(activity.device),
                                  activity.graph_node);
    }
    rows_.activities.push_back(std::move(row));
  }

  /// The op of a kernel, copy or memset; counts activities without one.
  std::optional<std::size_t> join_op(const DeviceActivity& activity, const Call* call,
                                     const TracedStep& step) {
    const bool is_kernel = activity.kind == ActivityKind::kernel;
    rows_.kernels += is_kernel ? 1 : 0;
    std::optional<std::size_t> op;
    if (activity.graph_node && step.nodes != nullptr) {
      const std::size_t part = part_of(activity, step);
      op = step.nodes->op_of(*activity.graph_node, part);
      if (!op && step.nodes->contains(*activity.graph_node, part)) {
        rows_.of_backend += is_kernel ? 1 : 0;
        return op;
      }
    } else if (call != nullptr) {
      op = op_at(step, call->start_ns);
    }
    if (!op && is_kernel) ++rows_.without_op;
    return op;
  }

  [[nodiscard]] const DeviceLimits* limits_of(std::int64_t device) const {
    const auto found = std::ranges::find(trace_->devices, device, &DeviceLimits::device);
    return found == trace_->devices.end() ? nullptr : &*found;
  }

  const DeviceTrace* trace_;
  std::vector<TracedStep> steps_;
  std::int64_t epoch_ns_;
  std::unordered_map<std::int64_t, Call> calls_;
  std::map<const TracedStep*, std::set<std::int64_t>> launches_;  ///< correlation ids of graph launches
  Lanes lanes_;
  Names names_;
  TraceRows rows_;
};

}  // namespace

void NodeOps::add(std::uint64_t node, std::optional<std::size_t> op, std::size_t part) {
  ops_[key_of(node, part)] = op;
  parts_ = std::max(parts_, part + 1);
}

std::optional<std::size_t> NodeOps::op_of(std::uint64_t node, std::size_t part) const {
  const auto found = ops_.find(key_of(node, part));
  return found == ops_.end() ? std::nullopt : found->second;
}

std::map<std::int64_t, std::int64_t> kernels_alone(const TraceRows& rows, std::int64_t step) {
  // Fills of memory for a kernel, by memset or by our kernel for it, move next to nothing.
  constexpr std::string_view kFill = "fill_memory";
  std::set<std::int64_t> kernels;
  std::set<std::int64_t> others;
  for (const record::ActivityName& name : rows.names) {
    const bool is_kernel = name.kind == name_of(ActivityKind::kernel);
    if (is_kernel && name.text.find(kFill) == std::string::npos) kernels.insert(name.name);
    if (name.kind == name_of(ActivityKind::copy)) others.insert(name.name);
  }
  std::map<std::int64_t, std::int64_t> alone;
  std::set<std::int64_t> not_alone;
  for (const record::Activity& activity : rows.activities) {
    if (activity.step != step || !activity.op) continue;
    const bool is_kernel = kernels.contains(activity.name);
    if (!is_kernel && !others.contains(activity.name)) continue;
    if (!is_kernel || !alone.try_emplace(*activity.op, activity.id).second) not_alone.insert(*activity.op);
  }
  for (const std::int64_t op : not_alone) alone.erase(op);
  return alone;
}

TraceRows rows_of(const DeviceTrace& trace, std::span<const TracedStep> steps, std::int64_t epoch_ns,
                  const std::string& device_name) {
  return RowMaker(trace, steps, epoch_ns).make(device_name);
}

}  // namespace rooflm::trace
