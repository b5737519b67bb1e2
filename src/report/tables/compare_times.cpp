// The times of the runs of a match.
#include "report/tables/compare_times.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <optional>

#include "core/statistics.h"
#include "core/units.h"
#include "record/rows.h"
#include "report/model/common_parts.h"
#include "report/model/kernels.h"
#include "report/model/run_data.h"
#include "report/model/traced_kernels.h"

namespace rooflm::report {
namespace {

void add_samples(const FoundRun& found, Times& times) {
  const auto samples = found.record->rows<record::Sample>(found.run.id);
  // Programs of others are only known as they were recorded, but for steps that were timed alone.
  const auto is_plain_step = [](const record::Sample& one) {
    return one.kind == "plain" && one.phase == kWholeStep;
  };
  const bool has_plain_steps = std::ranges::any_of(samples, is_plain_step);
  for (const std::string_view phase : {kWholeStep, std::string_view("forward"), std::string_view("backward"),
                                       std::string_view("optimizer")}) {
    const bool is_plain = !is_foreign(found.run) || (phase == kWholeStep && has_plain_steps);
    const char* kind = is_plain ? "plain" : "traced";
    for (const record::Sample& sample : samples) {
      if (sample.kind == kind && sample.phase == phase) times.of(sample.phase).push_back(sample.seconds);
    }
  }
}

/// Seconds of each part in each step, and the parts in the order of the program.
struct PartTimes {
  std::vector<std::string> subjects{};
  std::map<std::int64_t, std::vector<double>> seconds_of_step{};

  [[nodiscard]] std::size_t place_of(const std::string& subject) {
    const auto [place, is_new] = places_.try_emplace(subject, subjects.size());
    if (is_new) subjects.push_back(subject);
    return place->second;
  }
  void add(std::int64_t step, std::size_t place, double seconds) {
    std::vector<double>& all = seconds_of_step[step];
    all.resize(std::max(subjects.size(), all.size()));
    all[place] += seconds;
  }

 private:
  std::unordered_map<std::string, std::size_t> places_{};
};

bool is_in(const std::vector<std::string>& kinds, const std::string& kind) {
  return kinds.empty() || std::ranges::find(kinds, kind) != kinds.end();
}

/// Of kernels on the device: what each takes of the traced steps.
PartTimes kernel_times(const FoundRun& found, const std::vector<std::string>& kinds) {
  PartTimes times;
  const RunData run = load_run(*found.record, found.run);
  for (const TracedKernel& kernel : traced_kernels(run).all()) {
    if (kernel.step_kind != kTraced || !kernel.activity->step) continue;
    if (!kinds.empty() && (kernel.op == nullptr || !is_in(kinds, kernel.op->op.kind))) continue;
    const std::string phase = kernel.op == nullptr ? std::string(kWholeStep) : kernel.op->op.phase;
    times.add(*kernel.activity->step, times.place_of(phase + "/" + kernel.name->short_name), kernel.part_s());
  }
  return times;
}

/// Of ops in observed steps, by what `name` calls their part.
PartTimes op_times(const FoundRun& found, const std::vector<std::string>& kinds,
                   const std::function<std::string(const record::Op&)>& name) {
  PartTimes times;
  std::unordered_map<std::int64_t, std::size_t> place_of_op;
  for (const record::Op& op : found.record->rows<record::Op>(found.run.id)) {
    if (is_in(kinds, op.kind)) place_of_op[op.op] = times.place_of(op.phase + "/" + name(op));
  }
  for (const record::Event& event : found.record->rows<record::Event>(found.run.id)) {
    const auto place = place_of_op.find(event.op);
    if (place != place_of_op.end())
      times.add(event.step, place->second, static_cast<double>(event.device_ns) * core::kNano);
  }
  return times;
}

/// Layers are added up. Of programs by different authors (`is_across`) the parts that both have.
PartTimes part_times(const FoundRun& found, bool is_across, Parts parts,
                     const std::vector<std::string>& kinds) {
  if (is_across) {
    const auto common = common_parts(found.record->rows<record::Op>(found.run.id));
    return op_times(found, kinds, [&](const record::Op& op) { return common.at(op.op); });
  }
  if (parts == Parts::blocks)
    return op_times(found, kinds, [](const record::Op& op) { return block_of(op.scope); });
  if (parts == Parts::ops)
    return op_times(found, kinds, [](const record::Op& op) { return part_of(op.scope); });
  PartTimes times = kernel_times(found, kinds);
  return times.seconds_of_step.empty() ? op_times(found, kinds, kernel_name) : times;
}

/// Adds the parts; `is_across`: and what the step takes beyond all of them.
void add_parts(const FoundRun& found, bool is_across, Parts parts, const std::vector<std::string>& kinds,
               Times& times) {
  PartTimes of_parts = part_times(found, is_across, parts, kinds);
  for (auto& [step, seconds] : of_parts.seconds_of_step) {
    seconds.resize(of_parts.subjects.size());
    for (std::size_t i = 0; i < seconds.size(); ++i) times.of(of_parts.subjects[i]).push_back(seconds[i]);
  }
  if (!is_across || !kinds.empty() || times.find(std::string(kWholeStep)) == nullptr) return;
  const std::vector<double> steps = times.of(std::string(kWholeStep));
  if (steps.empty()) return;  // of another run
  const double step_s = core::median(steps);
  for (const auto& [step, seconds] : of_parts.seconds_of_step) {
    const double inside_s = std::accumulate(seconds.begin(), seconds.end(), 0.0);
    if (inside_s < step_s) times.of(std::string(kOutsideKernels)).push_back(step_s - inside_s);
  }
}

/// Seconds of a step by op, the first run's; empty where no op was timed.
std::map<std::string, double> seconds_by_op(const std::vector<FoundRun>& runs) {
  std::map<std::string, double> seconds;
  for (const FoundRun& found : runs) {
    const PartTimes times = part_times(found, false, Parts::ops, {});
    if (times.seconds_of_step.empty()) continue;
    for (const auto& [step, of_step] : times.seconds_of_step) {
      for (std::size_t i = 0; i < of_step.size(); ++i) seconds[times.subjects[i]] += of_step[i];
    }
    break;
  }
  return seconds;
}

/// Whether `others` has what takes nearly all of the time.
bool has_most(const std::map<std::string, double>& seconds, const std::map<std::string, double>& others) {
  constexpr double kNearlyAll = 0.9;
  double all_s = 0;
  double common_s = 0;
  for (const auto& [subject, s] : seconds) {
    all_s += s;
    if (others.contains(subject)) common_s += s;
  }
  return common_s >= kNearlyAll * all_s;
}

}  // namespace

Parts parts_of_both(const RunMatch& match, Parts asked) {
  if (asked != Parts::automatic) return asked;
  const auto a = seconds_by_op(match.a);
  const auto b = seconds_by_op(match.b);
  if (a.empty() && b.empty()) return Parts::kernels;
  return has_most(a, b) && has_most(b, a) ? Parts::ops : Parts::blocks;
}

Times times_of(const std::vector<FoundRun>& runs, bool is_across, Parts parts,
               const std::vector<std::string>& kinds) {
  Times times;
  for (const FoundRun& found : runs) {
    times.next_run();
    add_samples(found, times);
    add_parts(found, is_across, parts, kinds, times);
  }
  return times;
}

}  // namespace rooflm::report
