// Engines as recipes: from a model's forward pass to the program that an engine runs.
#pragma once

#include <string>
#include <string_view>

#include "compile/passes/collective_copies.h"
#include "compile/passes/fp8_products.h"
#include "compile/passes/lower_attention.h"
#include "compile/passes/optimizer.h"
#include "compile/passes/recompute.h"
#include "compile/passes/shard_data.h"
#include "compile/passes/shard_pipeline.h"
#include "compile/sharding.h"
#include "core/dtype.h"
#include "program/program.h"

namespace rooflm::compile {

/// eager: op by op, each tensor allocated when it is produced and freed after its last use. fused: fewer,
/// fatter ops in one planned arena.
enum class EngineKind : std::uint8_t { eager, fused };
std::string_view name_of(EngineKind kind);
/// Throws core::UsageError with a suggestion.
EngineKind parse_engine(std::string_view name);
/// What the engine uses unless told otherwise: eager batched, fused flash.
passes::AttentionKind default_attention(EngineKind kind);

/// Everything that turns a forward pass into a step.
struct StepOptions {
  EngineKind engine = EngineKind::fused;
  passes::AttentionKind attention = passes::AttentionKind::flash;
  core::DType dtype = core::DType::f32;  ///< compute dtype; f64 for gradient checks
  bool tf32 = false;  ///< fp32 products may round their operands to TF32, where a device has it
  bool fp8 = false;   ///< bf16 step whose layers' products read fp8 (passes/fp8_products.h)
  passes::Fp8Options fp8_options{};
  passes::Recompute recompute = passes::Recompute::none;
  /// fused: most bytes of fp32 logits at a time.
  std::int64_t loss_chunk_bytes = std::int64_t{128} << 20U;
  std::int64_t logits_padding = 1;  ///< fused: rows of logits are padded to a multiple of so many elements
  /// fused, bf16: weights in halves and bf16 gradients where nothing is added up (passes/compact_state.h).
  bool compact_state = false;
  bool gelu_in_products = false;  ///< fused: see passes::FuseOptions
  bool early_norm = false;        ///< fused, clipping: passes/early_norm.h
  // What other frameworks do; planned only.
  bool unfused_loss = false;  ///< whole and in fp32 (passes/unfused_loss.h)
  passes::UnitKind
      unit_buffers{};       ///< around collectives of data-parallel ranks (passes/collective_copies.h)
  bool row_copies = false;  ///< around those of sequence-parallel ranks (the same)
  bool dropout = false;     ///< passes/dropout.h
  bool fp8_own_scales =
      false;                  ///< fp8: scales of this step, so that each tensor is read for its largest value
  bool async_tensor = false;  ///< products of tensor-parallel ranks in parts (passes/async_tensor.h)
  bool gradient_sums = false;      ///< over micro-batches, in passes of their own (passes/gradient_sums.h)
  bool separate_products = false;  ///< q, k, v, gate and up (passes/separate_products.h)
  bool fp8_gathers = false;        ///< fp8: tensor-parallel ranks exchange rows in it (passes/fp8_gathers.h)
  bool gather_again = false;       ///< sequence-parallel ranks keep their own rows (passes/gather_again.h)
  bool reduce_early = false;     ///< tensor-parallel sums beside gradients of weights (passes/reduce_early.h)
  bool fp8_casts_apart = false;  ///< fp8: casts never join the op that makes what they cast
  bool fp8_parameters = false;   ///< fp8: weights of layers exist in it alone (passes/fp8_parameters.h)
  bool half_gradients = false;   ///< of weights, in the compute dtype, sums over micro-batches, too
  bool gathered_ring = false;    ///< passes::RingKind::gathered
  bool whole_recompute = false;  ///< `full` redoes what nobody reads again, too (passes/recompute.h)
  int micro_batches = 1;         ///< gradient accumulation: the step's batch is that many times the forward's
  passes::OptimizerOptions optimizer{};
  Sharding sharding{};          ///< over which ranks the step is split; checked by compile::check before
  program::Coordinates rank{};  ///< whose program it is
};

/// The compute dtype as options and tables call it: "tf32", "fp8", or the name of `dtype`.
std::string_view dtype_name(const StepOptions& options);

/// How far to take the recipe, for `rooflm program --stage`.
enum class Stage : std::uint8_t { forward, lowered, differentiated, recomputed, optimizer, cast, fused };
inline constexpr Stage kLastStage = Stage::fused;
std::string_view name_of(Stage stage);
/// Throws core::UsageError with a suggestion.
Stage parse_stage(std::string_view name);

/// A training step: for each micro-batch forward and backward, then the optimizer. Inputs "tokens" and
/// "targets" of micro-batch i > 0 are called "tokens.i" and "targets.i". Results: "loss" (mean over all
/// micro-batches) and, when clipping, "grad_norm". The program passes program::check.
program::Program training_step(program::Program forward, const StepOptions& options,
                               Stage stop_after = kLastStage);

/// What a step begins with: the forward pass of one rank, split over tensor ranks, cut to its stage,
/// attention lowered. It depends on tensor and pipeline ranks alone, so steps that are split otherwise over
/// data, or recompute otherwise, may share it.
struct RankForward {
  program::Program program{};
  passes::SharedWeights shared{};
  passes::Stage stage{};
};
RankForward rank_forward(program::Program forward, const StepOptions& options);

/// The same as training_step of the forward pass that it was made of.
program::Program training_step(RankForward forward, const StepOptions& options,
                               Stage stop_after = kLastStage);

/// Forward only: evaluation and sampling. Of several ranks each has its own batch, and the loss is the mean.
program::Program inference_step(program::Program forward, const StepOptions& options);

/// "tokens" or "tokens.3".
std::string micro_batch_name(const std::string& input, int micro_batch);

}  // namespace rooflm::compile
