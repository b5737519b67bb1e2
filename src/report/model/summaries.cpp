// Sums and summaries over the samples and ops of a run.
#include "report/model/summaries.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_set>
#include <utility>

#include "core/ratio.h"

namespace rooflm::report {
namespace {

/// Adds ops up. Bounds are weighed by the time that their roofs take.
class WorkSum {
 public:
  void add(const TimedOp& timed) {
    const record::Op& op = timed.op;
    ++work_.ops;
    work_.launches += op.launches;
    work_.matmul_flop += op.matmul_flop;
    work_.elementwise_flop += op.elementwise_flop;
    work_.bytes += op.bytes_read + op.bytes_written;
    if (timed.time) {
      ++work_.timed_ops;
      work_.instances += timed.time->instances;
      work_.device_s += timed.time->device_s;
      if (timed.time->wall_s) {
        ++walls_;
        wall_s_ += *timed.time->wall_s;
      }
    }
    if (timed.alone_s) {
      ++alone_;
      alone_s_ += *timed.alone_s;
    }
    if (timed.roof_s) {
      ++roofs_;
      roof_s_ += *timed.roof_s;
      bounds_[timed.bound] += *timed.roof_s;
    }
  }

  [[nodiscard]] Work result() const {
    Work work = work_;
    if (walls_ > 0 && walls_ == work.timed_ops) work.wall_s = wall_s_;
    if (alone_ > 0 && alone_ == work.ops) work.alone_s = alone_s_;
    if (work.ops == 0 || roofs_ != work.ops) return work;
    work.roof_s = roof_s_;
    const auto largest = std::max_element(bounds_.begin(), bounds_.end(),
                                          [](const auto& a, const auto& b) { return a.second < b.second; });
    work.bound = largest->first;
    return work;
  }

 private:
  Work work_;
  std::int64_t roofs_ = 0, walls_ = 0, alone_ = 0;
  double wall_s_ = 0, alone_s_ = 0;
  double roof_s_ = 0;
  std::map<std::string, double> bounds_;
};

std::size_t phase_rank(std::string_view phase) {
  return static_cast<std::size_t>(std::find(kPhases.begin(), kPhases.end(), phase) - kPhases.begin());
}

}  // namespace

std::optional<double> Work::intensity() const {
  if (bytes == 0) return std::nullopt;
  return flop() / static_cast<double>(bytes);
}

std::optional<double> Work::measured_s() const {
  return timed_ops > 0 ? std::optional<double>(device_s) : std::nullopt;
}

std::optional<double> Work::outside_s() const {
  return wall_s ? std::optional<double>(*wall_s - device_s) : std::nullopt;
}

std::optional<double> Work::shown_outside_s() const {
  const auto wall = shown_wall_s();
  return wall ? std::optional<double>(*wall - device_s) : std::nullopt;
}

std::optional<double> Work::gap_s() const {
  return core::ratio_of(outside_s(), static_cast<double>(launches));
}

std::optional<double> Work::shown_gap_s() const {
  return core::ratio_of(shown_outside_s(), static_cast<double>(launches));
}

std::string alone_note(const RunData& run) {
  if (!phase_work(run, kStep).alone_s) return "";
  std::string note =
      "wall: launch, kernels and waiting, from separate steps in which each op was submitted alone and "
      "waited for; device: from other steps";
  if (const auto cost = run.number("alone_cost"))
    note += fmt::format("; time of such a step against a plain one: {:+.0f} %", 100 * *cost);
  return note;
}

std::optional<core::Summary> phase_time(const RunData& run, std::string_view phase, std::string_view kind) {
  const std::vector<double> seconds = run.seconds(phase, kind);
  return seconds.empty() ? std::nullopt : std::optional(core::summarise(seconds));
}

std::optional<double> phase_median(const RunData& run, std::string_view phase, std::string_view kind) {
  const std::vector<double> seconds = run.seconds(phase, kind);
  return seconds.empty() ? std::nullopt : std::optional<double>(core::median(seconds));
}

std::vector<Group> group_ops(const RunData& run, const std::function<std::string(const TimedOp&)>& key) {
  std::vector<std::pair<std::pair<std::string, std::string>, WorkSum>> sums;
  std::map<std::pair<std::string, std::string>, std::size_t> index;
  for (const TimedOp& timed : run.ops) {
    if (timed.op.phase == kSetup) continue;
    std::pair<std::string, std::string> name{timed.op.phase, key(timed)};
    const auto [entry, is_new] = index.try_emplace(std::move(name), sums.size());
    if (is_new) sums.emplace_back(entry->first, WorkSum());
    sums[entry->second].second.add(timed);
  }
  std::stable_sort(sums.begin(), sums.end(), [](const auto& a, const auto& b) {
    return phase_rank(a.first.first) < phase_rank(b.first.first);
  });
  const auto step_s = phase_work(run, kStep).measured_s();
  std::vector<Group> groups;
  for (const auto& [name, sum] : sums) {
    Group& group = groups.emplace_back(Group{.phase = name.first, .name = name.second, .work = sum.result()});
    group.time_share = core::ratio_of(group.work.measured_s(), step_s);
  }
  return groups;
}

std::vector<Group> blocks_of(const RunData& run) {
  return group_ops(run, [](const TimedOp& op) { return op.block; });
}

std::vector<Group> parts_of(const RunData& run) {
  return group_ops(run, [](const TimedOp& op) { return op.part; });
}

Work phase_work(const RunData& run, std::string_view phase) {
  WorkSum sum;
  for (const TimedOp& timed : run.ops) {
    if (timed.op.phase != kSetup && (phase == kStep || timed.op.phase == phase)) sum.add(timed);
  }
  return sum.result();
}

Work own_work(const RunData& run, std::string_view phase) {
  if (phase == kStep) return phase_work(run, phase);
  WorkSum sum;
  for (const TimedOp& timed : run.ops)
    if (timed.op.phase == phase && timed.op.lane == kComputeLane) sum.add(timed);
  return sum.result();
}

Roof phase_roof(const RunData& run, std::string_view phase, const Work& work) {
  const std::string subject = phase == kStep ? kStep : "phase:" + std::string(phase);
  if (const record::Prediction* prediction = run.prediction(subject, "roof_s")) {
    return {.roof_s = prediction->value, .bound = prediction->bound.empty() ? work.bound : prediction->bound};
  }
  return {.roof_s = work.roof_s, .bound = work.bound};
}

std::size_t observed_steps(const RunData& run) {
  std::unordered_set<std::int64_t> steps;
  for (const record::Event& event : run.events) steps.insert(event.step);
  return steps.size();
}

std::string load_sentence(const RecordSet& set) {
  std::size_t busy = 0;
  double least = HUGE_VAL;
  double most = 0;
  for (const RunData& run : set.runs) {
    const record::Fact* fact = run.fact("others_share");
    if (fact == nullptr || fact->text.empty()) continue;  // its text is what says that it is too much
    ++busy;
    if (!fact->value) continue;
    least = std::min(least, 100 * *fact->value);
    most = std::max(most, 100 * *fact->value);
  }
  if (busy == 0) return "";
  const std::string low = fmt::format("{:.1f}", least);
  const std::string high = fmt::format("{:.1f}", most);
  std::string text = "Busy machine: other programs used ";
  if (least <= most) text += (low == high ? "" : low + " to ") + high + " % of ";
  text += "the processors";
  if (set.runs.size() > 1) text += fmt::format(", in {} of {} runs", busy, set.runs.size());
  return text + ".";
}

std::vector<std::string> phases_of(const RunData& run) {
  std::vector<std::string> phases;
  const auto add = [&](const std::string& phase) {
    if (phase == kStep || phase == kSetup || phase == kSubmit || phase == kDeviceWait) return;
    if (std::find(phases.begin(), phases.end(), phase) == phases.end()) phases.push_back(phase);
  };
  for (const record::Sample& sample : run.samples) add(sample.phase);
  for (const TimedOp& timed : run.ops) add(timed.op.phase);
  std::stable_sort(phases.begin(), phases.end(),
                   [](const std::string& a, const std::string& b) { return phase_rank(a) < phase_rank(b); });
  return phases;
}

}  // namespace rooflm::report
