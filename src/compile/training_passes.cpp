// The passes of a training step, in their order.
#include "compile/training_passes.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "compile/passes/cast.h"
#include "compile/passes/chunk_loss.h"
#include "compile/passes/compact_state.h"
#include "compile/passes/differentiate.h"
#include "compile/passes/early_norm.h"
#include "compile/passes/early_updates.h"
#include "compile/passes/fuse.h"
#include "compile/passes/overlap.h"
#include "compile/passes/pack_weights.h"
#include "compile/passes/part_ops.h"
#include "compile/passes/rebuild.h"
#include "compile/passes/ring_attention.h"
#include "compile/passes/scale_loss.h"
#include "compile/passes/shard_experts.h"
#include "compile/passes/shard_tensor.h"
#include "compile/passes/shared_ops.h"
#include "compile/passes/sum_in_update.h"
#include "compile/planned/async_tensor.h"
#include "compile/planned/dropout.h"
#include "compile/planned/fp8_experts.h"
#include "compile/planned/fp8_gathers.h"
#include "compile/planned/fp8_parameters.h"
#include "compile/planned/gather_again.h"
#include "compile/planned/gradient_sums.h"
#include "compile/planned/reduce_early.h"
#include "compile/planned/separate_matmuls.h"
#include "compile/planned/unfused_loss.h"
#include "core/error.h"
#include "core/system/large_pages.h"
#include "program/ops.h"

namespace rooflm::compile {
namespace {

using program::Op;
using program::Program;
using program::Role;
using program::Tensor;
using program::TensorId;

/// Results that each micro-batch has of its own: numbers of things. Losses add up.
bool is_own_result(const Tensor& tensor) {
  return tensor.role == Role::result && tensor.dtype == core::DType::i32;
}

/// Appends the forward pass of one more micro-batch. Weights and losses are shared, and what shared ops make;
/// inputs and activations are new. `renamed` maps tensors of `forward` to those of the step.
void append_micro_batch(Program& step, Program forward, int index, std::vector<TensorId>& renamed) {
  const std::vector<bool> is_shared = passes::find_shared_ops(forward);
  std::vector<bool> keeps_name(renamed.size(), false);
  for (std::size_t i = 0; i < forward.ops.size(); ++i) {
    for (const TensorId id : forward.ops[i].outputs)
      if (is_shared[i] && id != program::kNone) keeps_name[static_cast<std::size_t>(id)] = true;
  }
  for (std::size_t i = 0; i < renamed.size(); ++i) {
    Tensor& tensor = forward.tensors[i];
    if (keeps_name[i] || tensor.role == Role::weight ||
        (tensor.role == Role::result && !is_own_result(tensor)))
      continue;
    if (tensor.role == Role::input || is_own_result(tensor))
      tensor.name = micro_batch_name(tensor.name, index);
    renamed[i] = step.add_tensor(std::move(tensor));
  }
  for (std::size_t i = 0; i < forward.ops.size(); ++i) {
    if (is_shared[i]) continue;
    Op& op = forward.ops[i];
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

/// What lives across steps, and gradients, takes the compute dtype: there are no masters in fp32.
void halve_states(Program& step, core::DType dtype) {
  if (core::size_of(dtype) >= sizeof(float)) return;
  for (Tensor& tensor : step.tensors) {
    const bool is_state =
        tensor.role == Role::weight || tensor.role == Role::optimizer_state || tensor.role == Role::gradient;
    if (is_state && tensor.dtype == core::DType::f32) tensor.dtype = dtype;
  }
}

program::Lane lane_of_small_work(const StepOptions& options) {
  return options.background ? program::Lane::background : program::Lane::compute;
}

/// fp8 keeps copies of 8 bits instead.
bool rebuilds(const StepOptions& options) { return options.rewrites.has(Rewrite::rebuild) && !options.fp8; }

/// In fp32 no epilogue of a GPU's GEMMs computes GELU. Where its gradient can write it again, the two
/// therefore stay ops of their own.
bool fuses_gelu(const StepOptions& options) {
  return options.rewrites.has(Rewrite::gelu_in_epilogue) &&
         (!options.rewrites.has(Rewrite::rebuild) || core::size_of(options.dtype) == 2);
}

/// No epilogue writes GELU again.
bool fuses_gelu_gradient(const StepOptions& options) {
  return options.rewrites.has(Rewrite::gelu_in_epilogue) && !rebuilds(options);
}

/// How many rows an expert takes is of a rank's tokens, and known before rows are exchanged.
void split_forward(Making& making, const StepOptions& options) {
  making.shared.summed = passes::shard_tensor(making.step, options.sharding, options.rank);
  if (options.expert_capacity > 0) passes::limit_experts(making.step, options.expert_capacity);
  if (!is_split(options)) return;
  passes::shard_experts(making.step, options.sharding, options.rank);
  making.stage = passes::cut_stage(making.step, options.sharding, options.rank);
  making.shared.tied = making.stage.tied;
}

/// The backward pass of each micro-batch. The first one is the given forward pass; the others are copies of
/// it.
void differentiate(Making& making, const StepOptions& options) {
  Program& step = making.step;
  const int count = options.micro_batches;
  const Program again = count > 1 ? step : Program{};
  std::vector<TensorId> renamed(again.tensors.size());
  std::iota(renamed.begin(), renamed.end(), 0);
  reserve(step, count);
  for (int i = 0; i < count; ++i) {
    const std::size_t first = i == 0 ? 0 : step.ops.size();
    if (i > 0) append_micro_batch(step, again, i, renamed);
    for (std::size_t k = first; k < step.ops.size(); ++k)
      give_share(step.ops[k], i, count, options.sharding.data_ranks());
    passes::differentiate(step, first, making.gradients);
  }
}

void order_pipeline(Making& making, const StepOptions& options) {
  passes::drop_identities(making.step);
  passes::order_pipeline(making.step, options.sharding, options.rank, options.micro_batches, making.stage);
}

void fuse(Making& making, const StepOptions& options) {
  // Updates of a split step wait for collectives, so all run at the end.
  const bool merges = is_split(options) && !options.rewrites.has(Rewrite::sum_in_update);
  passes::fuse(making.step, {.gelu_in_epilogue = fuses_gelu(options),
                             .gelu_gradient_in_epilogue = fuses_gelu_gradient(options),
                             .bias_in_gradients = options.rewrites.has(Rewrite::bias_in_gradients),
                             .merge_updates = merges});
}

void ring_attention(Making& making, const StepOptions& options) {
  const bool is_gathered = options.rewrites.has(Rewrite::gathered_ring);
  passes::ring_attention(making.step, options.sharding, options.rank,
                         is_gathered ? passes::RingKind::gathered : passes::RingKind::passed);
}

using Options = const StepOptions&;

bool always(Options /*options*/) { return true; }
bool is_fp8(Options options) { return options.fp8; }

template <Rewrite rewrite>
bool has(Options options) {
  return options.rewrites.has(rewrite);
}
/// Of ranks of a split step.
template <Rewrite rewrite>
bool has_split(Options options) {
  return is_split(options) && options.rewrites.has(rewrite);
}
template <Rewrite rewrite>
bool has_split_fp8(Options options) {
  return options.fp8 && has_split<rewrite>(options);
}
template <void (*pass)(Program&)>
void on_step(Making& making, Options /*options*/) {
  pass(making.step);
}

bool chunks_loss(Options options) { return is_fused(options) && !has<Rewrite::unfused_loss>(options); }
/// Of one rank. Plans of other frameworks, which have separate matmuls, update nothing early.
bool updates_early(Options options) {
  return is_fused(options) && !is_split(options) && !has<Rewrite::separate_matmuls>(options);
}

bool has_adapters(Options options) { return !options.adapters.empty(); }

constexpr Pass kPasses[] = {
    {"adapters", has_adapters,
     [](Making& m, Options o) {
       passes::add_adapters(m.step, o.adapters, o.base != core::WeightFormat::plain);
     }},
    {"forward", always, split_forward},
    {"lower_attention", always, [](Making& m, Options o) { passes::lower_attention(m.step, o.attention); }},
    {"differentiate", always, differentiate},
    {"freeze", has_adapters, [](Making& m, Options) { passes::freeze(m.step, m.gradients); }},
    {"order_pipeline", is_split, order_pipeline},
    {"recompute", always,
     [](Making& m, Options o) {
       passes::recompute(m.step, o.recompute, o.rewrites.has(Rewrite::whole_recompute));
     }},
    {"gather_again", has<Rewrite::gather_again>, on_step<passes::gather_again>},
    {"shard_data", is_split,
     [](Making& m, Options o) {
       passes::shard_data(m.step, m.gradients, o.sharding, o.rank, m.shared, o.optimizer);
     }},
    {"optimizer", always,
     [](Making& m, Options o) { passes::append_optimizer(m.step, m.gradients, o.optimizer, is_fused(o)); }},
    {"balance_biases", [](Options o) { return o.optimizer.expert_bias_rate > 0; },
     [](Making& m, Options o) {
       if (is_split(o))
         throw core::UsageError("--expert-bias-rate needs one rank: loads are not summed over ranks");
       passes::balance_biases(m.step, o.optimizer.expert_bias_rate);
     }},
    {"scale_loss", [](Options o) { return o.dtype == core::DType::f16; }, on_step<passes::scale_loss>},
    {"unfused_loss", has<Rewrite::unfused_loss>, on_step<passes::unfused_loss>},
    {"chunk_loss", chunks_loss, [](Making& m, Options o) { chunk_loss(m.step, o); }},
    {"half_states", has<Rewrite::half_states>, [](Making& m, Options o) { halve_states(m.step, o.dtype); }},
    {"cast", always, [](Making& m, Options o) { passes::cast(m.step, o.dtype); }},
    {"half_gradients", has<Rewrite::half_gradients>,
     [](Making& m, Options o) { halve_gradients(m.step, o.dtype); }},
    {"mark_products", always, [](Making& m, Options o) { mark_products(m.step, o); }},
    {"fuse", is_fused, fuse},
    {"pack_weights", [](Options o) { return o.base != core::WeightFormat::plain; },
     [](Making& m, Options o) { passes::pack_weights(m.step, o.base); }},
    {"narrow_frozen", [](Options o) { return has_adapters(o) && core::size_of(o.dtype) == 2; },
     [](Making& m, Options o) { passes::narrow_weights(m.step, o.dtype, is_compact(o), true); }},
    {"rebuild", [](Options o) { return is_fused(o) && rebuilds(o); }, on_step<passes::rebuild>},
    {"narrow_gradients", is_compact,
     [](Making& m, Options o) { passes::narrow_gradients(m.step, o.dtype, o.optimizer.kind); }},
    {"share_halves", is_compact, [](Making& m, Options o) { passes::share_halves(m.step, o.dtype); }},
    {"fp8_matmuls", is_fp8, [](Making& m, Options o) { passes::fp8_matmuls(m.step, fp8_options(o)); }},
    {"fp8_experts", [](Options o) { return o.fp8 && has<Rewrite::fp8_experts>(o); },
     on_step<passes::fp8_experts>},
    {"dropout", has<Rewrite::dropout>, on_step<passes::dropout>},
    {"gradient_sums", has<Rewrite::gradient_sums>, on_step<passes::gradient_sums>},
    {"fp8_gathers", has_split_fp8<Rewrite::fp8_gathers>, on_step<passes::fp8_gathers>},
    {"fp8_parameters", has_split_fp8<Rewrite::fp8_parameters>, on_step<passes::fp8_parameters>},
    {"unit_buffers", is_split, [](Making& m, Options o) { passes::unit_buffers(m.step, o.unit_buffers); }},
    {"async_tensor", has_split<Rewrite::async_tensor>,
     [](Making& m, Options o) { passes::async_tensor(m.step, o.sharding); }},
    {"row_copies", has_split<Rewrite::row_copies>, on_step<passes::row_copies>},
    {"ring_attention", is_split, ring_attention},
    // Before sum_norm: which gradients the norm reads differs between ranks after it.
    {"sum_in_update", has_split<Rewrite::sum_in_update>,
     [](Making& m, Options o) { passes::sum_in_update(m.step, o.sharding, o.rank, lane_of_small_work(o)); }},
    {"sum_norm", is_split,
     [](Making& m, Options o) { passes::sum_norm(m.step, o.sharding, o.rank, m.shared); }},
    {"name_part_ops", is_split, [](Making& m, Options o) { passes::name_part_ops(m.step, o.sharding); }},
    {"separate_matmuls", has<Rewrite::separate_matmuls>, on_step<passes::separate_matmuls>},
    {"reduce_early", has_split<Rewrite::reduce_early>, on_step<passes::reduce_early>},
    {"overlap_collectives", is_split,
     [](Making& m, Options o) { passes::overlap_collectives(m.step, o.sharding.zero >= 2); }},
    {"early_updates", updates_early,
     [](Making& m, Options o) { passes::early_updates(m.step, lane_of_small_work(o)); }},
    {"early_norm", [](Options o) { return updates_early(o) && has<Rewrite::early_norm>(o); },
     on_step<passes::early_norm>},
    {"fp8_scales", is_fp8, [](Making& m, Options o) { passes::append_fp8_scales(m.step, o.fp8_options); }}};

}  // namespace

std::span<const Pass> training_passes() { return kPasses; }

bool is_split(const StepOptions& options) { return options.sharding.ranks() > 1; }

bool is_fused(const StepOptions& options) { return options.engine == EngineKind::fused; }

bool is_compact(const StepOptions& options) {
  return options.rewrites.has(Rewrite::compact_state) && is_fused(options) &&
         core::size_of(options.dtype) == 2;
}

void give_share(Op& op, int index, int count, int ranks) {
  const double parts = static_cast<double>(count) * ranks;
  op.micro_batch = index;
  if (op.is(program::ops::kCrossEntropy)) op.attrs.set("grad_scale", op.attrs.number("grad_scale") / parts);
  if (op.is(program::ops::kRoute)) op.attrs.set("share", op.attrs.number("share") / parts);
  if (op.is(program::ops::kMean)) {
    op.attrs.set("weight", op.attrs.number("weight") / parts);
    op.attrs.set("accumulate", index > 0);
  }
}

void chunk_loss(Program& step, const StepOptions& options) {
  passes::chunk_loss(step, loss_chunk(step, options.loss_chunk_bytes), options.logits_padding);
}

/// Says of matmuls and of attention how fp32 factors are multiplied. Backends without such products ignore
/// it. Attention that becomes blocks of a ring has kernels for plain products only.
void mark_products(Program& program, const StepOptions& options) {
  const bool is_ring = options.sharding.context > 1;
  for (Op& op : program.ops) {
    const bool is_attention =
        op.is(program::ops::kFlashAttention) || op.is(program::ops::kFlashAttentionBackward);
    if (program::ops::is_matmul(op) || (is_attention && !is_ring))
      program::set_fp32_products(op, options.fp32_products);
  }
}

passes::Fp8Options fp8_options(const StepOptions& options) {
  passes::Fp8Options fp8 = options.fp8_options;
  fp8.fuse = is_fused(options) && !options.rewrites.has(Rewrite::fp8_casts_apart);
  if (options.rewrites.has(Rewrite::fp8_own_scales)) {
    fp8.scaling = passes::Fp8Scaling::current;
    fp8.recast_activations = true;
    fp8.fuse = false;
  }
  return fp8;
}

}  // namespace rooflm::compile
