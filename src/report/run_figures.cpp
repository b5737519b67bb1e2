// The figures that are quoted of a run.
#include "report/run_figures.h"

#include <algorithm>

#include "core/ratio.h"
#include "report/match_runs.h"
#include "report/memory_curve.h"
#include "report/summaries.h"
#include "report/traced_kernels.h"
#include "report/view.h"

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

}  // namespace

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
  figures.peak_flop_per_s = run.number("peak_flop_per_s");
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
