// Engines as recipes: from a model's forward pass to the program that an engine runs.
#include "compile/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "compile/passes/async_tensor.h"
#include "compile/passes/cast.h"
#include "compile/passes/chunk_loss.h"
#include "compile/passes/collective_copies.h"
#include "compile/passes/compact_state.h"
#include "compile/passes/differentiate.h"
#include "compile/passes/dropout.h"
#include "compile/passes/early_norm.h"
#include "compile/passes/early_updates.h"
#include "compile/passes/fp8_gathers.h"
#include "compile/passes/fp8_parameters.h"
#include "compile/passes/fuse.h"
#include "compile/passes/gather_again.h"
#include "compile/passes/gradient_sums.h"
#include "compile/passes/overlap.h"
#include "compile/passes/part_ops.h"
#include "compile/passes/rebuild.h"
#include "compile/passes/reduce_early.h"
#include "compile/passes/ring_attention.h"
#include "compile/passes/scale_loss.h"
#include "compile/passes/separate_matmuls.h"
#include "compile/passes/shard_tensor.h"
#include "compile/passes/sum_in_update.h"
#include "compile/passes/unfused_loss.h"
#include "core/error.h"
#include "core/large_pages.h"
#include "core/names.h"
#include "program/ops.h"

namespace rooflm::compile {
namespace {

using program::Op;
using program::Program;
using program::Role;
using program::Tensor;
using program::TensorId;

/// Makes `op` part of micro-batch `index`. `count` micro-batches on each of `ranks` ranks form the step's
/// batch.
void give_share(Op& op, int index, int count, int ranks) {
  const double parts = static_cast<double>(count) * ranks;
  op.micro_batch = index;
  if (op.is(program::ops::kCrossEntropy)) op.attrs.set("grad_scale", op.attrs.number("grad_scale") / parts);
  if (op.is(program::ops::kMean)) {
    op.attrs.set("weight", op.attrs.number("weight") / parts);
    op.attrs.set("accumulate", index > 0);
  }
}

/// Appends the forward pass of one more micro-batch. Weights and results are shared; inputs and activations
/// are new. `renamed` maps tensors of `forward` to those of the step.
void append_micro_batch(Program& step, Program forward, int index, std::vector<TensorId>& renamed) {
  for (std::size_t i = 0; i < renamed.size(); ++i) {
    Tensor& tensor = forward.tensors[i];
    if (tensor.role == Role::weight || tensor.role == Role::result) continue;
    if (tensor.role == Role::input) tensor.name = micro_batch_name(tensor.name, index);
    renamed[i] = step.add_tensor(std::move(tensor));
  }
  for (Op& op : forward.ops) {
    for (auto* operands : {&op.inputs, &op.outputs}) {
      for (TensorId& id : *operands) {
        if (id != program::kNone) id = renamed[static_cast<std::size_t>(id)];
      }
    }
    step.ops.push_back(std::move(op));
  }
}

/// Most loss chunks per micro-batch, so that a step of ten million sequences does not have millions of ops.
/// From about a million tokens on, chunks exceed their limit; they are still a hundredth of what one layer
/// keeps.
constexpr std::int64_t kMostChunks = 4096;

/// Rows of logits per chunk: as few chunks as the limit allows, of nearly equal size.
std::int64_t loss_chunk(const Program& program, std::int64_t max_bytes) {
  for (const Op& op : program.ops) {
    if (!op.is(program::ops::kCrossEntropy)) continue;
    const std::int64_t most = passes::chunk_rows(program.shape(op.inputs[0])[-1], max_bytes);
    const std::int64_t all = op.attrs.integer("rows");
    const std::int64_t chunks = std::min((all - 1) / most + 1, kMostChunks);
    const std::int64_t rows = (all - 1) / chunks + 1;
    return ((rows - 1) / passes::kChunkUnit + 1) * passes::kChunkUnit;
  }
  return 1;
}

/// Says of matmuls and of attention how fp32 factors are multiplied. Backends without such products ignore
/// it. Attention that becomes blocks of a ring has kernels for plain products only.
void mark_products(Program& program, const StepOptions& options) {
  const bool is_ring = options.sharding.context > 1;
  for (Op& op : program.ops) {
    const bool is_attention =
        op.is(program::ops::kFlashAttention) || op.is(program::ops::kFlashAttentionBackward);
    if (op.is(program::ops::kMatmul) || (is_attention && !is_ring))
      program::set_fp32_products(op, options.fp32_products);
  }
}

/// Reserves memory for a step of so many micro-batches, beyond what model::forward reserved: lists that grow
/// to hundreds of megabytes would be copied many times. Unused capacity costs no memory.
void reserve(Program& step, int micro_batches) {
  constexpr std::size_t kMost = std::size_t{1} << 20U;
  const std::size_t count = std::min(static_cast<std::size_t>(micro_batches), kMost);
  // Per micro-batch its forward and backward ops; once the updates and their states.
  const auto room = [&](std::size_t of_forward) {
    return of_forward < kMost ? std::min(kMost, of_forward * (3 * count + 1)) : of_forward;
  };
  core::reserve_in_large_pages(step.tensors, room(step.tensors.size()));
  core::reserve_in_large_pages(step.ops, room(step.ops.size()));
}

/// Weight gradients take the compute dtype: whole ones, parts, and those that accumulate over micro-batches.
void halve_gradients(Program& step, core::DType dtype) {
  if (core::size_of(dtype) >= sizeof(float)) return;
  for (Tensor& tensor : step.tensors)
    if (tensor.role == Role::gradient) tensor.dtype = dtype;
}

bool is_compact(const StepOptions& options) {
  return options.compact_state && options.engine == EngineKind::fused && core::size_of(options.dtype) == 2;
}

program::Lane lane_of_small_work(const StepOptions& options) {
  return options.background ? program::Lane::background : program::Lane::compute;
}

/// fp8 keeps copies of 8 bits instead.
bool rebuilds(const StepOptions& options) { return options.rebuild && !options.fp8; }

/// In fp32 no epilogue of a GPU's GEMMs computes GELU. Where its gradient can write it again, the two
/// therefore stay ops of their own.
bool fuses_gelu(const StepOptions& options) {
  return options.gelu_in_epilogue && (!options.rebuild || core::size_of(options.dtype) == 2);
}

/// No epilogue writes GELU again.
bool fuses_gelu_gradient(const StepOptions& options) {
  return options.gelu_in_epilogue && !rebuilds(options);
}

passes::Fp8Options fp8_options(const StepOptions& options) {
  passes::Fp8Options fp8 = options.fp8_options;
  fp8.fuse = options.engine == EngineKind::fused && !options.fp8_casts_apart;
  if (options.fp8_own_scales) {
    fp8.scaling = passes::Fp8Scaling::current;
    fp8.recast_activations = true;
    fp8.fuse = false;
  }
  return fp8;
}

constexpr std::pair<Stage, const char*> kStages[] = {{Stage::forward, "forward"},
                                                     {Stage::lowered, "lowered"},
                                                     {Stage::differentiated, "differentiated"},
                                                     {Stage::recomputed, "recomputed"},
                                                     {Stage::optimizer, "optimizer"},
                                                     {Stage::cast, "cast"},
                                                     {Stage::fused, "fused"}};

}  // namespace

std::string_view name_of(EngineKind kind) { return kind == EngineKind::eager ? "eager" : "fused"; }

std::string_view dtype_name(const StepOptions& options) {
  if (options.fp8) return core::name_of(core::DType::f8);
  return program::rate_name(options.dtype, options.fp32_products);
}

EngineKind parse_engine(std::string_view name) {
  if (name == "eager") return EngineKind::eager;
  if (name == "fused") return EngineKind::fused;
  throw core::UsageError(core::unknown_name("engine", name, std::vector<std::string>{"eager", "fused"}));
}

passes::AttentionKind default_attention(EngineKind kind) {
  return kind == EngineKind::eager ? passes::AttentionKind::batched : passes::AttentionKind::flash;
}

std::string_view name_of(Stage stage) {
  for (const auto& [value, name] : kStages) {
    if (value == stage) return name;
  }
  return "?";
}

Stage parse_stage(std::string_view name) {
  std::vector<std::string> known;
  for (const auto& [value, known_name] : kStages) {
    if (name == known_name) return value;
    known.emplace_back(known_name);
  }
  throw core::UsageError(core::unknown_name("stage", name, known));
}

std::string micro_batch_name(const std::string& input, int micro_batch) {
  return micro_batch == 0 ? input : fmt::format("{}.{}", input, micro_batch);
}

namespace {

bool is_split(const StepOptions& options) { return options.sharding.ranks() > 1; }

void check_micro_batches(const StepOptions& options) {
  if (options.micro_batches < 1) {
    throw core::UsageError(fmt::format("--grad-accum must be at least 1, got {}", options.micro_batches));
  }
}

RankForward split_forward(Program forward, const StepOptions& options) {
  check_micro_batches(options);
  RankForward own;
  if (is_split(options)) {
    own.shared.summed = passes::shard_tensor(forward, options.sharding, options.rank);
    own.stage = passes::cut_stage(forward, options.sharding, options.rank);
    own.shared.tied = own.stage.tied;
  }
  own.program = std::move(forward);
  return own;
}

}  // namespace

RankForward rank_forward(Program forward, const StepOptions& options) {
  RankForward own = split_forward(std::move(forward), options);
  passes::lower_attention(own.program, options.attention);
  return own;
}

Program training_step(Program forward, const StepOptions& options, Stage stop_after) {
  RankForward own = split_forward(std::move(forward), options);
  if (stop_after == Stage::forward) return std::move(own.program);
  passes::lower_attention(own.program, options.attention);
  if (stop_after == Stage::lowered) return std::move(own.program);
  return training_step(std::move(own), options, stop_after);
}

Program training_step(RankForward forward, const StepOptions& options, Stage stop_after) {
  check_micro_batches(options);
  const Sharding& split = options.sharding;
  // The first micro-batch is the given forward pass; the others are copies of it.
  const int count = options.micro_batches;
  const Program again = count > 1 ? forward.program : Program{};
  std::vector<TensorId> renamed(again.tensors.size());
  std::iota(renamed.begin(), renamed.end(), 0);
  Program step = std::move(forward.program);
  reserve(step, count);
  program::GradientMap gradients;
  for (int i = 0; i < count; ++i) {
    const std::size_t first = i == 0 ? 0 : step.ops.size();
    if (i > 0) append_micro_batch(step, again, i, renamed);
    for (std::size_t k = first; k < step.ops.size(); ++k)
      give_share(step.ops[k], i, count, split.data_ranks());
    passes::differentiate(step, first, gradients);
  }
  if (is_split(options)) {
    passes::drop_identities(step);
    passes::order_pipeline(step, split, options.rank, options.micro_batches, forward.stage);
  }
  if (stop_after == Stage::differentiated) return step;
  passes::recompute(step, options.recompute, options.whole_recompute);
  if (options.gather_again) passes::gather_again(step);
  if (is_split(options)) passes::shard_data(step, gradients, split, options.rank, forward.shared);
  if (stop_after == Stage::recomputed) return step;
  passes::append_optimizer(step, gradients, options.optimizer);
  if (options.dtype == core::DType::f16) passes::scale_loss(step);
  if (stop_after == Stage::optimizer) return step;
  if (options.unfused_loss) {
    passes::unfused_loss(step);
  } else if (options.engine == EngineKind::fused) {
    passes::chunk_loss(step, loss_chunk(step, options.loss_chunk_bytes), options.logits_padding);
  }
  passes::cast(step, options.dtype);
  if (options.half_gradients) halve_gradients(step, options.dtype);
  mark_products(step, options);
  if (stop_after == Stage::cast) return step;
  if (options.engine == EngineKind::fused) {
    // Updates of a split step wait for collectives, so all run at the end.
    passes::fuse(step, {.gelu_in_epilogue = fuses_gelu(options),
                        .gelu_gradient_in_epilogue = fuses_gelu_gradient(options),
                        .bias_in_gradients = options.bias_in_gradients,
                        .merge_updates = is_split(options) && !options.sum_in_update});
    if (rebuilds(options)) passes::rebuild(step);
  }
  if (is_compact(options)) passes::narrow_gradients(step, options.dtype);
  if (is_compact(options)) passes::share_halves(step, options.dtype);
  if (options.fp8) passes::fp8_matmuls(step, fp8_options(options));
  if (options.dropout) passes::dropout(step);
  if (options.gradient_sums) passes::gradient_sums(step);
  if (is_split(options)) {
    if (options.fp8 && options.fp8_gathers) passes::fp8_gathers(step);
    if (options.fp8 && options.fp8_parameters) passes::fp8_parameters(step);
    passes::unit_buffers(step, options.unit_buffers);
    if (options.async_tensor) passes::async_tensor(step, split);
    if (options.row_copies) passes::row_copies(step);
    passes::ring_attention(step, split, options.rank,
                           options.gathered_ring ? passes::RingKind::gathered : passes::RingKind::passed);
    // Before sum_norm: which gradients the norm reads differs between ranks after it.
    if (options.sum_in_update) passes::sum_in_update(step, split, options.rank, lane_of_small_work(options));
    passes::sum_norm(step, split, options.rank, forward.shared);
    passes::name_part_ops(step, split);
    if (options.separate_matmuls) passes::separate_matmuls(step);
    if (options.reduce_early) passes::reduce_early(step);
    passes::overlap_collectives(step, options.sharding.zero >= 2);
  } else if (options.separate_matmuls) {  // for plans of other frameworks, which update nothing early
    passes::separate_matmuls(step);
  } else if (options.engine == EngineKind::fused) {
    passes::early_updates(step, lane_of_small_work(options));
    if (options.early_norm) passes::early_norm(step);
  }
  if (options.fp8) passes::append_fp8_scales(step, options.fp8_options);
  program::check(step);
  return step;
}

Program inference_step(Program forward, const StepOptions& options, Weights weights) {
  Program step = rank_forward(std::move(forward), options).program;
  if (is_split(options)) {
    for (Op& op : step.ops) give_share(op, 0, 1, options.sharding.data_ranks());
    passes::drop_identities(step);
    passes::shard_inference(step, options.sharding, options.rank);
    if (options.sum_in_update) passes::wait_for_weights(step, options.sharding, options.rank);
  }
  if (options.engine == EngineKind::fused)
    passes::chunk_loss(step, loss_chunk(step, options.loss_chunk_bytes), options.logits_padding);
  passes::cast(step, options.dtype);
  mark_products(step, options);
  if (options.engine == EngineKind::fused) passes::fuse(step);
  const bool narrows = weights == Weights::own && core::size_of(options.dtype) == 2;
  if (narrows) {
    passes::narrow_weights(step, options.dtype, is_compact(options));
  } else if (is_compact(options)) {
    passes::share_halves(step, options.dtype);
  }
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
