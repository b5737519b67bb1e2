// Laws of time: phases within steps, ops within phases, each op once per observed step.
#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/statistics.h"
#include "core/units.h"
#include "report/model/summaries.h"
#include "report/model/traced_kernels.h"
#include "report/runs/generation.h"
#include "report/verify/laws.h"

namespace rooflm::report {
namespace {

/// What the samples say of one step.
struct Step {
  std::string kind;
  double step_s = 0;
  std::map<std::string, double> phase_s;
};

/// What the events of one observed step add up to.
struct OpSums {
  double wall_s = 0;
  std::map<std::string, double> wall_of_phase_s;
  std::map<std::string, double> device_of_phase_s;
};

/// Differences between parts and wholes, step by step.
struct Gaps {
  std::vector<double> parts_s{};
  std::vector<double> whole_s{};
  void add(double parts, double whole) {
    parts_s.push_back(parts);
    whole_s.push_back(whole);
  }
};

std::map<std::int64_t, Step> steps_of(const record::Reader& record, const record::Run& run, LawBook& laws) {
  std::map<std::int64_t, Step> steps;
  for (const record::Sample& sample : record.rows<record::Sample>(run.id)) {
    laws.positive("samples are positive", fmt::format("step {}, {}", sample.step, sample.phase),
                  sample.seconds, "s");
    if (run.kind == kGeneration) continue;  // of texts, which have no steps
    Step& step = steps[sample.step];
    if (sample.phase == kSubmit) continue;  // within the step, across its phases
    if (sample.phase == kStep) {
      step.step_s = sample.seconds;
      step.kind = sample.kind;
    } else {
      step.phase_s[sample.phase] = sample.seconds;
    }
  }
  return steps;
}

/// Of the step with the least between parts and whole: what is left out of a step is left out of all of them,
/// while what the operating system or other programs took between two clocks is in some, and in a run of a
/// few steps it can be in most.
void check_gap(std::string_view law, const std::string& what, const Gaps& gaps, LawBook& laws) {
  if (gaps.whole_s.empty()) return;
  std::size_t least = 0;
  for (std::size_t i = 1; i < gaps.whole_s.size(); ++i) {
    if (std::abs(gaps.whole_s[i] - gaps.parts_s[i]) < std::abs(gaps.whole_s[least] - gaps.parts_s[least]))
      least = i;
  }
  laws.equal(law, what + ", least gap", gaps.parts_s[least], gaps.whole_s[least], "s", kOutsideOps);
}

void check_phases(const std::map<std::int64_t, Step>& steps, LawBook& laws) {
  constexpr std::string_view kLaw = "phases add up to the step";
  Gaps gaps;
  for (const auto& [number, step] : steps) {
    const bool is_traced =
        step.kind == kTraced || step.kind == kInOrder || step.kind == kAllocations || step.kind == kInputs;
    if (step.phase_s.empty() || is_traced) continue;
    double sum_s = 0;
    for (const auto& [phase, seconds] : step.phase_s) sum_s += seconds;
    laws.at_most(kLaw, fmt::format("step {}", number), sum_s, step.step_s, "s", kClockNoise);
    gaps.add(sum_s, step.step_s);
  }
  check_gap(kLaw, fmt::format("{} steps", gaps.whole_s.size()), gaps, laws);
}

/// Adds up the events step by step, and counts on the way.
class EventSums {
 public:
  EventSums(const std::vector<record::Op>& ops, bool waits, bool is_foreign)
      : waits_(waits), is_foreign_(is_foreign) {
    for (const record::Op& op : ops) ops_.emplace(op.op, &op);
  }

  void add(const record::Event& event, LawBook& laws) {
    const auto found = ops_.find(event.op);
    laws.equal(
        "events belong to ops of the program", [&] { return fmt::format("op {}", event.op); },
        found == ops_.end() ? 1 : 0, 0, "unknown ops", kExact);
    if (found == ops_.end()) return;
    const double device_s = static_cast<double>(event.device_ns) * core::kNano;
    const double wall_s = static_cast<double>(event.wall_ns.value_or(0)) * core::kNano;
    if (!event.wall_ns) without_wall_.insert(event.step);
    if (waits_ && event.wall_ns) {
      const auto what = [&] {
        return fmt::format("step {}, op {} {}", event.step, event.op, found->second->name);
      };
      laws.at_most("an op's device time is within its wall time", what, device_s, wall_s, "s", kClockNoise);
    }
    OpSums& sums = steps_[event.step];
    sums.wall_s += wall_s;
    sums.wall_of_phase_s[found->second->phase] += wall_s;
    // What ran beside others on the host has no wall time, and is in no phase.
    if (!waits_ || event.wall_ns) sums.device_of_phase_s[found->second->phase] += device_s;
    ++count_[event.op];
    ++count_in_step_[event.step];
  }

  void check_counts(const std::map<std::int64_t, Step>& steps, LawBook& laws) const {
    if (steps_.empty()) return;
    std::size_t observed = 0;
    for (const auto& [number, step] : steps) {
      if (!is_observed(step)) continue;
      ++observed;
      const auto count = count_in_step_.find(number);
      laws.equal("every op runs in every observed step", fmt::format("step {}", number),
                 count == count_in_step_.end() ? 0 : static_cast<double>(count->second),
                 static_cast<double>(ops_.size()), "ops", kExact);
    }
    for (const auto& [number, op] : ops_) {
      const auto count = count_.find(number);
      laws.equal("instances of an op are the observed steps", fmt::format("op {} {}", number, op->name),
                 count == count_.end() ? 0 : static_cast<double>(count->second),
                 static_cast<double>(observed), "instances", kExact);
    }
  }

  void check_sums(const std::map<std::int64_t, Step>& steps, LawBook& laws) const {
    Gaps step_gaps;
    std::map<std::string, Gaps> phase_gaps;
    for (const auto& [number, sums] : steps_) {
      const auto step = steps.find(number);
      const bool is_of_observed = step != steps.end() && is_observed(step->second);
      laws.equal("events belong to observed steps", fmt::format("step {}", number), is_of_observed ? 0 : 1, 0,
                 "other steps", kExact);
      if (!is_of_observed) continue;
      const bool has_wall = !without_wall_.contains(number);
      if (has_wall) {
        laws.at_most(kWallLaw, fmt::format("step {}", number), sums.wall_s, step->second.step_s, "s",
                     kClockNoise);
        step_gaps.add(sums.wall_s, step->second.step_s);
      }
      for (const auto& [phase, phase_s] : step->second.phase_s) {
        const std::string what = fmt::format("step {}, {}", number, phase);
        // Kernels of other programs run beside each other: their sum may be more than the time they took.
        if (!is_foreign_) {
          laws.at_most("device times of ops are within their phase", what,
                       value_of(sums.device_of_phase_s, phase), phase_s, "s", kOutsideOps);
        }
        if (has_wall) {
          phase_gaps[phase].add(value_of(sums.wall_of_phase_s, phase), phase_s);
        }
      }
    }
    if (!waits_) return;
    check_gap(kWallLaw, "observed steps", step_gaps, laws);
    for (const auto& [phase, gaps] : phase_gaps) {
      check_gap("wall times of ops add up to their phase", phase, gaps, laws);
    }
  }

 private:
  static constexpr std::string_view kWallLaw = "wall times of ops add up to the step";

  /// Of programs that are not ours, ops are what their traced kernels worked for.
  [[nodiscard]] bool is_observed(const Step& step) const {
    return step.kind == "observed" || (is_foreign_ && step.kind == "traced");
  }

  static double value_of(const std::map<std::string, double>& sums, const std::string& phase) {
    const auto found = sums.find(phase);
    return found == sums.end() ? 0 : found->second;
  }

  bool waits_;  ///< kernels run on the thread that waits for them, so that wall times hold them
  bool is_foreign_;
  std::unordered_map<std::int64_t, const record::Op*> ops_;
  std::map<std::int64_t, OpSums> steps_;
  std::set<std::int64_t> without_wall_;  ///< steps in which somebody did not measure wall times
  std::unordered_map<std::int64_t, std::size_t> count_;
  std::unordered_map<std::int64_t, std::size_t> count_in_step_;
};

}  // namespace

void check_times(const record::Reader& record, const record::Run& run, LawBook& laws) {
  const auto steps = steps_of(record, run, laws);
  // Of a step that did not fit, the forward pass alone may have been timed: there is no whole.
  if (run.status != "oom") check_phases(steps, laws);
  const auto ops = record.rows<record::Op>(run.id);
  EventSums sums(ops, run.config.text("device") == "cpu", run.kind == "foreign");
  for (const record::Event& event : record.rows<record::Event>(run.id)) sums.add(event, laws);
  sums.check_counts(steps, laws);
  sums.check_sums(steps, laws);
}

}  // namespace rooflm::report
