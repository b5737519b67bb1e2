// Flash attention, bound to ops: by cuDNN where it is here and faster, else by the kernels of kernels/.
#include "backends/cuda/kernels/attention/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/cudnn_attention.h"
#include "backends/cuda/rows/rows.h"
#include "core/error.h"
#include "devices/cuda_attention.h"
#include "devices/cuda_workspaces.h"
#include "program/ops.h"

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
          .rules = rules_of(v.op, qkv.shape[1])};
}

/// Whether cuDNN is asked: its graphs are written for windows and any scale.
bool is_for_cudnn(const AttentionShape& s, bool with_sinks) {
  return !(s.rules.cap > 0) && !s.rules.alibi && !(with_sinks && s.rules.sinks);
}

/// Behind a gradient: that of the sinks, from the same operands. Its workspace may be the gradient's.
class SinksGradient {
 public:
  explicit SinksGradient(const OpView& v)
      : sinks_(v, 4),
        shape_(shape_of(v, v.in(1))),
        dtype_(v.in(0).dtype),
        accumulate_(v.accumulates()),
        context_(v.context) {}
  [[nodiscard]] std::size_t workspace_bytes() const {
    return sinks_.exists ? flash_attention_backward_workspace_bytes(shape_) : 0;
  }
  [[nodiscard]] std::int64_t launches() const { return sinks_.exists ? 2 : 0; }
  void submit(const KernelArgs& args, void* workspace) const {
    if (!sinks_.exists) return;
    launch_sinks_gradient(context_->stream(), dtype_, shape_, args.in[0], args.in[2], floats(args.in[3]),
                          sinks_.of(args), floats(args.out[1]), workspace, accumulate_);
  }

 private:
  SinksInput sinks_;
  AttentionShape shape_;
  DType dtype_;
  bool accumulate_;
  std::shared_ptr<Context> context_;
};

devices::AttentionSizes sizes_of(const AttentionShape& s) {
  return {.batch = s.batch, .seq = s.seq, .heads = s.heads, .kv_heads = s.kv_heads, .head_dim = s.head_dim};
}

bool is_own_forward_faster(DType dtype, const AttentionShape& s) {
  const bool on_warp_groups = runs_on_warp_groups(dtype, s);
  return devices::is_own_faster_within_tile(dtype, sizes_of(s), on_warp_groups) ||
         (on_warp_groups && devices::is_short_attention(sizes_of(s)));
}

bool is_own_gradient_faster(DType dtype, const AttentionShape& s, bool deterministic) {
  const bool on_warp_groups = runs_on_warp_groups(dtype, s);
  if (devices::has_few_key_blocks(sizes_of(s), on_warp_groups, deterministic)) return false;
  return devices::is_own_faster_within_tile(dtype, sizes_of(s), on_warp_groups) ||
         (on_warp_groups && devices::is_own_attention_gradient_faster(sizes_of(s), deterministic));
}

/// Whether the gradient is computed in one pass, if its sums may be in any order.
bool is_one_pass_faster(DType dtype, const AttentionShape& s, bool deterministic) {
  return !deterministic && fits_fused_backward(dtype, s) && devices::is_one_pass_gradient_faster(sizes_of(s));
}

std::string variant_of(const AttentionShape& s, DType dtype, Fp32Products products = Fp32Products::plain) {
  return fmt::format("{}x{} heads {}/{} of {} {}", s.batch, s.seq, s.heads, s.kv_heads, s.head_dim,
                     program::rate_name(dtype, products));
}

/// The family of kernels that the launchers of kernels/attention.h take.
std::string own_name(std::string_view what, DType dtype, const AttentionShape& s, Fp32Products products) {
  const std::string_view family = runs_on_warp_groups(dtype, s)              ? "sm90"
                                  : runs_on_tensor_cores(dtype, s, products) ? "mma"
                                                                             : "fp32";
  return fmt::format("{}_{}<{}>", what, family, s.head_dim);
}

/// What a plan of cuDNN launches it does not say.
KernelInfo cudnn_info(const std::string& engine, const AttentionShape& shape, DType dtype,
                      std::size_t workspace_bytes) {
  return {.name = engine,
          .library = "cuDNN " + query_cudnn().version,
          .variant = variant_of(shape, dtype),
          .workspace_bytes = as_bytes(workspace_bytes),
          .launches = std::nullopt};
}

bool is_forward(const OpView& v, DType dtype) {
  return v.outputs_are({0}, dtype) && v.outputs_are({1}, DType::f32);
}

bool is_gradient(const OpView& v, DType dtype) {
  return v.inputs_are({1, 2}, dtype) && v.inputs_are({3}, DType::f32) && v.outputs_are({0}, dtype) &&
         (!v.has_in(4) || v.outputs_are({1}, DType::f32));
}

}  // namespace

/// Inputs: qkv [, sinks]. Outputs: y, lse.
Kernel make_cudnn_attention(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  const AttentionShape shape = shape_of(v, v.in(0));
  if (!is_forward(v, dtype) || !is_for_cudnn(shape, true) || is_own_forward_faster(dtype, shape)) return {};
  const CudnnForward forward = v.context->cudnn().forward(shape, dtype);
  if (!forward.submit) return {};
  void* workspace = v.context->scratch(forward.workspace_bytes);
  return {[forward, workspace, context = v.context](const KernelArgs& args) {
            forward.submit(args.in[0], args.out[0], floats(args.out[1]), workspace);
          },
          cudnn_info(forward.engine, shape, dtype, forward.workspace_bytes)};
}

Kernel make_flash_attention(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  const AttentionShape shape = shape_of(v, v.in(0));
  if (!is_storage(dtype) || !is_forward(v, dtype) || shape.head_dim > kMaxHeadDim) return {};
  const Fp32Products products = program::fp32_products_of(v.op);
  return {[=, context = v.context, sinks = SinksInput(v, 1)](const KernelArgs& args) {
            launch_flash_attention(context->stream(), dtype, shape, args.in[0], args.out[0],
                                   floats(args.out[1]), products, sinks.of(args));
          },
          {.name = own_name("attention_forward", dtype, shape, products),
           .variant = variant_of(shape, dtype, products)}};
}

/// Inputs: dy, qkv, y, lse [, sinks]. Outputs: dqkv [, d_sinks].
Kernel make_cudnn_attention_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  const AttentionShape shape = shape_of(v, v.in(1));
  const GradientOrder order{.deterministic = v.context->options().deterministic};
  // In a fixed order it stores the gradients of all scores, also of those that a window hides.
  const bool stores_hidden =
      order.deterministic && shape.rules.window > 0 && runs_on_warp_groups(dtype, shape);
  if (!is_gradient(v, dtype) || !is_for_cudnn(shape, false) || stores_hidden ||
      is_own_gradient_faster(dtype, shape, order.deterministic)) {
    return {};
  }
  const CudnnGradient gradient = v.context->cudnn().gradient(shape, dtype, order);
  if (!gradient.submit) return {};
  const SinksGradient sinks(v);
  const std::size_t bytes = std::max(gradient.workspace_bytes, sinks.workspace_bytes());
  void* workspace = nullptr;
  try {
    workspace = v.context->scratch(bytes);
  } catch (const core::OutOfMemory&) {
    return {};  // the own kernels need none to speak of
  }
  return {[gradient, workspace, sinks](const KernelArgs& args) {
            gradient.submit(args.in[0], args.in[1], args.in[2], floats(args.in[3]), args.out[0], workspace);
            sinks.submit(args, workspace);
          },
          cudnn_info(gradient.engine, shape, dtype, bytes)};
}

/// Its sums of the queries' gradients are in any order.
Kernel make_one_pass_attention_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  const AttentionShape shape = shape_of(v, v.in(1));
  const bool deterministic = v.context->options().deterministic;
  if (!is_gradient(v, dtype) || !is_one_pass_faster(dtype, shape, deterministic)) return {};
  const SinksGradient sinks(v);
  const std::size_t bytes =
      std::max(fused_attention_backward_workspace_bytes(shape), sinks.workspace_bytes());
  void* workspace = nullptr;
  try {
    workspace = v.context->scratch(bytes);
  } catch (const core::OutOfMemory&) {
    return {};  // other kernels need less
  }
  const auto run = [=, context = v.context](const KernelArgs& args) {
    launch_fused_attention_backward(context->stream(), shape, args.in[0], args.in[1], args.in[2],
                                    floats(args.in[3]), args.out[0], workspace);
    sinks.submit(args, workspace);
  };
  constexpr std::int64_t kLaunches = 3;  // sums of rows and zeros, the matmuls, rounding of dq
  return {run,
          {.name = fmt::format("attention_backward_one_pass<{}>", shape.head_dim),
           .variant = variant_of(shape, dtype),
           .workspace_bytes = as_bytes(bytes),
           .launches = kLaunches + sinks.launches()}};
}

Kernel make_flash_attention_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  const AttentionShape shape = shape_of(v, v.in(1));
  if (!is_storage(dtype) || !is_gradient(v, dtype) || shape.head_dim > kMaxHeadDim) return {};
  const std::size_t bytes = flash_attention_backward_workspace_bytes(shape);
  void* workspace = v.context->scratch(bytes);
  const Fp32Products products = program::fp32_products_of(v.op);
  const SinksGradient sinks(v);
  const auto run = [=, context = v.context](const KernelArgs& args) {
    launch_flash_attention_backward(context->stream(), dtype, shape, args.in[0], args.in[1], args.in[2],
                                    floats(args.in[3]), args.out[0], workspace, products);
    sinks.submit(args, workspace);
  };
  constexpr std::int64_t kTensorCores = 2;  // dq, and then dk and dv
  constexpr std::int64_t kCudaCores = 3;    // the sums of each row before them
  return {run,
          {.name = own_name("attention_backward", dtype, shape, products),
           .variant = variant_of(shape, dtype, products),
           .workspace_bytes = as_bytes(bytes),
           .launches = (runs_on_tensor_cores(dtype, shape, products) ? kTensorCores : kCudaCores) +
                       sinks.launches()}};
}

MakerRows attention_rows() {
  namespace ops = program::ops;
  return {{&ops::kFlashAttention, make_cudnn_attention, "cudnn_attention"},
          {&ops::kFlashAttention, make_flash_attention, "flash_attention"},
          {&ops::kFlashAttentionBackward, make_one_pass_attention_backward, "one_pass_attention_backward"},
          {&ops::kFlashAttentionBackward, make_cudnn_attention_backward, "cudnn_attention_backward"},
          {&ops::kFlashAttentionBackward, make_flash_attention_backward, "flash_attention_backward"}};
}

}  // namespace rooflm::backends::cuda
