// Blocks over a size: time of each part of a layer in the runs of a sweep.
#include "report/runs/scaling.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/ratio.h"
#include "report/model/summaries.h"
#include "report/runs/size_sweeps.h"

namespace rooflm::report {
namespace {

/// Attention is split; a norm, a residual and the two matmuls of feed_forward are one block each.
std::string name_of(const Group& part) {
  const std::string block = part.name.substr(0, part.name.find('/'));
  return block == "attention" ? part.name : block;
}

ScalingPart& part_named(Scaling& scaling, const std::string& name) {
  const auto found = std::ranges::find(scaling.parts, name, &ScalingPart::name);
  if (found != scaling.parts.end()) return *found;
  ScalingPart part{.name = name};
  part.device_s.resize(scaling.sizes.size());
  part.wall_s.resize(scaling.sizes.size());
  return scaling.parts.emplace_back(std::move(part));
}

void add_seconds(std::optional<double>& sum, const std::optional<double>& seconds) {
  if (seconds) sum = sum.value_or(0) + *seconds;
}

/// Runs of one size are of repeated configurations: the first counts.
Scaling scaling_of(const SizeSweep& sweep, const std::string& phase) {
  Scaling scaling{.axis = sweep.axis, .of = sweep.of, .phase = phase};
  std::vector<const RunData*> runs;
  for (const RunData* run : sweep.runs) {
    const std::int64_t size = size_of(*run, sweep.axis);
    if (!scaling.sizes.empty() && scaling.sizes.back() == size) continue;
    scaling.sizes.push_back(size);
    runs.push_back(run);
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const Group& part : parts_of(*runs[i])) {
      if (phase != kStep && part.phase != phase) continue;
      ScalingPart& of = part_named(scaling, name_of(part));
      add_seconds(of.device_s[i], part.work.measured_s());
      add_seconds(of.wall_s[i], part.work.shown_wall_s());
    }
  }
  return scaling;
}

std::vector<std::string> phases_shown(const SizeSweep& sweep) {
  std::set<std::string> phases;
  for (const RunData* run : sweep.runs) {
    for (const TimedOp& op : run->ops) {
      if (op.time) phases.insert(op.op.phase);
    }
  }
  if (phases.size() == 1) return {*phases.begin()};
  std::vector<std::string> shown;
  if (phases.contains(std::string(kPhases[0]))) shown.emplace_back(kPhases[0]);
  if (!phases.empty()) shown.emplace_back(kStep);
  return shown;
}

}  // namespace

std::optional<double> Scaling::share(const ScalingPart& part, std::size_t size, bool is_wall) const {
  std::optional<double> sum;
  for (const ScalingPart& each : parts) add_seconds(sum, is_wall ? each.wall_s[size] : each.device_s[size]);
  return core::ratio_of(is_wall ? part.wall_s[size] : part.device_s[size], sum);
}

std::optional<double> Scaling::share_of(const std::vector<std::string>& names, std::size_t size,
                                        bool is_wall) const {
  std::optional<double> sum;
  for (const ScalingPart& part : parts) {
    if (std::ranges::find(names, part.name) != names.end()) add_seconds(sum, share(part, size, is_wall));
  }
  return sum;
}

std::vector<Scaling> scalings(const RecordSet& set) {
  std::vector<Scaling> all;
  std::vector<SizeSweep> sweeps = size_sweeps(set);
  // Batches beside a sweep of another size tell its pictures apart.
  const auto is_batch = [](const SizeSweep& sweep) { return sweep.axis == "batch"; };
  if (!std::ranges::all_of(sweeps, is_batch)) std::erase_if(sweeps, is_batch);
  for (const SizeSweep& sweep : sweeps) {
    for (const std::string& phase : phases_shown(sweep)) {
      Scaling scaling = scaling_of(sweep, phase);
      if (!scaling.parts.empty()) all.push_back(std::move(scaling));
    }
  }
  return all;
}

}  // namespace rooflm::report
