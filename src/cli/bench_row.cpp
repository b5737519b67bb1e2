// One configuration of a benchmark: from its options to a row of measurements.
#include "cli/bench_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "cli/step_inputs.h"
#include "core/error.h"
#include "engines/engine.h"
#include "measure/machine.h"
#include "model/forward.h"
#include "program/ops.h"
#include "train/signals.h"

namespace rooflm::cli {
namespace {

/// What libraries, code and buffers of the process take besides the plan.
constexpr double kProcessBytes = 256e6;

void set_identity(Row& row, const Point& point, const BenchSettings& settings) {
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
  row.set("threads", std::int64_t{resolve_threads(settings.threads)});
  row.set("seed", static_cast<std::int64_t>(settings.seed));
  row.set("deterministic", settings.order == SumOrder::fixed);
  row.set("warmup", std::int64_t{settings.steps.warmup});
  row.set("steps", std::int64_t{settings.steps.steps});
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

void set_rates(Row& row, const Point& point, const measure::BenchResult& result, double peak_flop_per_s) {
  const double tokens_per_s = static_cast<double>(point.tokens()) / result.step.median;
  row.set("tokens_per_s", tokens_per_s);
  if (peak_flop_per_s <= 0) return;
  row.set("mfu", row.number("model_flops") / result.step.median / peak_flop_per_s);
  row.set("share_of_peak", row.number("matmul_flops") / result.step.median / peak_flop_per_s);
  row.set("peak_flop_per_s", peak_flop_per_s);
}

std::int64_t matmul_flop(const program::Program& program) {
  std::int64_t sum = 0;
  for (const program::Op& op : program.ops) {
    if (op.phase != program::Phase::setup) sum += program::cost_of(program, op).matmul_flop;
  }
  return sum;
}

/// Bytes of the largest weight: initial values pass through a host array of that size.
double largest_weight_bytes(const program::Program& program) {
  std::int64_t largest = 0;
  for (const program::Tensor& tensor : program.tensors) {
    if (tensor.role == program::Role::weight) largest = std::max(largest, tensor.bytes());
  }
  return static_cast<double>(largest);
}

measure::BenchResult run_steps(engines::Engine& engine, const Point& point, const BenchSettings& settings) {
  StepInputs inputs(engine, point, settings.seed);
  return measure::run_bench(engine, settings.steps, [&](int step) {
    if (const int signal = train::StopSignals::received(); signal != 0) throw Interrupted{signal};
    inputs.write(step);
  });
}

/// Fills the row and returns the samples.
std::vector<engines::StepTimes> measure_point(Row& row, program::Program program, backends::Backend& backend,
                                              const Point& point, const BenchSettings& settings,
                                              Ceilings& ceilings) {
  const double peak = settings.measure_peak ? ceilings.products(point.device, point.step).rate.median : 0;
  measure::reset_peak_resident();
  const auto resident_before = measure::resident_bytes();
  engines::TensorStore store(backend);
  engines::Engine engine(std::move(program), point.step.engine, store,
                         settings.memory_limit_bytes.value_or(0));
  measure::BenchResult result = run_steps(engine, point, settings);
  row.set("status", std::string("success"));
  const auto set_library = [&](const char* key, const program::OpDef& op) {
    if (const std::string library = engine.library_of(op); !library.empty()) row.set(key, library);
  };
  set_library("attention_forward", program::ops::kFlashAttention);
  set_library("attention_backward", program::ops::kFlashAttentionBackward);
  set_times(row, result);
  set_rates(row, point, result, peak);
  row.set("peak_bytes", store.bytes() + engine.io().bytes() + engine.peak_transient_bytes() +
                            store.backend().workspace_bytes());
  const auto resident_peak = measure::peak_resident_bytes();
  if (resident_before && resident_peak) row.set("rss_increase_bytes", *resident_peak - *resident_before);
  row.set("loss", static_cast<double>(engine.io().read<float>("loss").at(0)));
  return std::move(result.samples);
}

/// `free_bytes`: what the plan had to fit.
void set_oom(Row& row, double needed_bytes, double free_bytes) {
  set_unmeasured(row);
  row.set("status", std::string("oom"));
  row.set("needed_bytes", static_cast<std::int64_t>(needed_bytes));
  row.set("free_bytes", static_cast<std::int64_t>(free_bytes));
}

}  // namespace

BenchOutcome run_point(const Point& point, const BenchSettings& settings, Ceilings& ceilings) {
  BenchOutcome outcome;
  Row& row = outcome.row;
  set_identity(row, point, settings);
  row.set("status", std::string("planned"));
  set_unmeasured(row);
  const auto backend =
      make_backend(point.device, point.step.engine, settings.threads, Tuning::timed, settings.order);
  program::Program program =
      compile::training_step(model::forward(point.config, point.batch, point.seq), point.step);
  const engines::MemoryNeed need = engines::memory_need(program, point.step.engine);
  const auto needed = static_cast<double>(need.total());
  row.set("model_flops", model::model_flop_per_token(point.config, point.seq) * point.tokens());
  row.set("matmul_flops", matmul_flop(program));
  row.set("plan_bytes", need.transient_bytes);
  row.set("state_bytes", need.persistent_bytes);
  row.set("needed_bytes", need.total());
  const bool over_limit = settings.memory_limit_bytes && needed > *settings.memory_limit_bytes;
  const double free_bytes = backend->free_bytes();
  if (over_limit || needed + largest_weight_bytes(program) + kProcessBytes > free_bytes) {
    set_oom(row, needed, free_bytes);
    return outcome;
  }
  if (point.device == "null") return outcome;
  try {
    outcome.samples = measure_point(row, std::move(program), *backend, point, settings, ceilings);
  } catch (const core::OutOfMemory& error) {
    set_oom(row, std::max(needed, error.needed_bytes()), free_bytes);
  } catch (const std::bad_alloc&) {
    set_oom(row, needed, free_bytes);
  }
  return outcome;
}

}  // namespace rooflm::cli
