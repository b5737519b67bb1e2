// A run as trace formats want it.
#include "report/export/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "core/error.h"
#include "report/model/activity_names.h"
#include "report/model/device_times.h"
#include "report/model/kernels.h"

namespace rooflm::report {
namespace {

/// Nanoseconds, 36 years: sums and differences of times below it are 64-bit numbers.
constexpr std::int64_t kMostTraceTime = std::int64_t{1} << 60U;
constexpr std::int64_t kMostThread = (1 << 24) - 1;
constexpr std::int64_t kMadeUpProcess = 1'000'000;

/// As activities of imported ranges keep them (foreign/nsys.cpp).
constexpr std::int64_t kNvtxMark = 34;
constexpr std::int64_t kNvtxStartEnd = 60;

bool has_possible_times(std::int64_t start_ns, std::int64_t end_ns) {
  return -kMostTraceTime < start_ns && start_ns <= end_ns && end_ns < kMostTraceTime;
}

bool starts_before(std::int64_t start_a, std::int64_t end_a, std::int64_t start_b, std::int64_t end_b) {
  return start_a != start_b ? start_a < start_b : end_a > end_b;
}

/// Whether a range is a step by its name: of a record, or of a thread beside the one whose steps it has.
/// As foreign/find_steps.cpp names it.
constexpr std::string_view kHostStep = "step, as the host saw it";

bool is_step_name(std::string_view name) { return name == kStepRange || name.starts_with(kProfilerStep); }

/// Whether a range may be a step as its program's host saw it, beside the step on the device's clock.
bool is_step_of_host(std::string_view name) { return name == kHostStep || name.starts_with(kProfilerStep); }

bool is_shorter(std::string_view a, std::string_view b) { return a.size() < b.size(); }

NvtxRange nvtx_of(const TraceEvent& event) {
  NvtxRange range;
  const auto type = number_in(event.extra, R"("nvtx":)");
  if (type == kNvtxStartEnd) range.style = NvtxRange::Style::start_end;
  if (type == kNvtxMark) range.style = NvtxRange::Style::mark;
  const std::int64_t size = number_in(event.extra, R"("domain":)").value_or(0);
  if (size > 0 && static_cast<std::uint64_t>(size) < std::max(event.name, event.own_name, is_shorter).size())
    range.domain_size = static_cast<std::size_t>(size);
  return range;
}

}  // namespace

bool is_kernel_event(const TraceEvent& event) { return is_kernel_kind(event.kind); }

bool is_device_work(const TraceEvent& event) { return is_device_kind(event.kind); }

Trace::Trace(const RunData& run, TraceScope scope) : run_(run) {
  std::int64_t lowest = std::numeric_limits<std::int64_t>::max();
  for (const record::Lane& lane : run.lanes) {
    if (lane.thread && *lane.thread > 0 && *lane.thread <= kMostThread)
      lowest = std::min(lowest, *lane.thread);
  }
  if (lowest > kMostThread) lowest = 0;
  process_ = lowest < kMostDevices ? kMadeUpProcess + lowest : lowest;
  if (run.activities.empty()) {
    take_ops(scope.step);
  } else {
    find_span(scope);
    take_activities(scope);
    begin_steps_with_their_calls();
  }
  if (scope.step && events_.empty()) {
    throw core::UsageError(
        fmt::format("--step {}: run {} has no events of that step", *scope.step, run.run.id));
  }
  std::ranges::stable_sort(events_, [](const TraceEvent& a, const TraceEvent& b) {
    return starts_before(a.start_ns, a.end_ns, b.start_ns, b.end_ns);
  });
  for (std::size_t i = 0; i < events_.size(); ++i) {
    if (events_[i].kind == "api" && events_[i].correlation) calls_.emplace_back(*events_[i].correlation, i);
  }
  std::ranges::sort(calls_);
  add_recorded_ranges();
  fill_recorded_ranges();
  add_op_ranges();
  nest_ranges();
}

bool Trace::has_step(const RunData& run, std::int64_t step) {
  if (run.activities.empty())
    return std::ranges::any_of(run.events, [&](const auto& event) { return event.step == step; });
  return std::ranges::any_of(run.activities, [&](const auto& activity) { return activity.step == step; });
}

const TraceEvent* Trace::call_of(const TraceEvent& event) const {
  if (!event.correlation) return nullptr;
  const auto found =
      std::ranges::lower_bound(calls_, *event.correlation, {}, [](const auto& call) { return call.first; });
  return found == calls_.end() || found->first != *event.correlation ? nullptr : &events_[found->second];
}

std::int64_t Trace::thread_of(const record::Lane& lane) const {
  if (lane.thread && *lane.thread > 0 && *lane.thread <= kMostThread) return *lane.thread;
  return std::min(process_ + 1 + (lane.lane & 0xFFFF), kMostThread);
}

const record::Lane* Trace::lane_of(std::int64_t number) {
  const auto known = std::ranges::find(run_.lanes, number, &record::Lane::lane);
  if (known != run_.lanes.end()) return &*known;
  const auto made = std::ranges::find(made_lanes_, number, &record::Lane::lane);
  if (made != made_lanes_.end()) return &*made;
  made_lanes_.push_back({.lane = number,
                         .kind = "device",
                         .device = run_.setting("device"),
                         .stream = number,
                         .name = fmt::format("lane {}", number)});
  return &made_lanes_.back();
}

/// From when to when the steps of the scope last, with the calls that asked for their work: a host runs
/// ahead.
void Trace::find_span(TraceScope scope) {
  begin_ns_ = kMostTraceTime;
  end_ns_ = -kMostTraceTime;
  const auto include = [&](const record::Activity& activity) {
    begin_ns_ = std::min(begin_ns_, activity.start_ns);
    end_ns_ = std::max(end_ns_, activity.end_ns);
  };
  const auto is_of_scope = [&](const record::Activity& activity) {
    return activity.step && (!scope.step || activity.step == scope.step) &&
           has_possible_times(activity.start_ns, activity.end_ns);
  };
  const ActivityNames names(run_);
  has_all_ = !scope.step;
  if (!scope.is_whole) {
    for (const record::Activity& activity : run_.activities) {
      if (!is_of_scope(activity)) continue;
      include(activity);
      if (activity.correlation) started_.insert(*activity.correlation);
      // Steps without any work on a device leave nothing to choose.
      has_all_ = has_all_ && !is_device_kind(names.kind(activity));
    }
  }
  last_asked_ns_ = -kMostTraceTime;
  for (const record::Activity& activity : run_.activities) {
    const bool is_call = activity.correlation && names.kind(activity) == "api" &&
                         has_possible_times(activity.start_ns, activity.end_ns);
    if (!is_call) continue;
    asked_ns_.emplace(*activity.correlation, activity.start_ns);
    if (!started_.contains(*activity.correlation)) continue;
    include(activity);
    last_asked_ns_ = std::max(last_asked_ns_, activity.start_ns);
  }
  if (last_asked_ns_ < begin_ns_) last_asked_ns_ = end_ns_;  // calls were not recorded
}

void Trace::take_activities(TraceScope scope) {
  const ActivityNames names(run_);
  const auto is_wanted = [&](const record::Activity& activity, const record::Lane& lane) {
    if (has_all_) return true;
    if (activity.step) return !scope.step || activity.step == scope.step;
    if (activity.correlation && started_.contains(*activity.correlation)) return true;
    // Of devices also what was asked for between the steps, but not what was before.
    if (lane.kind != "host") {
      const auto call = activity.correlation ? asked_ns_.find(*activity.correlation) : asked_ns_.end();
      const std::int64_t asked_ns = call == asked_ns_.end() ? activity.start_ns : call->second;
      return !scope.step && begin_ns_ <= asked_ns && asked_ns <= last_asked_ns_;
    }
    // A step that has no number is none of the traced ones.
    const bool is_step = names.kind(activity) == "range" && names.text(activity) == kStepRange;
    return !is_step && activity.start_ns < end_ns_ && activity.end_ns > begin_ns_;
  };
  std::unordered_map<std::int64_t, const record::Lane*> lanes;
  std::size_t impossible = 0;
  for (const record::Activity& activity : run_.activities) {
    if (!has_possible_times(activity.start_ns, activity.end_ns)) {
      ++impossible;
      continue;
    }
    const std::string& kind = names.kind(activity);
    const record::Lane*& lane = lanes[activity.lane];
    if (lane == nullptr) lane = lane_of(activity.lane);
    if (kind == "sample" || !is_wanted(activity, *lane)) continue;  // samples are in flame graphs
    const auto own =
        kind == "range" && activity.step ? number_in(activity.extra, R"("name":)") : std::nullopt;
    events_.push_back({.kind = kind.empty() ? std::string_view("unknown") : kind,
                       .name = names.text(activity),
                       .own_name = own ? names.text(record::Activity{.name = *own}) : std::string_view(),
                       .lane = lane,
                       .start_ns = activity.start_ns,
                       .end_ns = activity.end_ns,
                       .correlation = activity.correlation,
                       .bytes = activity.bytes,
                       .step = activity.step,
                       .op = activity.op ? run_.find_op(*activity.op) : nullptr,
                       .extra = activity.extra});
  }
  if (impossible > 0) {
    notes_.push_back(fmt::format(
        "{} activities have impossible times (an end before the start, or beyond 36 years): they are "
        "left out",
        impossible));
  }
}

/// What launched the work of a step lies within the step of the host, where others' tools look for it. Where
/// the record has that range, its times are shown instead of those on the device's clock.
void Trace::show_steps_of_the_host(const FirstCalls& first_calls) {
  std::map<const record::Lane*, std::map<std::int64_t, std::int64_t>> steps;  // of each thread, by first call
  for (const auto& [key, call_ns] : first_calls) steps[key.second][call_ns] = key.first;
  std::map<std::pair<std::int64_t, const record::Lane*>, std::size_t> shown;
  for (std::size_t i = 0; i < events_.size(); ++i) {
    const TraceEvent& event = events_[i];
    if (event.kind == "range" && event.name == kStepRange && event.step) shown[{*event.step, event.lane}] = i;
  }
  std::set<const TraceEvent*> replaced;
  for (const TraceEvent& event : events_) {
    if (event.kind != "range" || event.step || !is_step_of_host(event.name)) continue;
    const auto& of_thread = steps[event.lane];
    const auto first = of_thread.lower_bound(event.start_ns);
    if (first == of_thread.end() || first->first > event.end_ns) continue;
    const auto step = shown.find({first->second, event.lane});
    if (step == shown.end()) continue;
    events_[step->second].start_ns = event.start_ns;
    events_[step->second].end_ns = event.end_ns;
    if (event.name != kHostStep) events_[step->second].own_name = event.name;
    replaced.insert(&event);
  }
  std::size_t kept = 0;
  for (const TraceEvent& event : events_) {
    if (!replaced.contains(&event)) events_[kept++] = event;
  }
  events_.resize(kept);
}

/// A step begins with the first call that launched its work, where that is on its thread and no other step
/// is: the replay of a graph may be held until the step is timed, and tools look for calls within ranges.
void Trace::begin_steps_with_their_calls() {
  std::unordered_map<std::int64_t, const TraceEvent*> calls;
  for (const TraceEvent& event : events_) {
    if (event.kind == "api" && event.correlation) calls.emplace(*event.correlation, &event);
  }
  FirstCalls first_calls;
  for (const TraceEvent& event : events_) {
    if (!event.step || !event.correlation || !is_device_work(event)) continue;
    const auto call = calls.find(*event.correlation);
    if (call == calls.end()) continue;
    std::int64_t& first =
        first_calls.try_emplace({*event.step, call->second->lane}, kMostTraceTime).first->second;
    first = std::min(first, call->second->start_ns);
  }
  show_steps_of_the_host(first_calls);
  const ActivityNames names(run_);
  std::map<std::int64_t, std::vector<std::int64_t>> ends;  // of all steps of each lane
  for (const record::Activity& activity : run_.activities) {
    if (activity.step && names.kind(activity) == "range" && names.text(activity) == kStepRange)
      ends[activity.lane].push_back(activity.end_ns);
  }
  for (auto& [lane, of_lane] : ends) std::ranges::sort(of_lane);
  for (TraceEvent& event : events_) {
    if (event.kind != "range" || event.name != kStepRange || !event.step) continue;
    const auto first = first_calls.find({*event.step, event.lane});
    if (first == first_calls.end() || first->second >= event.start_ns) continue;
    const std::vector<std::int64_t>& of_lane = ends[event.lane->lane];
    const auto after = std::ranges::upper_bound(of_lane, event.start_ns);
    const std::int64_t before = after == of_lane.begin() ? -kMostTraceTime : *std::prev(after);
    event.start_ns = std::min(event.start_ns, std::max(first->second, before));
  }
}

/// One event per execution of an op. What a GPU was told to do begins no earlier than what it was told before
/// has ended.
void Trace::take_ops(std::optional<std::int64_t> step) {
  std::map<std::string, const record::Lane*> lanes;
  std::map<const record::Lane*, std::int64_t> ends;
  for (const record::Event& event : run_.events) {
    const TimedOp* op = run_.find_op(event.op);
    if (op == nullptr || (step && event.step != *step)) continue;
    if (event.device_ns < 0 || event.device_ns >= kMostTraceTime ||
        !has_possible_times(event.start_ns, event.start_ns)) {
      continue;
    }
    const record::Lane*& lane = lanes[op->op.lane];
    if (lane == nullptr) {
      made_lanes_.push_back({.lane = -1 - static_cast<std::int64_t>(lanes.size()),
                             .kind = "host",
                             .device = "cpu",
                             .thread = process_ + static_cast<std::int64_t>(lanes.size()) - 1,
                             .name = op->op.lane == "compute" ? "ops" : "ops, " + op->op.lane});
      lane = &made_lanes_.back();
    }
    std::int64_t& earliest = ends.try_emplace(lane, -kMostTraceTime).first->second;
    const std::int64_t start = std::max(event.start_ns, earliest);
    earliest = start + event.device_ns;
    events_.push_back({.kind = "op",
                       .name = op->op.kind,
                       .lane = lane,
                       .start_ns = start,
                       .end_ns = earliest,
                       .step = event.step,
                       .op = op});
  }
  if (!events_.empty()) {
    notes_.emplace_back("the record holds no activities of a device: what is shown are executions of ops");
  }
}

void Trace::add_recorded_ranges() {
  for (const TraceEvent& event : events_) {
    if (event.kind != "range") continue;
    ranges_.push_back({.name = std::string(event.name),
                       .own_name = event.own_name,
                       .step = event.step,
                       .is_recorded = true,
                       .nvtx = nvtx_of(event),
                       .thread = event.lane,
                       .start_ns = event.start_ns,
                       .end_ns = event.end_ns});
  }
}

/// A range started what was launched within it on its thread; a step all that is of the step, of other
/// threads too, but not of those that have steps of their own: they are other ranks.
void Trace::fill_recorded_ranges() {
  std::map<const record::Lane*, std::vector<std::size_t>> ranges_of;
  std::unordered_map<std::int64_t, std::size_t> step_ranges;
  std::unordered_set<const record::Lane*> threads_with_steps;
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    if (is_step_name(ranges_[i].name)) threads_with_steps.insert(ranges_[i].thread);
    if (ranges_[i].step && ranges_[i].name == kStepRange) {
      step_ranges.emplace(*ranges_[i].step, i);
    } else {
      ranges_of[ranges_[i].thread].push_back(i);
    }
  }
  struct Started {
    std::int64_t call_ns = 0, call_end_ns = 0;
    std::size_t event = 0;
  };
  std::map<const record::Lane*, std::vector<Started>> started;
  for (std::size_t i = 0; i < events_.size(); ++i) {
    if (!is_device_work(events_[i])) continue;
    const TraceEvent* call = call_of(events_[i]);
    if (events_[i].step) {
      const auto range = step_ranges.find(*events_[i].step);
      const bool is_of_it =
          range != step_ranges.end() && (call == nullptr || call->lane == ranges_[range->second].thread ||
                                         !threads_with_steps.contains(call->lane));
      if (is_of_it) ranges_[range->second].work.push_back(i);
    }
    if (call != nullptr) started[call->lane].push_back({call->start_ns, call->end_ns, i});
  }
  for (auto& [lane, launches] : started) {
    const auto here = ranges_of.find(lane);
    if (here == ranges_of.end()) continue;
    std::ranges::stable_sort(launches, {}, &Started::call_ns);
    std::vector<std::size_t> open;
    auto next = here->second.begin();  // ranges stand in the order of their starts
    for (const Started& launch : launches) {
      while (next != here->second.end() && ranges_[*next].start_ns <= launch.call_ns) open.push_back(*next++);
      std::erase_if(open, [&](std::size_t range) { return ranges_[range].end_ns < launch.call_ns; });
      for (const std::size_t range : open) {
        if (launch.call_end_ns <= ranges_[range].end_ns) ranges_[range].work.push_back(launch.event);
      }
    }
  }
  for (TraceRange& range : ranges_) {
    std::ranges::sort(range.work);
    if (!range.own_name.empty()) range.name = range.own_name;
  }
}

/// Phases and ops of steps, from what each event says that it is part of.
void Trace::add_op_ranges() {
  // Phases of ops that ran beside others have a range of their own on their lane.
  std::map<std::tuple<std::int64_t, std::string, const record::Lane*>, TraceRange> phases;
  std::map<std::pair<std::int64_t, std::int64_t>, TraceRange> ops;
  // Of each call (by place in calls_): the op that it launched kernels of, -1 none yet, -2 several.
  std::vector<std::int64_t> owners(calls_.size(), -1);
  for (std::size_t i = 0; i < events_.size(); ++i) {
    const TraceEvent& event = events_[i];
    const bool is_op = event.kind == "op";
    if ((!is_op && !is_device_work(event)) || event.op == nullptr || !event.step) continue;
    const record::Op& op = event.op->op;
    const auto include = [&](TraceRange& range) {
      range.step = event.step;
      range.start_ns =
          range.work.empty() && range.end_ns == 0 ? event.start_ns : std::min(range.start_ns, event.start_ns);
      range.end_ns = std::max(range.end_ns, event.end_ns);
      if (is_op) {
        range.thread = event.lane;
      } else {
        range.work.push_back(i);
      }
    };
    TraceRange& phase = phases[{*event.step, op.phase, is_op ? event.lane : nullptr}];
    phase.name = op.phase;
    include(phase);
    TraceRange& part = ops[{*event.step, op.op}];
    part.name = op.phase + "/" + event.op->part;
    part.op = event.op;
    include(part);
    if (!event.correlation) continue;
    auto call =
        std::ranges::lower_bound(calls_, *event.correlation, {}, [](const auto& one) { return one.first; });
    if (call == calls_.end() || call->first != *event.correlation) continue;
    std::int64_t& owner = owners[static_cast<std::size_t>(call - calls_.begin())];
    owner = owner == -1 || owner == op.op ? op.op : -2;
  }
  for (auto& [key, range] : phases) ranges_.push_back(std::move(range));
  for (auto& [key, range] : ops) {
    if (!range.work.empty()) place_on_thread(range, owners);
    ranges_.push_back(std::move(range));
  }
}

/// Where each call that launched work of an op launched that of no other, the thread saw the op.
void Trace::place_on_thread(TraceRange& range, const std::vector<std::int64_t>& owners) const {
  std::int64_t start = kMostTraceTime;
  std::int64_t end = -kMostTraceTime;
  const record::Lane* thread = nullptr;
  for (const std::size_t event : range.work) {
    const TraceEvent* call = call_of(events_[event]);
    if (call == nullptr) return;
    const auto place =
        std::ranges::lower_bound(calls_, *call->correlation, {}, [](const auto& one) { return one.first; });
    if (owners[static_cast<std::size_t>(place - calls_.begin())] != range.op->op.op) return;
    if (thread != nullptr && thread != call->lane) return;
    thread = call->lane;
    start = std::min(start, call->start_ns);
    end = std::max(end, call->end_ns);
  }
  range.thread = thread;
  range.start_ns = start;
  range.end_ns = end;
}

/// Levels and children, for each thread and for each step of ranges that no thread saw. An op lies in its own
/// phase, beside which others may run, and phases in nothing but what the program marked.
void Trace::nest_ranges() {
  std::ranges::stable_sort(ranges_, [](const TraceRange& a, const TraceRange& b) {
    return starts_before(a.start_ns, a.end_ns, b.start_ns, b.end_ns);
  });
  std::map<const record::Lane*, std::vector<TraceRange*>> open;
  for (TraceRange& range : ranges_) {
    std::vector<TraceRange*>& around = open[range.thread];
    std::erase_if(around, [&](const TraceRange* other) { return other->end_ns <= range.start_ns; });
    const auto parent = std::find_if(around.rbegin(), around.rend(), [&](const TraceRange* other) {
      const bool is_own_phase = range.op != nullptr && other->op == nullptr && other->step == range.step &&
                                other->name == range.op->op.phase;
      return other->end_ns >= range.end_ns && (other->is_recorded || is_own_phase);
    });
    if (parent != around.rend()) {
      range.level = (*parent)->level + 1;
      ++(*parent)->children;
    }
    around.push_back(&range);
  }
}

}  // namespace rooflm::report
