// Binds norms of heads and their gradients to their ops.
#include "backends/cuda/kernels/norm/head_norm.h"

#include "backends/cuda/rows/rows.h"
#include "program/ops.h"

namespace rooflm::backends::cuda {
namespace {

using core::DType;

HeadNorm shape_of(const OpView& v, std::size_t qkv, std::size_t weights) {
  const bool has_weights = v.has_in(weights);
  return {.dtype = v.in(qkv).dtype,
          .is_whole = v.op.attrs.flag("whole"),
          .is_layer = v.op.attrs.flag("layer"),
          .accumulate = v.accumulates(),
          .rows = rows_of(v.in(qkv)),
          .heads = v.integer("heads"),
          .kv_heads = v.integer("kv_heads"),
          .head_dim = v.integer("head_dim"),
          .groups = v.op.attrs.flag("whole") ? 2 : v.integer("heads") + v.integer("kv_heads"),
          .width = v.in(qkv).shape[-1],
          .eps = v.number("eps"),
          .q_weights = has_weights ? v.in(weights).shape[0] : 0,
          .k_weights = has_weights ? v.in(weights + 1).shape[0] : 0};
}

}  // namespace

/// Inputs: qkv [, wq, wk [, bq, bk]]. Outputs: y, statistics.
Kernel make_head_norm(const OpView& v) {
  const HeadNorm shape = shape_of(v, 0, 1);
  if (!is_storage(shape.dtype) || !v.outputs_are({0}, shape.dtype) || !v.outputs_are({1}, DType::f32) ||
      !v.inputs_are({1, 2, 3, 4}, DType::f32)) {
    return {};
  }
  return [context = v.context, shape, has_biases = v.has_in(3)](const KernelArgs& args) {
    HeadNorm norm = shape;
    if (norm.q_weights > 0) norm.wq = floats(args.in[1]);
    if (norm.k_weights > 0) norm.wk = floats(args.in[2]);
    if (has_biases) norm.bq = floats(args.in[3]);
    if (has_biases) norm.bk = floats(args.in[4]);
    launch_head_norm(context->stream(), norm, args.in[0], args.out[0], floats(args.out[1]));
  };
}

/// Inputs: dy, qkv, statistics [, wq, wk]. Outputs: dqkv [, dwq, dwk [, dbq, dbk]].
Kernel make_head_norm_backward(const OpView& v) {
  const HeadNorm shape = shape_of(v, 1, 3);
  const bool has_weights = shape.q_weights > 0;
  const bool has_biases = v.op.attrs.flag("head_biases");
  if (!is_storage(shape.dtype) || !v.inputs_are({0}, shape.dtype) || !v.outputs_are({0}, shape.dtype) ||
      !v.inputs_are({2, 3, 4}, DType::f32) || (has_weights && !v.outputs_are({1, 2}, DType::f32)) ||
      (has_biases && !v.outputs_are({3, 4}, DType::f32))) {
    return {};
  }
  const std::size_t bytes = head_norm_workspace_bytes(shape);
  auto* workspace = has_weights ? floats(v.context->scratch(bytes)) : nullptr;
  const auto run = [=, context = v.context](const KernelArgs& args) {
    HeadNorm norm = shape;
    if (has_weights) norm.wq = floats(args.in[3]);
    if (has_weights) norm.wk = floats(args.in[4]);
    const auto sums = [&](bool exist, std::size_t first) {
      return exist ? HeadNormSums{floats(args.out[first]), floats(args.out[first + 1])} : HeadNormSums{};
    };
    launch_head_norm_backward(context->stream(), norm, args.in[0], args.in[1], floats(args.in[2]),
                              args.out[0], sums(has_weights, 1), sums(has_biases, 3), workspace);
  };
  return {run,
          {.workspace_bytes = as_bytes(bytes), .launches = head_norm_backward_launches(shape, has_biases)}};
}

MakerRows head_norm_rows() {
  namespace ops = program::ops;
  return {{&ops::kHeadNorm, make_head_norm, "head_norm"},
          {&ops::kHeadNormBackward, make_head_norm_backward, "head_norm_backward"}};
}

}  // namespace rooflm::backends::cuda
