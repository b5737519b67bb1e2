// Binds ring attention to its ops (program/ops/ring.cpp).
#include "backends/cuda/kernels/attention/attention_block.h"
#include "backends/cuda/rows/rows.h"
#include "program/ops.h"
#include "program/pieces.h"

namespace rooflm::backends::cuda {
namespace {

using core::DType;

/// `qkv`: packed projections [B, T, (H + 2K) D].
AttentionShape shape_of(const OpView& v, const program::Tensor& qkv) {
  return {.batch = qkv.shape[0],
          .seq = qkv.shape[1],
          .heads = v.integer("heads"),
          .kv_heads = v.integer("kv_heads"),
          .head_dim = v.integer("head_dim"),
          .rules = {.scale = v.op.attrs.has("scale") ? v.number("scale") : 0.0F}};
}

/// Whether keys of other ranks have scores that are scaled products and no more, as kernels of blocks
/// compute.
bool is_plain(const OpView& v) {
  const auto scores = program::Scores::of(v.op.attrs);
  return scores.window == 0 && scores.cap == 0 && !scores.alibi;
}

AttentionBlock block_of(const OpView& v, const program::Tensor& qkv) {
  const auto seen = program::SeenKeys::of(v.integer("index"), v.integer("from"), qkv.shape[1]);
  return {
      .shape = shape_of(v, qkv), .first_query = seen.first_query, .keys = seen.keys, .causal = seen.causal};
}

}  // namespace

Kernel make_take_keys_values(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.outputs_are({0}, dtype)) return {};
  return [context = v.context, dtype, shape = shape_of(v, v.in(0))](const KernelArgs& args) {
    launch_take_keys_values(context->stream(), dtype, shape, args.in[0], args.out[0]);
  };
}

/// Inputs: qkv, keys_values. Outputs: y, lse.
Kernel make_attention_block(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  const AttentionBlock block = block_of(v, v.in(0));
  if (!is_storage(dtype) || !is_plain(v) || !v.inputs_are({1}, dtype) || !v.outputs_are({0}, dtype) ||
      !v.outputs_are({1}, DType::f32) || block.shape.head_dim > kMaxHeadDim) {
    return {};
  }
  return [context = v.context, dtype, block](const KernelArgs& args) {
    launch_attention_block(context->stream(), dtype, block, args.in[0], args.in[1], args.out[0],
                           floats(args.out[1]));
  };
}

/// Inputs: y, lse of the blocks so far, y, lse of one more block. Outputs: the first two, in place.
Kernel make_join_blocks(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.inputs_are({2}, dtype) || !v.inputs_are({1, 3}, DType::f32) ||
      v.op.outputs != std::vector{v.op.inputs[0], v.op.inputs[1]}) {
    return {};
  }
  const core::Shape& y = v.in(0).shape;
  const core::Shape& lse = v.in(1).shape;
  const AttentionShape shape{
      .batch = lse[0], .seq = lse[2], .heads = lse[1], .kv_heads = lse[1], .head_dim = y[-1] / lse[1]};
  return [context = v.context, dtype, shape](const KernelArgs& args) {
    launch_join_blocks(context->stream(), dtype, shape, args.in[2], floats(args.in[3]), args.out[0],
                       floats(args.out[1]));
  };
}

/// Inputs: dy, qkv, keys_values, y, lse [, dq, d_keys_values to accumulate into].
Kernel make_attention_block_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  const AttentionBlock block = block_of(v, v.in(1));
  if (!is_storage(dtype) || !is_plain(v) || !v.inputs_are({1, 2, 3}, dtype) ||
      !v.inputs_are({4}, DType::f32) || !v.outputs_are({0, 1}, DType::f32) ||
      block.shape.head_dim > kMaxHeadDim) {
    return {};
  }
  const std::size_t bytes = attention_block_workspace_bytes(dtype, block);
  void* workspace = v.context->scratch(bytes);
  const auto run = [=, context = v.context, accumulate = v.has_in(5)](const KernelArgs& args) {
    launch_attention_block_backward(context->stream(), dtype, block, args.in[0], args.in[1], args.in[2],
                                    args.in[3], floats(args.in[4]), floats(args.out[0]), floats(args.out[1]),
                                    workspace, accumulate);
  };
  return {run, {.workspace_bytes = as_bytes(bytes), .launches = std::nullopt}};
}

/// Inputs: qkv, dq, d_keys_values.
Kernel make_join_gradients(const OpView& v) {
  const DType dtype = v.out(0).dtype;
  if (!is_storage(dtype) || !v.inputs_are({1, 2}, DType::f32)) return {};
  return [context = v.context, dtype, shape = shape_of(v, v.in(0))](const KernelArgs& args) {
    launch_join_gradients(context->stream(), dtype, shape, floats(args.in[1]), floats(args.in[2]),
                          args.out[0]);
  };
}

MakerRows ring_rows() {
  namespace ops = program::ops;
  return {{&ops::kTakeKeysValues, make_take_keys_values, "take_ends"},
          {&ops::kAttentionBlock, make_attention_block, "attention_block"},
          {&ops::kJoinBlocks, make_join_blocks, "join_blocks"},
          {&ops::kAttentionBlockBackward, make_attention_block_backward, "attention_block_backward"},
          {&ops::kJoinGradients, make_join_gradients, "join_rows"}};
}

}  // namespace rooflm::backends::cuda
