// One run of a benchmark as a row of measurements.
#include "cli/bench_row.h"

#include <fmt/format.h>

#include <string>

#include "lab/devices.h"

namespace rooflm::cli {
namespace {

void set_identity(Row& row, const lab::Point& point, const lab::RunSettings& settings) {
  const model::ModelConfig& config = point.config;
  row.set("model", config.name);
  row.set("arch", std::string(model::name_of(config.arch)));
  row.set("engine", std::string(compile::name_of(point.step.engine)));
  row.set("attention", std::string(passes::name_of(point.step.attention)));
  row.set("device", point.device);
  row.set("dtype", std::string(compile::dtype_name(point.step)));
  row.set("batch", point.batch);
  row.set("seq", point.seq);
  row.set("vocab", config.padded_vocab);
  row.set("layers", config.layers);
  row.set("heads", config.heads);
  row.set("kv_heads", config.kv_heads);
  row.set("d_model", config.d_model);
  row.set("d_ff", config.d_ff);
  row.set("params", model::parameter_count(config));
  row.set("grad_accum", std::int64_t{point.step.micro_batches});
  row.set("recompute", std::string(passes::name_of(point.step.recompute)));
  row.set("threads", std::int64_t{lab::resolve_threads(point.threads)});
  row.set("seed", static_cast<std::int64_t>(point.seed));
  row.set("deterministic", point.deterministic);
  row.set("warmup", std::int64_t{point.warmup});
  row.set("steps", std::int64_t{settings.max_steps});
}

/// The columns of a measurement, so that rows without one have the same keys.
void set_unmeasured(Row& row) {
  for (const char* phase : {"forward", "backward", "optimizer", "step", "submit"}) {
    for (const char* value : {"mean", "std", "median"}) row.set(fmt::format("{}_ms_{}", phase, value), {});
  }
  for (const char* key :
       {"step_ms_ci_low", "step_ms_ci_high", "step_ms_min", "step_ms_mad", "outliers", "drift_ratio",
        "drift_p", "drift", "others_share", "stop_reason", "tokens_per_s", "mfu", "share_of_peak",
        "peak_flop_per_s", "peak_bytes", "rss_increase_bytes", "loss", "free_bytes"}) {
    row.set(key, {});
  }
}

void set_times(Row& row, const measure::BenchResult& result) {
  constexpr double kMs = 1e3;
  const auto set = [&](const char* phase, const core::Summary& seconds) {
    row.set(fmt::format("{}_ms_mean", phase), seconds.mean * kMs);
    row.set(fmt::format("{}_ms_std", phase), seconds.std * kMs);
    row.set(fmt::format("{}_ms_median", phase), seconds.median * kMs);
  };
  set("forward", result.forward);
  set("backward", result.backward);
  set("optimizer", result.optimizer);
  set("step", result.step);
  set("submit", result.submit);
  row.set("step_ms_ci_low", result.step.median_ci.low * kMs);
  row.set("step_ms_ci_high", result.step.median_ci.high * kMs);
  row.set("step_ms_min", result.step.min * kMs);
  row.set("step_ms_mad", result.step.mad * kMs);
  row.set("outliers", static_cast<std::int64_t>(result.step.outliers));
  row.set("drift_ratio", result.step.drift.ratio);
  row.set("drift_p", result.step.drift.p);
  row.set("drift", measure::drift_sentence(result.step, result.clock));
  if (result.others_share) row.set("others_share", *result.others_share);
  row.set("steps", static_cast<std::int64_t>(result.step.count));
  row.set("stop_reason", result.stop_reason);
}

void set_rates(Row& row, const lab::Point& point, const lab::RunOutcome& run) {
  const double step_s = run.times->step.median;
  row.set("tokens_per_s", static_cast<double>(point.tokens()) / step_s);
  if (!run.peak) return;
  row.set("mfu", run.model_flop / step_s / run.peak->value);
  row.set("share_of_peak", run.matmul_flop / step_s / run.peak->value);
  row.set("peak_flop_per_s", run.peak->value);
}

Cell integer(double value) { return static_cast<std::int64_t>(value); }

}  // namespace

Row bench_row(const lab::Point& point, const lab::RunSettings& settings, const lab::RunOutcome& run) {
  Row row;
  set_identity(row, point, settings);
  row.set("status", run.status);
  set_unmeasured(row);
  row.set("model_flops", integer(run.model_flop));
  row.set("matmul_flops", integer(run.matmul_flop));
  row.set("plan_bytes", integer(run.plan_bytes));
  row.set("state_bytes", integer(run.state_bytes));
  row.set("needed_bytes", integer(run.needed_bytes));
  if (run.status == "oom") row.set("free_bytes", integer(run.free_bytes));
  if (run.status != "success") return row;
  if (!run.attention_forward.empty()) row.set("attention_forward", run.attention_forward);
  if (!run.attention_backward.empty()) row.set("attention_backward", run.attention_backward);
  set_times(row, *run.times);
  set_rates(row, point, run);
  row.set("peak_bytes", integer(*run.peak_bytes));
  if (run.rss_increase_bytes) row.set("rss_increase_bytes", integer(*run.rss_increase_bytes));
  row.set("loss", *run.loss);
  return row;
}

}  // namespace rooflm::cli
