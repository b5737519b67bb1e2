// What follows from a piece of work, its time and its roof.
#include "report/model/work_figures.h"

#include <algorithm>
#include <map>
#include <string>

#include "report/views/view.h"

namespace rooflm::report {
namespace {

std::vector<RoofLine> highest(const RunData& run, const std::string& unit, bool by_level) {
  const auto threads = run.run.config.integer("threads").value_or(0);
  const bool has_own = std::ranges::any_of(run.ceilings, [&](const record::Ceiling& ceiling) {
    return ceiling.unit == unit && ceiling.threads == threads;
  });
  std::map<std::string, double> best;
  for (const record::Ceiling& ceiling : run.ceilings) {
    if (ceiling.unit != unit || (has_own && ceiling.threads != threads)) continue;
    if (ceiling.what.starts_with("instruction")) continue;
    double& value = best[by_level ? ceiling.level : ceiling.what + " " + ceiling.dtype];
    value = std::max(value, ceiling.value);
  }
  std::vector<RoofLine> lines;
  for (const auto& [name, value] : best) lines.push_back({.name = name, .value = value});
  std::ranges::stable_sort(lines, [](const RoofLine& a, const RoofLine& b) { return a.value > b.value; });
  return lines;
}

}  // namespace

WorkFigures work_figures(const Work& work, const std::optional<double>& roof_s,
                         const std::optional<double>& time_s, const std::optional<double>& step_s) {
  WorkFigures figures;
  figures.flop = work.flop();
  figures.intensity = work.intensity();
  if (figures.flop > 0) figures.flop_per_s = ratio_of(figures.flop, time_s);
  if (work.bytes > 0) figures.byte_per_s = ratio_of(static_cast<double>(work.bytes), time_s);
  figures.step_share = ratio_of(time_s, step_s);
  // 0: what it moves may be in a cache whose bandwidth is not known.
  if (roof_s.value_or(0) == 0) return figures;
  figures.roof_share = ratio_of(roof_s, time_s);
  if (time_s) figures.gain_s = std::max(0.0, *time_s - *roof_s);
  return figures;
}

WorkFigures work_figures(const Work& work) { return work_figures(work, work.roof_s, work.measured_s(), {}); }

WorkFigures work_figures(const TimedOp& op, const std::optional<double>& step_s) {
  Work work;
  work.matmul_flop = op.op.matmul_flop;
  work.elementwise_flop = op.op.elementwise_flop;
  work.bytes = op.op.bytes_read + op.op.bytes_written;
  const auto time_s = op.time ? std::optional(op.time->device_s) : std::nullopt;
  return work_figures(work, op.roof_s, time_s, step_s);
}

RoofLines roof_lines(const RunData& run) {
  return {.rates = highest(run, "flop/s", false), .bandwidths = highest(run, "byte/s", true)};
}

std::optional<double> dram_s(const RunData& run, double bytes) {
  for (const RoofLine& line : roof_lines(run).bandwidths) {
    if (line.name == "DRAM" && line.value > 0) return bytes / line.value;
  }
  return std::nullopt;
}

}  // namespace rooflm::report
