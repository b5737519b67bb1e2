// Where the time of a traced step went.
#include "report/model/device_times.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/statistics.h"
#include "core/stretches.h"
#include "core/units.h"
#include "report/model/host_stacks.h"
#include "report/model/kernel_names.h"
#include "report/model/summaries.h"
#include "report/runs/match_runs.h"

namespace rooflm::report {
namespace {

struct Interval {
  std::int64_t start_ns = 0, end_ns = 0;
};

/// Intervals in order, those that touch joined.
std::vector<Interval> joined(const std::vector<Interval>& all) {
  std::vector<core::Stretch> stretches;
  for (const Interval& one : all) stretches.emplace_back(one.start_ns, one.end_ns);
  std::vector<Interval> result;
  for (const auto& [start_ns, end_ns] : core::covered(std::move(stretches)))
    result.push_back({start_ns, end_ns});
  return result;
}

/// Splits `whole` where the joined intervals `cover` it: first what is covered, then what is not.
std::pair<std::vector<Interval>, std::vector<Interval>> split(const std::vector<Interval>& whole,
                                                              std::span<const Interval> cover) {
  std::pair<std::vector<Interval>, std::vector<Interval>> parts;
  for (const Interval& one : whole) {
    std::int64_t at = one.start_ns;
    auto next =
        std::lower_bound(cover.begin(), cover.end(), at,
                         [](const Interval& interval, std::int64_t time) { return interval.end_ns <= time; });
    for (; next != cover.end() && next->start_ns < one.end_ns; ++next) {
      if (next->start_ns > at) parts.second.push_back({at, next->start_ns});
      const Interval inside{std::max(at, next->start_ns), std::min(one.end_ns, next->end_ns)};
      if (inside.end_ns > inside.start_ns) parts.first.push_back(inside);
      at = std::max(at, inside.end_ns);
    }
    if (at < one.end_ns) parts.second.push_back({at, one.end_ns});
  }
  return parts;
}

/// What happened in one step, by index into the activities of the run.
struct StepParts {
  std::vector<std::size_t> kernels;
  std::size_t own = 0;  ///< kernels that the step launched: others may run in it
  std::vector<Interval> copies, waits;
};

/// Takes the steps of a run apart, one after the other.
class StepTimer {
 public:
  StepTimer(const RunData& run, std::string_view device) : run_(&run), names_(run) {
    for (const record::Lane& lane : run.lanes) {
      if (!device.empty() && lane.kind == "device" && lane.device != device) others_.insert(lane.lane);
    }
    // About as many as there are kernels.
    calls_.reserve(run.activities.size() / 2);
    times_.idle.reserve(run.activities.size() / 2);
    times_.kernels.reserve(run.activities.size() / 2);
    for (std::size_t i = 0; i < run.activities.size(); ++i) sort_in(i);
    all_overheads_ = joined(all_overheads_);
    for (const record::Sample& sample : run.samples) {
      if (sample.phase == kStep) {
        walls_[sample.step] = {sample.kind, sample.seconds};
      } else if (sample.phase != kSubmit && sample.phase != kDeviceWait) {
        events_[sample.step] += sample.seconds;
      }
    }
  }

  DeviceTimes take() {
    const bool has_kernels =
        std::ranges::any_of(ranges_, [&](const auto& step) { return !parts_[step.first].kernels.empty(); });
    for (auto& [number, parts] : parts_) parts.own = parts.kernels.size();
    if (!has_kernels && parts_.contains(kWholeRecording)) {
      take_whole();
    } else if (is_foreign(run_->run)) {
      add_neighbours();
    }
    for (const auto& [number, range] : ranges_) {
      DeviceStep step{.step = number, .begin_ns = range.start_ns, .end_ns = range.end_ns};
      if (const auto wall = walls_.find(number); wall != walls_.end()) {
        step.kind = wall->second.first;
        step.wall_s = wall->second.second;
      }
      if (number == kWholeRecording) step.kind = kTraced;
      if (step.kind == kAllocations || step.kind == kInputs || step.kind == kWarmup) continue;
      if (const auto event = events_.find(number); event != events_.end()) step.event_s = event->second;
      time_step(step, parts_[number]);
      times_.steps.push_back(std::move(step));
    }
    find_stalls();
    if (!std::ranges::is_sorted(times_.kernels, {}, &KernelOfStep::first)) {
      std::ranges::stable_sort(times_.kernels, {}, &KernelOfStep::first);
    }
    join_parts();
    return std::move(times_);
  }

 private:
  using KernelOfStep = std::pair<std::size_t, KernelTime>;

  /// A program's host may run ahead, so that kernels and copies of one step run in the time of the next:
  /// there they keep the device busy.
  void add_neighbours() {
    const auto& activities = run_->activities;
    std::ranges::sort(all_work_, {}, [&](std::size_t i) { return activities[i].start_ns; });
    std::vector<std::int64_t> latest_ns;  // the last end up to each
    for (const std::size_t i : all_work_) {
      latest_ns.push_back(
          std::max(latest_ns.empty() ? activities[i].end_ns : latest_ns.back(), activities[i].end_ns));
    }
    for (const auto& [number, range] : ranges_) {
      StepParts& parts = parts_[number];
      const auto first = std::ranges::upper_bound(latest_ns, range.start_ns) - latest_ns.begin();
      for (auto at = static_cast<std::size_t>(first); at < all_work_.size(); ++at) {
        const record::Activity& activity = activities[all_work_[at]];
        if (activity.start_ns >= range.end_ns) break;
        if (activity.step == number || activity.end_ns <= range.start_ns) continue;
        if (names_.is_kernel(activity)) {
          parts.kernels.push_back(all_work_[at]);
        } else {
          parts.copies.push_back({activity.start_ns, activity.end_ns});
        }
      }
    }
  }

  /// A kernel that ran in several steps has its time of all of them.
  void join_parts() {
    std::vector<KernelOfStep> joined;
    joined.reserve(times_.kernels.size());
    for (const KernelOfStep& one : times_.kernels) {
      if (joined.empty() || joined.back().first != one.first) {
        joined.push_back(one);
        continue;
      }
      KernelTime& known = joined.back().second;
      known.exclusive_ns += one.second.exclusive_ns;
      known.shared_ns += one.second.shared_ns;
      known.charged_ns += one.second.charged_ns;
      if (!known.beside) known.beside = one.second.beside;
    }
    times_.kernels = std::move(joined);
  }

  /// Whether a kernel is not within its step. Of a program's step it may begin before, on another stream, and
  /// it may outlast the step after it, too; it does not end between the two.
  [[nodiscard]] bool is_outside(const DeviceStep& step, const record::Activity& kernel) const {
    if (!is_foreign(run_->run)) return kernel.start_ns < step.begin_ns || kernel.end_ns > step.end_ns;
    if (kernel.end_ns <= step.end_ns) return false;
    const auto next = ranges_.upper_bound(step.step);
    return next == ranges_.end() || kernel.end_ns < next->second.end_ns;
  }

  /// No kernel has a step: all that the device did is taken apart at once.
  void take_whole() {
    const StepParts& parts = parts_.at(kWholeRecording);
    if (parts.kernels.empty()) return;
    DeviceStep whole;
    find_ends(whole, parts);
    if (whole.last_ns <= whole.first_ns) return;
    ranges_ = {{kWholeRecording, {whole.first_ns, whole.last_ns}}};
  }

  void sort_in(std::size_t index) {
    const record::Activity& activity = run_->activities[index];
    if (others_.contains(activity.lane)) return;
    const auto [known, is_new_name] = sorts_.try_emplace(activity.name, Sort::other);
    if (is_new_name) known->second = sort_of(activity);
    const Sort sort = known->second;
    const Interval interval{activity.start_ns, activity.end_ns};
    if (sort == Sort::overhead) {  // of the profiler, whatever step it falls in
      all_overheads_.push_back(interval);
    }
    if (sort == Sort::call && activity.correlation) {
      launching_.insert(activity.lane);
      const auto [entry, is_new] = calls_.try_emplace(*activity.correlation, interval);
      if (!is_new) {  // the outer of two calls
        entry->second.start_ns = std::min(entry->second.start_ns, interval.start_ns);
        entry->second.end_ns = std::max(entry->second.end_ns, interval.end_ns);
      }
    }
    if (sort == Sort::kernel || sort == Sort::copy) all_work_.push_back(index);
    StepParts& parts = parts_[activity.step.value_or(kWholeRecording)];
    if (sort == Sort::kernel) {
      parts.kernels.push_back(index);
    } else if (sort == Sort::copy) {
      parts.copies.push_back(interval);
    } else if (sort == Sort::wait) {
      parts.waits.push_back(interval);
    } else if (sort == Sort::step && activity.step) {
      ranges_[*activity.step] = interval;
    }
  }

  /// What an activity is here.
  enum class Sort : std::uint8_t { kernel, copy, wait, step, call, overhead, other };
  [[nodiscard]] Sort sort_of(const record::Activity& activity) const {
    const std::string& kind = names_.kind(activity);
    if (names_.is_kernel(activity)) return Sort::kernel;
    if (names_.is_copy(activity)) return Sort::copy;
    if (kind == "sync") return Sort::wait;
    if (kind == "range" && names_.text(activity) == kStepRange) return Sort::step;
    if (kind == "api") return Sort::call;
    return kind == "overhead" ? Sort::overhead : Sort::other;
  }

  void time_step(DeviceStep& step, StepParts& parts) {
    const auto& activities = run_->activities;
    std::ranges::sort(parts.kernels, {}, [&](std::size_t i) { return activities[i].start_ns; });
    step.kernels = parts.own;
    first_ = times_.kernels.size();
    for (const std::size_t i : parts.kernels) {
      times_.kernels.push_back({i,
                                {.duration_ns = activities[i].end_ns - activities[i].start_ns,
                                 .is_collective = is_collective(activities[i])}});
      if (activities[i].step == step.step && is_outside(step, activities[i])) ++times_.outside;
    }
    find_ends(step, parts);
    share_time(step, parts.kernels);
    find_idle(step, parts);
  }

  void find_ends(DeviceStep& step, const StepParts& parts) const {
    std::vector<Interval> work = parts.copies;
    for (const std::size_t i : parts.kernels) {
      work.push_back({run_->activities[i].start_ns, run_->activities[i].end_ns});
    }
    work = joined(work);
    step.first_ns = work.empty() ? step.end_ns : work.front().start_ns;
    step.last_ns = work.empty() ? step.end_ns : work.back().end_ns;
  }

  [[nodiscard]] bool is_collective(const record::Activity& activity) {
    const auto [known, is_new] = collectives_.try_emplace(activity.name, false);
    if (is_new) {
      known->second = names_.kind(activity) == kCollectiveClass ||
                      parse_kernel_name(names_.text(activity)).kernel_class == kCollectiveClass;
    }
    return known->second;
  }

  /// A kernel that runs, and how much time one kernel alone and several together had taken when it began;
  /// charged: what each kernel of its sort had taken, as of charged_.
  struct Running {
    std::size_t kernel = 0, place = 0;  ///< among activities, among times_.kernels
    double alone_ns = 0, together_ns = 0, charged_ns = 0;
  };

  /// A sweep over the starts and ends of the kernels, within the range of the step.
  void share_time(DeviceStep& step, const std::vector<std::size_t>& kernels) {
    std::multimap<std::int64_t, Running> running;  // by their ends
    double alone_ns = 0;
    double together_ns = 0;               // each moment divided by how many ran
    std::array<double, 2> charged_ns{};   // of each kernel that computes, of each collective
    std::array<std::size_t, 2> counts{};  // that run
    std::int64_t at = step.begin_ns;
    beside_.clear();
    const auto advance = [&](std::int64_t until) {
      const std::int64_t to = std::min(until, step.end_ns);
      if (to <= at) return;
      const auto span = static_cast<double>(to - at);
      if (running.size() == 1) {
        alone_ns += span;
        step.exclusive_s += span * core::kNano;
      } else if (running.size() > 1) {
        together_ns += span / static_cast<double>(running.size());
        step.shared_s += span * core::kNano;
        count_beside(running, to - at);
      }
      if (counts[0] > 0) {
        charged_ns[0] += span / static_cast<double>(counts[0]);
      } else if (counts[1] > 0) {
        charged_ns[1] += span / static_cast<double>(counts[1]);
        step.exposed_s += span * core::kNano;
        times_.exposed.push_back({step.step, at, to, running.begin()->second.kernel});
      }
      at = to;
    };
    const auto end_until = [&](std::int64_t time) {
      while (!running.empty() && running.begin()->first <= time) {
        advance(running.begin()->first);
        const Running& done = running.begin()->second;
        KernelTime& kernel = times_.kernels[done.place].second;
        kernel.exclusive_ns = std::llround(alone_ns - done.alone_ns);
        kernel.shared_ns = together_ns - done.together_ns;
        kernel.charged_ns = charged_ns.at(kernel.is_collective ? 1 : 0) - done.charged_ns;
        --counts.at(kernel.is_collective ? 1 : 0);
        running.erase(running.begin());
      }
    };
    for (std::size_t n = 0; n < kernels.size(); ++n) {
      const record::Activity& activity = run_->activities[kernels[n]];
      end_until(activity.start_ns);
      advance(activity.start_ns);
      const std::size_t sort = times_.kernels[first_ + n].second.is_collective ? 1 : 0;
      ++counts.at(sort);
      running.emplace(activity.end_ns, Running{.kernel = kernels[n],
                                               .place = first_ + n,
                                               .alone_ns = alone_ns,
                                               .together_ns = together_ns,
                                               .charged_ns = charged_ns.at(sort)});
    }
    end_until(std::numeric_limits<std::int64_t>::max());
    std::map<std::size_t, std::int64_t> longest;
    for (const auto& [pair, span] : beside_) {
      std::int64_t& most = longest[pair.first];
      if (span <= most) continue;
      most = span;
      times_.kernels[pair.first].second.beside = pair.second;
    }
  }

  /// Who runs beside whom. A device runs at most 128 kernels at once; a record that says otherwise is not
  /// worth the time.
  void count_beside(const std::multimap<std::int64_t, Running>& running, std::int64_t span_ns) {
    constexpr std::size_t kMost = 128;
    if (running.size() > kMost) return;
    for (const auto& [end, one] : running) {
      for (const auto& [other_end, other] : running) {
        if (one.kernel != other.kernel) beside_[{one.place, other.kernel}] += span_ns;
      }
    }
  }

  /// What lies between the kernels, cause by cause.
  void find_idle(DeviceStep& step, StepParts& parts) {
    parts.copies = joined(parts.copies);
    parts.waits = joined(parts.waits);
    std::int64_t at = step.begin_ns;
    std::optional<std::size_t> before;  // the last kernel of the program that began
    for (const std::size_t i : parts.kernels) {
      const record::Activity& activity = run_->activities[i];
      if (activity.start_ns > at)
        add_gap(step, parts, {at, std::min(activity.start_ns, step.end_ns)}, before, i);
      if (activity.end_ns > at) at = std::min(activity.end_ns, step.end_ns);
      if (is_of_program(activity)) before = i;
    }
    if (at < step.end_ns) add_gap(step, parts, {at, step.end_ns}, before, std::nullopt);
  }

  /// Marks that the backend sets before the first op is submitted are no beginning of the work.
  [[nodiscard]] bool is_of_program(const record::Activity& activity) const {
    return run_->ops.empty() || activity.op.has_value();
  }

  void add_gap(DeviceStep& step, const StepParts& parts, Interval gap, std::optional<std::size_t> before,
               std::optional<std::size_t> next) {
    const auto add = [&](const std::vector<Interval>& spans, IdleCause cause, bool is_unexplained = false) {
      for (const Interval& span : spans) {
        times_.idle.push_back({.step = step.step,
                               .start_ns = span.start_ns,
                               .end_ns = span.end_ns,
                               .cause = cause,
                               .next = next,
                               .is_unexplained = is_unexplained});
        step.idle_s.at(static_cast<std::size_t>(cause)) +=
            static_cast<double>(span.end_ns - span.start_ns) * core::kNano;
      }
    };
    const std::int64_t from = std::max(gap.start_ns, step.first_ns);
    const std::int64_t to = std::min(gap.end_ns, step.last_ns);
    step.idle_within_s += to > from ? static_cast<double>(to - from) * core::kNano : 0;
    const auto [copied, rest] = split({gap}, parts.copies);
    add(copied, IdleCause::copy);
    if (!next) {
      const auto [waited, done] = split(rest, parts.waits);
      add(waited, IdleCause::sync);
      return add(done, IdleCause::sync, true);
    }
    const Interval host{gap.start_ns, asked_for_until(gap, before, *next)};
    const auto [late, ready] = split(rest, std::span(&host, host.end_ns > host.start_ns ? 1 : 0));
    const bool is_unknown = is_foreign(run_->run) && call_of(*next) == nullptr;
    for (const Interval& span : ready) {
      const bool is_long = span.end_ns - span.start_ns > kLeastStallNs;
      add({span}, is_unknown ? IdleCause::unknown : is_long ? IdleCause::queued : IdleCause::dependency);
    }
    const auto [traced, other] = split(late, all_overheads_);
    add(traced, IdleCause::tracing);
    const auto [waited, host_late] = split(other, parts.waits);
    add(waited, IdleCause::sync);
    add(host_late, IdleCause::host);
  }

  /// Outliers among the gaps in which the host was late, or was done with the step, are no launches. What
  /// passes within the call that launches the next kernel is launching, however long it takes.
  void find_stalls() {
    std::vector<double> gaps;
    for (const Idle& idle : times_.idle) {
      if (idle.cause == IdleCause::host) gaps.push_back(static_cast<double>(idle.end_ns - idle.start_ns));
    }
    const double usual_ns = gaps.empty() ? 0 : core::median(gaps);
    const std::int64_t least_ns =
        std::clamp(static_cast<std::int64_t>(usual_ns * kStallFactor), kLeastStallNs, kMostLaunchNs);
    const std::size_t known = times_.idle.size();
    const RecorderSamples samples(*run_, launching_);
    for (std::size_t i = 0; i < known; ++i) {
      Idle& idle = times_.idle[i];
      if (idle.cause != IdleCause::host && !idle.is_unexplained) continue;
      const Interval* const call = idle.next ? call_of(*idle.next) : nullptr;
      const std::int64_t until =
          call == nullptr ? idle.end_ns : std::clamp(call->start_ns, idle.start_ns, idle.end_ns);
      if (until - idle.start_ns <= least_ns) continue;
      Idle launch = idle;
      idle.end_ns = launch.start_ns = until;
      const auto step = std::ranges::lower_bound(times_.steps, idle.step, {}, &DeviceStep::step);
      const double seconds = static_cast<double>(until - idle.start_ns) * core::kNano;
      step->idle_s.at(static_cast<std::size_t>(idle.cause)) -= seconds;
      idle.cause = samples.are_most(idle.start_ns, until) ? IdleCause::tracing : IdleCause::stall;
      step->idle_s.at(static_cast<std::size_t>(idle.cause)) += seconds;
      if (launch.end_ns > launch.start_ns) times_.idle.push_back(launch);
    }
    if (times_.idle.size() > known) {
      std::ranges::stable_sort(times_.idle, {},
                               [](const Idle& idle) { return std::pair(idle.step, idle.start_ns); });
    }
  }

  /// The call that launched the kernel; nullptr where none was recorded.
  [[nodiscard]] const Interval* call_of(std::size_t kernel) const {
    const auto& correlation = run_->activities[kernel].correlation;
    const auto call = correlation ? calls_.find(*correlation) : calls_.end();
    return call == calls_.end() ? nullptr : &call->second;
  }

  /// Until when the host was asking for the kernel that ends a gap: the end of its call. In a graph all
  /// kernels are of one call, and only the first waits for the host. Of the first kernel of one of our steps
  /// it is the whole gap, which the launch takes; where no call was recorded, nothing is the host's but that.
  [[nodiscard]] std::int64_t asked_for_until(Interval gap, std::optional<std::size_t> before,
                                             std::size_t next) const {
    // A step of a program that is not ours begins when the device is done with the one before.
    if (!before && !is_foreign(run_->run)) return gap.end_ns;
    const auto& correlation = run_->activities[next].correlation;
    if (before && run_->activities[*before].correlation == correlation) return gap.start_ns;
    const Interval* const call = call_of(next);
    return call == nullptr ? gap.start_ns : std::clamp(call->end_ns, gap.start_ns, gap.end_ns);
  }

  const RunData* run_;
  ActivityNames names_;
  std::unordered_map<std::int64_t, Sort> sorts_;        ///< by name
  std::unordered_map<std::int64_t, bool> collectives_;  ///< by name
  std::unordered_set<std::int64_t> others_;  ///< lanes of other devices than the one that is asked for
  std::map<std::int64_t, Interval> ranges_;
  std::map<std::int64_t, StepParts> parts_;
  std::unordered_map<std::int64_t, Interval> calls_;
  std::unordered_set<std::int64_t> launching_;  ///< lanes of threads that launched something
  std::map<std::int64_t, std::pair<std::string, double>> walls_;
  std::map<std::int64_t, double> events_;
  std::vector<Interval> all_overheads_;
  std::vector<std::size_t> all_work_;  ///< kernels and copies, whatever step they are of
  /// Of the step that is taken apart: places among times_.kernels and activities, in nanoseconds.
  std::map<std::pair<std::size_t, std::size_t>, std::int64_t> beside_;
  std::size_t first_ = 0;  ///< of its kernels among times_.kernels
  DeviceTimes times_;
};

}  // namespace

double KernelTime::overlap() const {
  if (duration_ns <= 0) return 0;
  return std::max(0.0, 1 - static_cast<double>(exclusive_ns) / static_cast<double>(duration_ns));
}

double DeviceStep::idle_total_s() const { return std::accumulate(idle_s.begin(), idle_s.end(), 0.0); }

std::size_t DeviceTimes::count(std::string_view kind) const {
  return static_cast<std::size_t>(std::ranges::count(steps, kind, &DeviceStep::kind));
}

const DeviceStep* DeviceTimes::find(std::int64_t step) const {
  const auto found = std::ranges::lower_bound(steps, step, {}, &DeviceStep::step);
  return found == steps.end() || found->step != step ? nullptr : &*found;
}

DeviceTimes device_times(const RunData& run, std::string_view device) {
  // The trace of a processor alone has no device that could be idle.
  if (std::ranges::find(run.lanes, "device", &record::Lane::kind) == run.lanes.end()) return {};
  return StepTimer(run, device).take();
}

}  // namespace rooflm::report
