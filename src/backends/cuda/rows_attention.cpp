// Flash attention, bound to ops: cuDNN where it is here and takes the shape, else the kernels of kernels/.
#include "backends/cuda/cudnn_attention.h"
#include "backends/cuda/kernel_rows.h"
#include "backends/cuda/kernels/attention.h"

namespace rooflm::backends::cuda {
namespace {

using core::DType;

/// `qkv`: packed projections [B, T, (H + 2K) D].
AttentionShape shape_of(const OpView& v, const program::Tensor& qkv) {
  return {.batch = qkv.shape[0],
          .seq = qkv.shape[1],
          .heads = v.integer("heads"),
          .kv_heads = v.integer("kv_heads"),
          .head_dim = v.integer("head_dim")};
}

}  // namespace

/// Inputs: qkv. Outputs: y, lse.
Kernel make_flash_attention(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  const AttentionShape shape = shape_of(v, v.in(0));
  if (!outputs_are(v, {0}, dtype) || !outputs_are(v, {1}, DType::f32)) return {};
  if (const AttentionForward forward = v.context->cudnn().forward(shape, dtype); forward.submit) {
    void* workspace = v.context->scratch(forward.workspace_bytes);
    return [forward, workspace, context = v.context](const KernelArgs& args) {
      forward.submit(args.in[0], args.out[0], floats(args.out[1]), workspace);
    };
  }
  if (!is_storage(dtype) || shape.head_dim > kMaxHeadDim) return {};
  return [=, context = v.context](const KernelArgs& args) {
    launch_flash_attention(context->stream(), dtype, shape, args.in[0], args.out[0], floats(args.out[1]));
  };
}

/// Inputs: dy, qkv, y, lse.
Kernel make_flash_attention_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  const AttentionShape shape = shape_of(v, v.in(1));
  if (!inputs_are(v, {1, 2}, dtype) || !inputs_are(v, {3}, DType::f32) || !outputs_are(v, {0}, dtype)) {
    return {};
  }
  const GradientOrder order{.deterministic = v.context->options().deterministic};
  if (const AttentionGradient gradient = v.context->cudnn().gradient(shape, dtype, order); gradient.submit) {
    void* workspace = v.context->scratch(gradient.workspace_bytes);
    return [gradient, workspace, context = v.context](const KernelArgs& args) {
      gradient.submit(args.in[0], args.in[1], args.in[2], floats(args.in[3]), args.out[0], workspace);
    };
  }
  if (!is_storage(dtype) || shape.head_dim > kMaxHeadDim) return {};
  void* workspace = v.context->scratch(flash_attention_backward_workspace_bytes(shape));
  return [=, context = v.context](const KernelArgs& args) {
    launch_flash_attention_backward(context->stream(), dtype, shape, args.in[0], args.in[1], args.in[2],
                                    floats(args.in[3]), args.out[0], workspace);
  };
}

}  // namespace rooflm::backends::cuda
