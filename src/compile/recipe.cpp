// Engines as recipes: from a model's forward pass to the program that an engine runs.
#include "compile/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <stdexcept>
#include <utility>

#include "compile/passes/cast.h"
#include "compile/passes/compact_state.h"
#include "compile/passes/fuse.h"
#include "compile/passes/pack_weights.h"
#include "compile/passes/shard_tensor.h"
#include "compile/passes/sum_in_update.h"
#include "compile/planning.h"
#include "compile/training_passes.h"
#include "core/error.h"
#include "core/names.h"
#include "model/forward.h"

namespace rooflm::compile {
namespace {

/// Runs those of the passes that apply, until after `stop_after`. Whether that one was among them.
bool run(std::span<const Pass> passes, Making& making, StepOptions options, std::string_view stop_after = {},
         const std::function<void()>& between = {}) {
  Sharding& split = options.sharding;
  if (!split.sequence_parallel) split.expert_tensor = split.tensor;  // which have the same rows
  for (const Pass& pass : passes) {
    if (between) between();
    if (pass.applies(options)) {
      pass.run(making, options);
      assert((program::check_ops(making.step), true));
    }
    if (pass.name == stop_after) return true;
  }
  return false;
}

/// Ranks that own whole matrices have different parts of them.
void check_owners(const StepOptions& options) {
  const std::string_view optimizer = name_of(options.optimizer.kind);
  if (options.rewrites.has(Rewrite::sum_in_update))
    throw core::Unavailable(
        fmt::format("--collectives peer-memory needs parts of one size on all ranks, and with --optimizer {} "
                    "each matrix is of one rank: leave out --zero, or take another way",
                    optimizer));
  if (options.unit_buffers != passes::UnitKind::none || options.rewrites.has(Rewrite::fp8_parameters))
    throw core::Unavailable(
        fmt::format("--optimizer {} with --zero is planned for rooflm's own steps alone: leave out "
                    "--framework, or --zero",
                    optimizer));
}

void check_options(const StepOptions& options) {
  if (options.micro_batches < 1) {
    throw core::UsageError(fmt::format("--grad-accum must be at least 1, got {}", options.micro_batches));
  }
  if (options.lora.empty() != options.adapters.empty())
    throw std::logic_error("adapters were not looked up: compile::find_adapters");
  const Sharding& split = options.sharding;
  if (!options.lora.empty() && (split.tensor > 1 || split.pipeline > 1 || split.zero > 0 || split.expert > 1))
    throw core::Unavailable(
        "--lora: adapters are trained by data-parallel ranks alone yet; leave out --zero, "
        "--tp, --pp and --ep");
  if (options.base != core::WeightFormat::plain) {
    if (split.tensor > 1 || split.pipeline > 1 || split.zero > 0 || split.expert > 1)
      throw core::Unavailable(
          fmt::format("--base {}: whole matrices alone are packed yet; leave out --zero, "
                      "--tp, --pp and --ep",
                      name_of(options.base)));
    if (options.fp8)
      throw core::UsageError(
          fmt::format("--base {}: matmuls of --dtype fp8 read weights of their own", name_of(options.base)));
  }
  const passes::OptimizerKind optimizer = options.optimizer.kind;
  if (options.optimizer.states != passes::StateKind::fp32) {
    const std::string_view states = name_of(options.optimizer.states);
    if (optimizer == passes::OptimizerKind::sgd || optimizer == passes::OptimizerKind::lion)
      throw core::UsageError(
          fmt::format("--states {}: they are AdamW's, and --optimizer is {}", states, name_of(optimizer)));
    if (split.ranks() > 1)
      throw core::Unavailable(fmt::format("--states {}: they are kept by one rank alone yet", states));
  }
  if (passes::is_of_matrices(optimizer) && (split.tensor > 1 || split.expert > 1)) {
    throw core::Unavailable(fmt::format(
        "--optimizer {} updates whole matrices, of which ranks would have parts: leave out --tp and --ep",
        name_of(optimizer)));
  }
  if (passes::is_of_matrices(optimizer) && split.zero > 0) check_owners(options);
  if (options.dtype == core::DType::f16 && passes::is_of_matrices(optimizer)) {
    throw core::Unavailable(fmt::format(
        "--optimizer {} does not skip updates of gradients that overflow in fp16; take --dtype bf16",
        name_of(optimizer)));
  }
}

/// Weights of a training step: what is packed is not trained.
void check_base(const StepOptions& options) {
  if (options.base == core::WeightFormat::plain || !options.adapters.empty()) return;
  throw core::UsageError(
      fmt::format("--base {}: packed weights are not trained: train adapters beside them (--lora 8)",
                  name_of(options.base)));
}

program::Program pass_of(RunPhase phase, const model::ModelConfig& config, std::int64_t batch,
                         std::int64_t seq) {
  if (!is_generation(phase)) return model::forward(config, batch, seq);
  const model::CacheSize cache{.batch = batch, .positions = seq};
  return phase == RunPhase::prefill ? model::prefill(config, cache, seq) : model::decode(config, cache, seq);
}

program::Program whole_step(program::Program forward, const StepOptions& options, std::string_view stop_after,
                            const std::function<void()>& between) {
  check_options(options);
  check_base(options);
  Making making{.step = std::move(forward)};
  if (!run(training_passes(), making, options, stop_after, between)) program::check(making.step);
  return std::move(making.step);
}

}  // namespace

ComputeDtype compute_dtype_of(const StepOptions& options) {
  return {.dtype = options.fp8 ? core::DType::f8 : options.dtype, .fp32_products = options.fp32_products};
}

void set_compute_dtype(StepOptions& options, const ComputeDtype& compute) {
  options.fp8 = compute.dtype == core::DType::f8;
  options.dtype = options.fp8 ? core::DType::bf16 : compute.dtype;
  options.fp32_products = compute.fp32_products;
}

program::Program program_of(RunPhase phase, const model::ModelConfig& config, std::int64_t batch,
                            std::int64_t seq, const StepOptions& options) {
  return program_of(phase, config, batch, seq, options, {});
}

program::Program program_of(RunPhase phase, const model::ModelConfig& config, std::int64_t batch,
                            std::int64_t seq, const StepOptions& options,
                            const std::function<void()>& between_passes) {
  program::Program forward = pass_of(phase, config, batch, seq);
  if (options.routing != passes::Routing::learned) passes::force_routing(forward);
  return phase == RunPhase::step ? whole_step(std::move(forward), options, {}, between_passes)
                                 : inference_step(std::move(forward), options);
}

passes::AttentionKind default_attention(EngineKind kind) {
  return kind == EngineKind::eager ? passes::AttentionKind::batched : passes::AttentionKind::flash;
}

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const Pass& pass : training_passes()) names.emplace_back(pass.name);
  return names;
}

void check_pass_name(std::string_view name) {
  const std::vector<std::string> names = pass_names();
  if (std::ranges::find(names, name) == names.end())
    throw core::UsageError(core::unknown_name("stage", name, names));
}

std::string micro_batch_name(const std::string& input, int micro_batch) {
  return micro_batch == 0 ? input : fmt::format("{}.{}", input, micro_batch);
}

RankForward rank_forward(program::Program forward, const StepOptions& options) {
  check_options(options);
  Making making{.step = std::move(forward)};
  run(training_passes().first(kForwardPasses), making, options);
  return {.program = std::move(making.step), .shared = std::move(making.shared), .stage = making.stage};
}

program::Program training_step(program::Program forward, const StepOptions& options,
                               std::string_view stop_after) {
  return whole_step(std::move(forward), options, stop_after, {});
}

program::Program training_step(RankForward forward, const StepOptions& options) {
  check_options(options);
  check_base(options);
  Making making{
      .step = std::move(forward.program), .shared = std::move(forward.shared), .stage = forward.stage};
  run(training_passes().subspan(kForwardPasses), making, options);
  program::check(making.step);
  return std::move(making.step);
}

program::Program inference_step(program::Program forward, const StepOptions& options, Weights weights) {
  StepOptions all_rows = options;
  all_rows.expert_capacity = 0;
  program::Program step = rank_forward(std::move(forward), all_rows).program;
  if (is_split(options)) {
    for (program::Op& op : step.ops) give_share(op, 0, 1, options.sharding.data_ranks());
    passes::drop_identities(step);
    passes::shard_inference(step, options.sharding, options.rank, options.optimizer);
    if (options.rewrites.has(Rewrite::sum_in_update))
      passes::wait_for_weights(step, options.sharding, options.rank);
  }
  if (is_fused(options)) chunk_loss(step, options);
  passes::cast(step, options.dtype);
  mark_products(step, options);
  if (is_fused(options)) passes::fuse(step);
  if (options.base != core::WeightFormat::plain) passes::pack_weights(step, options.base);
  const bool is_own = weights == Weights::own;
  const bool is_narrow = core::size_of(options.dtype) == 2;
  const bool narrows = is_narrow && is_own;
  if (is_narrow && (is_own || !options.adapters.empty()))
    passes::narrow_weights(step, options.dtype, is_compact(options), !is_own);
  if (!narrows && is_compact(options)) passes::share_halves(step, options.dtype);
  if (options.fp8) {  // scales come from the current tokens: inference does not share state with training
    passes::Fp8Options current = fp8_options(options);
    current.scaling = passes::Fp8Scaling::current;
    passes::fp8_matmuls(step, current);
    if (narrows) passes::cast_weights_once(step);
  }
  program::check(step);
  return step;
}

}  // namespace rooflm::compile
