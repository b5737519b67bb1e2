// Binds norms, with the residual addition, and their gradients to their ops.
#include "backends/cuda/kernels/norm/norm.h"
#include "backends/cuda/rows/rows.h"
#include "program/ops.h"

namespace rooflm::backends::cuda {
namespace {

using core::DType;

/// Whether everything from input `first` on is fp32: weights and statistics.
bool rest_is_f32(const OpView& v, std::size_t first, std::size_t last) {
  for (std::size_t i = first; i < last; ++i) {
    if (!v.inputs_are({i}, DType::f32)) return false;
  }
  return true;
}

NormForward forward_shape(const OpView& v) {
  return {
      .dtype = v.in(0).dtype, .rows = rows_of(v.in(0)), .cols = v.in(0).shape[-1], .eps = v.number("eps")};
}

bool fits(const NormForward& norm) { return is_storage(norm.dtype) && norm.cols <= kMaxNormCols; }

/// Bytes for partial sums of `arrays` gradients.
std::size_t sum_bytes(const OpView& v, int arrays) {
  return norm_backward_workspace_bytes(rows_of(v.in(1)), v.in(1).shape[-1], arrays);
}

NormBackward backward_shape(const OpView& v, int arrays) {
  NormBackward norm{.dtype = v.in(1).dtype,
                    .accumulate = v.accumulates(),
                    .rows = rows_of(v.in(1)),
                    .cols = v.in(1).shape[-1]};
  norm.workspace = v.context->scratch(sum_bytes(v, arrays));
  return norm;
}

KernelInfo backward_info(const OpView& v, int arrays, std::int64_t launches) {
  return {.workspace_bytes = as_bytes(sum_bytes(v, arrays)), .launches = launches};
}

/// Whether dy, x, the residual gradient, dx and y (output number `y`, if any) share a supported dtype, and
/// the rest is fp32.
bool backward_fits(const OpView& v, std::size_t residual, std::size_t y) {
  const DType dtype = v.in(1).dtype;
  return is_storage(dtype) && v.inputs_are({0, residual}, dtype) && v.outputs_are({0}, dtype) &&
         (!rebuilds(v) || v.outputs_are({y}, dtype)) && rest_is_f32(v, 2, residual) &&
         v.in(1).shape[-1] <= kMaxNormCols;
}

}  // namespace

/// Inputs: x, w, b. Outputs: y, mean, rstd.
Kernel make_layernorm(const OpView& v) {
  const NormForward shape = forward_shape(v);
  if (!fits(shape) || !v.outputs_are({0}, shape.dtype) || !rest_is_f32(v, 1, 3)) return {};
  return [context = v.context, shape](const KernelArgs& args) {
    NormForward norm = shape;
    norm.x = args.in[0];
    norm.weight = floats(args.in[1]);
    norm.bias = floats(args.in[2]);
    norm.y = args.out[0];
    norm.mean = floats(args.out[1]);
    norm.rstd = floats(args.out[2]);
    launch_layernorm(context->stream(), norm);
  };
}

/// Inputs: x, y, w, b. Outputs: r, y, mean, rstd.
Kernel make_add_layernorm(const OpView& v) {
  const NormForward shape = forward_shape(v);
  if (!fits(shape) || !v.inputs_are({1}, shape.dtype) || !v.outputs_are({0, 1}, shape.dtype) ||
      !rest_is_f32(v, 2, 4)) {
    return {};
  }
  return [context = v.context, shape](const KernelArgs& args) {
    NormForward norm = shape;
    norm.x = args.in[0];
    norm.addend = args.in[1];
    norm.weight = floats(args.in[2]);
    norm.bias = floats(args.in[3]);
    norm.sum = args.out[0];
    norm.y = args.out[1];
    norm.mean = floats(args.out[2]);
    norm.rstd = floats(args.out[3]);
    launch_layernorm(context->stream(), norm);
  };
}

/// Inputs: dy, x, w, mean, rstd [, residual gradient [, b]]. Outputs: dx, dw, db [, sums of dx] [, y].
Kernel make_layernorm_backward(const OpView& v) {
  constexpr std::size_t kResidual = 5;
  constexpr std::size_t kBias = 6;
  constexpr std::size_t kSums = 3;
  const bool has_sums = v.op.attrs.flag("bias_gradient");
  const std::size_t y = has_sums ? kSums + 1 : kSums;
  if (has_sums && !v.outputs_are({kSums}, DType::f32)) return {};
  if (!backward_fits(v, kResidual, y) || (rebuilds(v) && !v.inputs_are({kBias}, DType::f32))) return {};
  const bool has_residual = v.has_in(kResidual);
  const int arrays = has_sums ? 3 : 2;
  const auto run = [context = v.context, shape = backward_shape(v, arrays), has_residual, has_sums, y,
                    again = rebuilds(v)](const KernelArgs& args) {
    NormBackward norm = shape;
    norm.dy = args.in[0];
    norm.x = args.in[1];
    norm.weight = floats(args.in[2]);
    norm.mean = floats(args.in[3]);
    norm.rstd = floats(args.in[4]);
    norm.d_residual = has_residual ? args.in[kResidual] : nullptr;
    norm.dx = args.out[0];
    norm.dweight = floats(args.out[1]);
    norm.dbias = floats(args.out[2]);
    norm.bias = again ? floats(args.in[kBias]) : nullptr;
    norm.y = again ? args.out[y] : nullptr;
    norm.dx_sums = has_sums ? floats(args.out[kSums]) : nullptr;
    launch_layernorm_backward(context->stream(), norm);
  };
  return {run,
          backward_info(v, arrays, layernorm_backward_launches(v.in(1).dtype, v.in(1).shape[-1], has_sums))};
}

/// Inputs: x, w. Outputs: y, rstd.
Kernel make_rmsnorm(const OpView& v) {
  const NormForward shape = forward_shape(v);
  if (!fits(shape) || !v.outputs_are({0}, shape.dtype) || !rest_is_f32(v, 1, 2)) return {};
  return [context = v.context, shape](const KernelArgs& args) {
    NormForward norm = shape;
    norm.x = args.in[0];
    norm.weight = floats(args.in[1]);
    norm.y = args.out[0];
    norm.rstd = floats(args.out[1]);
    launch_rmsnorm(context->stream(), norm);
  };
}

/// Inputs: x, y, w. Outputs: r, y, rstd.
Kernel make_add_rmsnorm(const OpView& v) {
  const NormForward shape = forward_shape(v);
  if (!fits(shape) || !v.inputs_are({1}, shape.dtype) || !v.outputs_are({0, 1}, shape.dtype) ||
      !rest_is_f32(v, 2, 3)) {
    return {};
  }
  return [context = v.context, shape](const KernelArgs& args) {
    NormForward norm = shape;
    norm.x = args.in[0];
    norm.addend = args.in[1];
    norm.weight = floats(args.in[2]);
    norm.sum = args.out[0];
    norm.y = args.out[1];
    norm.rstd = floats(args.out[2]);
    launch_rmsnorm(context->stream(), norm);
  };
}

/// Inputs: dy, x, w, rstd [, residual gradient]. Outputs: dx, dw [, y].
Kernel make_rmsnorm_backward(const OpView& v) {
  constexpr std::size_t kResidual = 4;
  constexpr std::size_t kY = 2;
  if (!backward_fits(v, kResidual, kY)) return {};
  const bool has_residual = v.has_in(kResidual);
  const auto run = [context = v.context, shape = backward_shape(v, 1), has_residual,
                    again = rebuilds(v)](const KernelArgs& args) {
    NormBackward norm = shape;
    norm.dy = args.in[0];
    norm.x = args.in[1];
    norm.weight = floats(args.in[2]);
    norm.rstd = floats(args.in[3]);
    norm.d_residual = has_residual ? args.in[kResidual] : nullptr;
    norm.dx = args.out[0];
    norm.dweight = floats(args.out[1]);
    norm.y = again ? args.out[kY] : nullptr;
    launch_rmsnorm_backward(context->stream(), norm);
  };
  return {run, backward_info(v, 1, 2)};  // partial sums of the weight gradient, and their sum
}

MakerRows norms_rows() {
  namespace ops = program::ops;
  return {{&ops::kLayerNorm, make_layernorm, "norm_forward<layer>"},
          {&ops::kAddLayerNorm, make_add_layernorm, "norm_forward<layer>"},
          {&ops::kLayerNormBackward, make_layernorm_backward, "norm_backward<layer>"},
          {&ops::kRmsNorm, make_rmsnorm, "norm_forward<rms>"},
          {&ops::kAddRmsNorm, make_add_rmsnorm, "norm_forward<rms>"},
          {&ops::kRmsNormBackward, make_rmsnorm_backward, "norm_backward<rms>"}};
}

}  // namespace rooflm::backends::cuda
