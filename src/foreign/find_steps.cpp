// The steps of somebody's training loop: which of the device's work is of which, and from when to when they
// last.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/statistics.h"
#include "core/stretches.h"
#include "core/units.h"
#include "foreign/device_work.h"
#include "foreign/foreign_run.h"
#include "foreign/step_candidates.h"
#include "foreign/step_ranges.h"
#include "inject/stream_format.h"

namespace rooflm::foreign {
namespace {

static_assert(std::string_view(record::kTimedStep) == inject::kTimedStep, "records keep the name of streams");

constexpr std::string_view kStep = "step";  // what records call it
constexpr double kSlowStep = 10;            // medians: a step that is longer is named

using Places = std::vector<std::optional<std::size_t>>;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kAlways = std::numeric_limits<std::int64_t>::min();

/// From when to when steps last on the device's clock.
class StepIntervals {
 public:
  StepIntervals(const std::vector<Launched>& work, const std::vector<HostStep>& steps, const Places& places)
      : work_(work), steps_(steps), places_(places), parts_(steps.size()) {
    for (std::size_t i = 0; i < work.size(); ++i) {
      done_ns_.push_back(std::max(done_ns_.empty() ? kAlways : done_ns_.back(), work[i].end_ns));
      if (!places[i]) continue;
      Part& part = parts_[*places[i]];
      part.work.push_back(i);
      part.first_work_ns = std::min(part.first_work_ns, work[i].start_ns);
      if (!work[i].is_kernel) continue;
      part.kernel_ns += work[i].kernel_ns;
      part.first_kernel_ns = std::min(part.first_kernel_ns, work[i].start_ns);
    }
    find_ends();
    find_gaps();
  }

  /// Start and end of each; the same where nothing is left of it.
  [[nodiscard]] std::vector<std::pair<std::int64_t, std::int64_t>> take() const {
    std::vector<std::pair<std::int64_t, std::int64_t>> spans;
    for (std::size_t n = 0; n < steps_.size(); ++n) {
      const std::int64_t before_ns = n == 0 ? kAlways : spans.back().second;
      const HostStep& step = steps_[n];
      if (step.is_exact) {
        std::int64_t start_ns = std::max(before_ns, step.start_ns);
        // A range that its work outlasts is the host's: the device may have done something else before.
        if (parts_[n].is_first && parts_[n].end_ns.value_or(kAlways) > step.end_ns)
          start_ns = std::max(start_ns, first_start(n));
        spans.emplace_back(start_ns, std::max({start_ns, step.end_ns, parts_[n].end_ns.value_or(kAlways)}));
        continue;
      }
      const std::int64_t start_ns = parts_[n].is_first ? std::max(before_ns, first_start(n)) : before_ns;
      // A step that launched nothing, or after which nothing is known, ends with the host's range, but not
      // after the work of a later one.
      const std::int64_t host_end_ns = std::min(step.end_ns, later_end(n));
      std::int64_t end_ns = parts_[n].end_ns.value_or(host_end_ns);
      if (n + 1 == steps_.size() || parts_[n + 1].is_first) end_ns = std::max(end_ns, host_end_ns);
      spans.emplace_back(start_ns, std::max(start_ns, end_ns));
    }
    return spans;
  }

 private:
  struct Part {
    std::vector<std::size_t> work;
    std::int64_t kernel_ns = 0;
    std::int64_t first_kernel_ns = kNever, first_work_ns = kNever;
    std::optional<std::int64_t> end_ns{};  ///< of its work
    bool is_first = false;                 ///< the step before it is not known
  };

  /// A step ends with its work. What outlasts all work of a later step (a copy on another stream, a
  /// collective that waits) runs beside it, and so does a copy that ends after a later step's first kernel
  /// began.
  void find_ends() {
    std::int64_t later_end_ns = kNever;
    std::int64_t later_kernel_ns = kNever;
    for (std::size_t n = parts_.size(); n-- > 0;) {
      Part& part = parts_[n];
      for (const std::size_t i : part.work) {
        const Launched& one = work_[i];
        const bool is_beside = one.end_ns >= later_end_ns || (!one.is_kernel && one.end_ns > later_kernel_ns);
        if (!is_beside) part.end_ns = std::max(part.end_ns.value_or(kAlways), one.end_ns);
      }
      later_end_ns = std::min(later_end_ns, part.end_ns.value_or(kNever));
      later_kernel_ns = std::min(later_kernel_ns, part.first_kernel_ns);
    }
  }

  /// Where numbers are missing, kernels of nobody's step were launched in between, or the host did something
  /// else for much longer than steps take, the step before is not known. Without a device a step is the
  /// host's range.
  void find_gaps() {
    std::vector<double> kernel_ns, host_ns;
    for (const Part& part : parts_) kernel_ns.push_back(static_cast<double>(part.kernel_ns));
    for (const HostStep& step : steps_) host_ns.push_back(static_cast<double>(step.end_ns - step.start_ns));
    constexpr double kLittle = 0.05;  // of a step
    constexpr double kLong = 5;       // steps: no loading of data, but something else
    const double little_ns = kLittle * core::median(kernel_ns);
    const double long_ns = kLong * core::median(host_ns);
    std::vector<double> between_ns(parts_.size());  // launched since the step before
    std::size_t next = 0;
    for (std::size_t i = 0; i < work_.size(); ++i) {
      if (places_[i]) continue;
      while (next < steps_.size() && steps_[next].start_ns <= work_[i].asked_ns) ++next;
      if (next < steps_.size()) between_ns[next] += static_cast<double>(work_[i].kernel_ns);
    }
    parts_.front().is_first = true;
    for (std::size_t n = 1; n < parts_.size(); ++n) {
      const auto pause_ns = static_cast<double>(steps_[n].start_ns - steps_[n - 1].end_ns);
      const bool is_paused = pause_ns > long_ns && parts_[n - 1].end_ns.value_or(0) <= steps_[n].start_ns;
      parts_[n].is_first = is_paused || work_.empty() || between_ns[n] > little_ns ||
                           steps_[n].number != steps_[n - 1].number + 1;
    }
  }

  /// Of a step after an unknown one: when the host began it, or the device was done with what had been
  /// launched before. Where clocks differ so much that its work ends before that, when its work began.
  [[nodiscard]] std::int64_t first_start(std::size_t n) const {
    std::int64_t start_ns = steps_[n].start_ns;
    if (parts_[n].end_ns && *parts_[n].end_ns <= start_ns) return parts_[n].first_work_ns;
    const auto before = std::ranges::lower_bound(work_, start_ns, {}, &Launched::asked_ns) - work_.begin();
    if (before == 0) return start_ns;
    const std::int64_t end_ns = parts_[n].end_ns.value_or(later_end(n));
    const std::int64_t done_ns = done_ns_[static_cast<std::size_t>(before) - 1];
    if (done_ns < end_ns) return std::max(start_ns, done_ns);
    for (std::ptrdiff_t i = 0; i < before; ++i) {  // some of it outlasts the step
      const std::int64_t one_ns = work_[static_cast<std::size_t>(i)].end_ns;
      if (one_ns < end_ns) start_ns = std::max(start_ns, one_ns);
    }
    return start_ns;
  }

  [[nodiscard]] std::int64_t later_end(std::size_t n) const {
    const auto later = std::find_if(parts_.begin() + static_cast<std::ptrdiff_t>(n) + 1, parts_.end(),
                                    [](const Part& part) { return part.end_ns.has_value(); });
    return later == parts_.end() ? kNever : *later->end_ns;
  }

  const std::vector<Launched>& work_;
  const std::vector<HostStep>& steps_;
  const Places& places_;
  std::vector<Part> parts_;
  std::vector<std::int64_t> done_ns_;  ///< when all work up to a place was done
};

/// A host thread to put steps on, where no call says which.
std::int64_t host_lane(ForeignRun& run, std::int64_t lane) {
  if (run.lane(lane).kind == "host") return lane;
  return run.lane("steps", {.kind = "host", .device = "cpu", .name = "steps"});
}

/// The range that a record's step is: the program's own where it has the same times, else one beside it.
void add_step_range(ForeignRun& run, const HostStep& step, std::pair<std::int64_t, std::int64_t> span) {
  const std::int64_t name = run.name("range", kStep);
  if (step.range) {
    record::Activity& range = run.activities()[*step.range];
    if (std::pair(range.start_ns, range.end_ns) == span) {
      const std::string more = range.extra.size() > 2 ? "," + range.extra.substr(1) : "}";
      range.extra = fmt::format("{{{}{}{}", kNameMember, range.name, more);
      range.name = name;
      range.step = step.number;
      return;
    }
    if (range.name == name) {
      range.name = run.name("range", kHostStep);
      if (step.is_marked) range.extra = fmt::format("{{{}{}}}", kMarkMember, step.number);
    }
  }
  run.add({.name = name,
           .lane = host_lane(run, step.lane),
           .start_ns = span.first,
           .end_ns = span.second,
           .step = step.number});
}

/// How much of the time from the first start to the last end some of them cover.
double busy_share(std::vector<std::pair<std::int64_t, std::int64_t>> spans) {
  const std::vector<core::Stretch> busy = core::covered(std::move(spans));
  if (busy.empty()) return 0;
  return static_cast<double>(core::length_of(busy)) /
         static_cast<double>(busy.back().second - busy.front().first);
}

/// How much of the device's time lies in steps, as a fact and in a sentence.
void say_steps(ForeignRun& run, const Candidate* chosen, const std::string& refused) {
  double all_ns = 0, steps_ns = 0;
  std::size_t outside = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> kernels;
  for (const record::Activity& activity : run.activities()) {
    if (run.name_of(activity).kind != "kernel") continue;
    const auto ns = static_cast<double>(activity.end_ns - activity.start_ns);
    all_ns += ns;
    if (activity.step) {
      steps_ns += ns;
    } else {
      ++outside;
    }
    kernels.emplace_back(activity.start_ns, activity.end_ns);
  }
  std::string text = "none";
  if (chosen != nullptr) {
    text = fmt::format("{} of {}", chosen->steps.size(), chosen->what);
    if (all_ns > 0) {
      text += fmt::format(" ({} each), {:.1f}% of the device's time",
                          core::format_count(chosen->kernels, "kernel"), 100 * steps_ns / all_ns);
      if (outside > 0) text += fmt::format(" ({} outside steps)", core::format_count(outside, "kernel"));
    }
  } else if (run.steps_by.kind != StepsBy::Kind::none) {
    text += refused.empty() ? ": nothing repeats that could be one" : ": " + refused;
  }
  if (all_ns > 0)
    text += fmt::format("; kernels run for {:.1f}% of the time from the first to the last of them",
                        100 * busy_share(kernels));
  run.say("steps: " + text);
  record::Fact fact{.key = "steps", .value = {}, .unit = "share", .text = text};
  if (all_ns > 0) fact.value = steps_ns / all_ns;
  run.add_fact(std::move(fact));
  run.add_fact({.key = "kernels_of_no_step", .value = static_cast<double>(outside), .unit = "", .text = ""});
}

}  // namespace

std::vector<record::Sample> take_timed_steps(ForeignRun& run) {
  std::vector<record::Sample> samples;
  for (record::Activity& activity : run.activities()) {
    const record::ActivityName& name = run.name_of(activity);
    if (name.kind != "range" || name.text != inject::kTimedStep || !activity.step) continue;
    if (activity.end_ns == activity.start_ns) {
      run.count(kStepsWithoutDuration);
      activity.step.reset();
      continue;
    }
    samples.push_back({.step = *activity.step,
                       .phase = "step",
                       .seconds = static_cast<double>(activity.end_ns - activity.start_ns) * 1e-9,
                       .kind = "plain"});
    activity.step.reset();
  }
  return samples;
}

void name_slow_steps(ForeignRun& run, const std::vector<record::Sample>& samples) {
  std::vector<double> seconds;
  const record::Sample* slowest = nullptr;
  for (const record::Sample& sample : samples) {
    if (sample.phase != kStep || sample.kind != "traced") continue;
    seconds.push_back(sample.seconds);
    if (slowest == nullptr || sample.seconds > slowest->seconds) slowest = &sample;
  }
  if (slowest == nullptr) return;
  const double median_s = core::median(seconds);
  const auto slow = std::ranges::count_if(seconds, [&](double s) { return s > kSlowStep * median_s; });
  if (slow == 0) return;
  const std::string text =
      fmt::format("{} step{} longer than {:.0f} times the median of {}; the slowest is step {} with {}", slow,
                  slow == 1 ? " is" : "s are", kSlowStep, core::format_seconds(median_s), slowest->step,
                  core::format_seconds(slowest->seconds));
  run.say(text);
  run.add_fact({.key = "slow_steps", .value = static_cast<double>(slow), .unit = "", .text = text});
}

std::size_t leave_out_steps_ahead(ForeignRun& run, std::vector<record::Sample>& timed) {
  std::map<std::int64_t, std::vector<std::pair<std::int64_t, std::int64_t>>> kernels;  // by step
  for (const record::Activity& activity : run.activities()) {
    if (activity.step && run.name_of(activity).kind == "kernel")
      kernels[*activity.step].emplace_back(activity.start_ns, activity.end_ns);
  }
  std::optional<std::int64_t> least_ns;
  for (auto& [step, times] : kernels) {
    const std::int64_t busy_ns = core::length_of(core::covered(std::move(times)));
    least_ns = std::min(least_ns.value_or(busy_ns), busy_ns);
  }
  if (!least_ns) return 0;
  // Clocks differ between steps, and recording may make kernels longer: not by that much.
  constexpr double kShare = 0.5;
  return std::erase_if(timed, [least_s = kShare * static_cast<double>(*least_ns) * 1e-9](const auto& sample) {
    return sample.seconds < least_s;
  });
}

std::vector<record::Sample> find_steps(ForeignRun& run) {
  const std::vector<Launched> work = device_work(run);
  std::string refused;
  std::optional<Candidate> chosen = choose_steps(run, work, refused);
  const Places places = chosen ? steps_of_work(run, work, chosen->steps) : Places(work.size());
  // Of the host only the step itself: what it did belongs to no step alone.
  for (record::Activity& activity : run.activities()) activity.step.reset();
  std::vector<record::Sample> samples;
  if (!chosen) {
    say_steps(run, nullptr, refused);
    return samples;
  }
  const auto spans = StepIntervals(work, chosen->steps, places).take();
  std::vector<bool> is_empty(spans.size());
  for (std::size_t n = 0; n < spans.size(); ++n) {
    is_empty[n] = spans[n].second <= spans[n].first;
    if (is_empty[n]) {
      run.count(kStepsWithoutDuration);
      continue;
    }
    add_step_range(run, chosen->steps[n], spans[n]);
    samples.push_back({.step = chosen->steps[n].number,
                       .phase = "step",
                       .seconds = static_cast<double>(spans[n].second - spans[n].first) * 1e-9,
                       .kind = "traced"});
  }
  for (std::size_t i = 0; i < work.size(); ++i) {
    if (places[i] && !is_empty[*places[i]])
      run.activities()[work[i].activity].step = chosen->steps[*places[i]].number;
  }
  say_steps(run, &*chosen, refused);
  return samples;
}

}  // namespace rooflm::foreign
