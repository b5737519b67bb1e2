// The figures that are quoted of a run.
#include "report/model/run_figures.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/ratio.h"
#include "core/units.h"
#include "record/loaded_ceiling.h"
#include "report/model/memory_curve.h"
#include "report/model/summaries.h"
#include "report/model/traced_kernels.h"
#include "report/runs/match_runs.h"
#include "report/views/view.h"

namespace rooflm::report {
namespace {

/// Measured where the record says so, then by what was alive in the step, then by plan.
std::optional<double> peak_bytes_of(const RunData& run) {
  if (const auto measured = run.number("peak_bytes")) return measured;
  const MemoryCurve curve(run);
  if (!curve.empty()) return static_cast<double>(curve.peak_bytes());
  return run.number("needed_bytes");
}

/// Tokens of a step; nothing of a program without them.
std::optional<double> tokens_of(const RunData& run) {
  if (const auto tokens = run.number("tokens")) return tokens;
  const record::Config& config = run.run.config;
  const auto batch = config.integer("batch");
  const auto seq = config.integer("seq");
  if (!batch || !seq) return std::nullopt;
  const auto at_least_one = [&](const char* key) {
    return std::max<std::int64_t>(1, config.integer(key).value_or(1));
  };
  return static_cast<double>(*batch * *seq * at_least_one("grad_accum") * at_least_one("dp"));
}

/// Times as fast as the upper end of the interval of the matmul rate that the run, or one of its ops, must be
/// for the rate to be no peak: clocks change.
constexpr double kBeaten = 1.03;

/// The sustained matmul rate that the run's MFU divides by, and the highest end of an interval of that dtype:
/// bursts of a GPU may be faster.
struct MeasuredPeak {
  const record::Ceiling* row = nullptr;
  double value = 0, high = 0;
};
MeasuredPeak measured_peak(const RunData& run, double value) {
  MeasuredPeak peak;
  for (const record::Ceiling& row : run.ceilings) {
    if (row.what == "matmul" && row.value == value) peak.row = &row;
  }
  if (peak.row == nullptr) return peak;
  for (const record::Ceiling& row : run.ceilings) {
    if (!row.what.starts_with("matmul") || row.dtype != peak.row->dtype || row.threads != peak.row->threads)
      continue;
    peak.value = std::max(peak.value, row.value);
    peak.high = std::max({peak.high, row.value, row.ci_high});
  }
  return peak;
}

/// "" where no op of the run passes the rate.
std::string faster_op(const RunData& run, const MeasuredPeak& peak) {
  const std::string bound = "matmul " + peak.row->dtype;
  for (const TimedOp& op : run.ops) {
    if (op.bound != bound || !op.time || !op.roof_s || op.time->device_s <= 0) continue;
    const double rate = *op.roof_s / op.time->device_s * peak.value;
    if (rate > kBeaten * peak.high)
      return fmt::format("op {} {} computes at {}FLOP/s", op.op.op, op.op.name, core::format_si(rate));
  }
  return "";
}

}  // namespace

std::string why_no_peak(const RunData& run) {
  const auto value = run.number("peak_flop_per_s");
  if (!value) return "";
  const MeasuredPeak peak = measured_peak(run, *value);
  if (peak.row == nullptr) return "";
  if (std::string why = record::why_uncertain(*peak.row); !why.empty()) return why;
  const auto rate = ratio_of(run.number("needed_matmul_flop"), phase_median(run, kStep));
  if (rate && *rate > kBeaten * peak.high)
    return fmt::format("the step computes at {}FLOP/s", core::format_si(*rate));
  return faster_op(run, peak);
}

std::optional<double> peak_of(const RunData& run) {
  return why_no_peak(run).empty() ? run.number("peak_flop_per_s") : std::nullopt;
}

double ranks_of_step(const RunData& run) {
  double ranks = 1;
  for (const char* key : {"dp", "cp", "tp", "pp"}) {
    ranks *= static_cast<double>(std::max<std::int64_t>(1, run.run.config.integer(key).value_or(1)));
  }
  return ranks;
}

std::optional<double> model_flop_of_rank(const RunData& run) {
  const auto all = run.number("model_flop");
  return all ? std::optional(*all / ranks_of_step(run)) : std::nullopt;
}

std::string peak_text(const RunData& run) {
  const std::string text = run.text("peak_flop_per_s");
  return text.empty() ? "matmul peak of this run" : text;
}

RunFigures figures_of(const RunData& run) {
  RunFigures figures;
  if (const auto step = phase_time(run, kStep)) {
    figures.step_s = step->median;
    figures.step_low_s = step->median_ci.low;
    figures.step_high_s = step->median_ci.high;
    figures.step_coverage = step->median_ci.coverage;
  }
  // Of programs of others steps were timed alone or recorded, never both.
  const auto traced = !figures.step_s || is_foreign(run.run) ? phase_time(run, kStep, kTraced) : std::nullopt;
  if (traced) {
    figures.traced_step_s = traced->median;
    figures.traced_steps = traced->count;
  }
  figures.tokens = tokens_of(run);
  figures.tokens_per_s = ratio_of(figures.tokens, figures.step_s);
  figures.model_flop_per_s = ratio_of(run.number("model_flop"), figures.step_s);
  figures.peak_flop_per_s = peak_of(run);
  figures.mfu = core::mfu_of(model_flop_of_rank(run), figures.step_s, figures.peak_flop_per_s);
  if (figures.peak_flop_per_s) figures.peak = peak_text(run);
  figures.datasheet_flop_per_s = run.number("datasheet_flop_per_s");
  figures.datasheet_mfu = core::mfu_of(model_flop_of_rank(run), figures.step_s, figures.datasheet_flop_per_s);
  const Work work = phase_work(run, kStep);
  auto matmul_flop = run.number("matmul_flop");
  if (!matmul_flop && work.ops > 0) matmul_flop = static_cast<double>(work.matmul_flop);
  figures.matmul_flop_per_s = ratio_of(matmul_flop, figures.step_s);
  figures.matmul_share = ratio_of(figures.matmul_flop_per_s, figures.peak_flop_per_s);
  figures.roof_s = phase_roof(run, kStep, work).roof_s;
  figures.roof_share = ratio_of(figures.roof_s, figures.step_s);
  figures.peak_bytes = peak_bytes_of(run);
  return figures;
}

}  // namespace rooflm::report
