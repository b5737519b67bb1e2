// Engines as recipes: from a model's forward pass to the program that an engine runs.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "compile/compute_dtype.h"
#include "compile/passes/adapters.h"
#include "compile/passes/force_routing.h"
#include "compile/passes/fp8_matmuls.h"
#include "compile/passes/lower_attention.h"
#include "compile/passes/optimizer.h"
#include "compile/passes/recompute.h"
#include "compile/passes/shard_data.h"
#include "compile/passes/shard_pipeline.h"
#include "compile/planned/collective_copies.h"
#include "compile/rewrites.h"
#include "compile/sharding.h"
#include "core/dtype.h"
#include "core/named.h"
#include "core/options.h"
#include "core/weight_format.h"
#include "model/config.h"
#include "program/fp32_products.h"
#include "program/program.h"

namespace rooflm::compile {

using core::name_of;

/// eager: runs the model's ops one by one; each tensor is allocated when it is produced and freed after its
/// last use. fused: fewer, larger ops in one planned arena.
enum class EngineKind : std::uint8_t { eager, fused };
constexpr auto names_of(EngineKind) {
  return core::named<EngineKind>("engine", {{EngineKind::eager, "eager"}, {EngineKind::fused, "fused"}});
}
/// The default of the engine: batched for eager, flash for fused.
passes::AttentionKind default_attention(EngineKind kind);

/// Everything that determines how a forward pass becomes a step.
struct StepOptions {
  EngineKind engine = EngineKind::fused;
  passes::AttentionKind attention = passes::AttentionKind::flash;
  core::DType dtype = core::DType::f32;  ///< compute dtype; f64 for gradient checks
  program::Fp32Products fp32_products = program::Fp32Products::plain;
  bool fp8 = false;  ///< bf16 step whose layer matmuls read fp8 (passes/fp8_matmuls.h)
  passes::Fp8Options fp8_options{};
  passes::Recompute recompute = passes::Recompute::none;
  /// fused: most bytes of fp32 logits per loss chunk.
  std::int64_t loss_chunk_bytes = std::int64_t{128} << 20U;
  std::int64_t logits_padding = 1;  ///< fused: rows of logits are padded to a multiple of this many elements
  Rewrites rewrites{};
  bool background = true;  ///< fused: the device has the lane `background` (passes/early_updates.h)
  passes::UnitKind
      unit_buffers{};     ///< around collectives of data-parallel ranks: planned/collective_copies.h
  int micro_batches = 1;  ///< gradient accumulation: a step's batch is this many times the forward pass's
  passes::OptimizerOptions optimizer{};
  double expert_capacity =
      0;               ///< of training: most rows of an expert, of the mean (passes::limit_experts); 0: all
  std::string lora{};  ///< adapters beside frozen weights, as text (passes/adapters.h); "": none
  std::vector<passes::Adapter> adapters{};              ///< those that `lora` asks for of the model
  core::WeightFormat base = core::WeightFormat::plain;  ///< of matrices that are not trained (pack_weights)
  passes::Routing routing = passes::Routing::learned;   ///< of the programs that program_of makes
  Sharding sharding{};          ///< how the step is split over ranks; validated before by compile::check
  program::Coordinates rank{};  ///< the rank whose program is built
};

ComputeDtype compute_dtype_of(const StepOptions& options);
void set_compute_dtype(StepOptions& options, const ComputeDtype& compute);
/// The compute dtype as options and tables name it: "bf16x6", "tf32", "fp8", or the name of `dtype`.
inline std::string_view dtype_name(const StepOptions& options) { return name_of(compute_dtype_of(options)); }

template <core::MaybeConst<StepOptions> T, class Visit>
void visit_options(T& step, const Visit& visit) {
  visit("engine", step.engine);
  visit("attention", step.attention);
  ComputeDtype dtype = compute_dtype_of(step);
  visit("dtype", dtype);
  if constexpr (!std::is_const_v<T>) set_compute_dtype(step, dtype);
  visit_options(step.fp8_options, visit);
  visit("recompute", step.recompute);
  visit("grad_accum", step.micro_batches);
  visit("routing", step.routing);
  visit("expert_capacity", step.expert_capacity);
  visit_options(step.sharding, visit);
  visit("clip", step.optimizer.clip_norm);
  visit("expert_bias_rate", step.optimizer.expert_bias_rate);
  visit("optimizer", step.optimizer.kind);
  visit("states", step.optimizer.states);
  visit("lora", step.lora);
  visit("base", step.base);
}

/// What of a model is run: a training step, its forward pass and loss, or generation with a KV cache: B
/// prompts of T tokens (prefill), or one more token of each of B texts that are T tokens long with it
/// (decode).
enum class RunPhase : std::uint8_t { step, forward, prefill, decode };
constexpr auto names_of(RunPhase) {
  return core::named<RunPhase>("phase", {{RunPhase::step, "step"},
                                         {RunPhase::forward, "forward"},
                                         {RunPhase::prefill, "prefill"},
                                         {RunPhase::decode, "decode"}});
}
constexpr bool is_generation(RunPhase phase) {
  return phase == RunPhase::prefill || phase == RunPhase::decode;
}
/// The program of that phase for `batch` texts of `seq` tokens.
program::Program program_of(RunPhase phase, const model::ModelConfig& config, std::int64_t batch,
                            std::int64_t seq, const StepOptions& options);

/// Names of the passes of a training step, in their order: `rooflm program --stage` stops after any.
std::vector<std::string> pass_names();
/// Throws core::UsageError with a suggestion where there is no such pass.
void check_pass_name(std::string_view name);

/// A training step: forward and backward for each micro-batch, then the optimizer. Inputs "tokens" and
/// "targets" of micro-batch i > 0 are called "tokens.i" and "targets.i". Results: "loss" [1] (mean over all
/// micro-batches) and, with clipping, "grad_norm" [1]. The program passes program::check. Throws
/// core::UsageError for options that contradict each other. `stop_after`: the pass that is the last to run;
/// all without it.
program::Program training_step(program::Program forward, const StepOptions& options,
                               std::string_view stop_after = {});

/// The start of a step: the forward pass of one rank, split over tensor ranks, cut to its pipeline stage,
/// with attention lowered. It depends only on tensor and pipeline ranks, so steps with other data-parallel
/// splits or other recomputation can share it.
struct RankForward {
  program::Program program{};
  passes::SharedWeights shared{};
  passes::Stage stage{};
};
RankForward rank_forward(program::Program forward, const StepOptions& options);

/// The same, from a forward pass made by rank_forward.
program::Program training_step(RankForward forward, const StepOptions& options);

/// Whose weights a forward pass reads.
enum class Weights : std::uint8_t {
  own,          ///< nobody else's: in the compute dtype (passes::narrow_weights)
  of_training,  ///< those of a training step: fp32 masters, or halves
};

/// Forward pass only, for evaluation and sampling. Each rank has its own batch; the loss is the mean over
/// ranks.
program::Program inference_step(program::Program forward, const StepOptions& options,
                                Weights weights = Weights::own);

/// "tokens" or "tokens.3".
std::string micro_batch_name(const std::string& input, int micro_batch);

}  // namespace rooflm::compile
