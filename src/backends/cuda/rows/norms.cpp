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

/// Whether dy, x, the residual gradient, dx and y (output number `y`, if any) share a supported dtype, and
/// the rest is fp32.
bool backward_fits(const OpView& v, std::size_t residual, std::size_t y) {
  const DType dtype = v.in(1).dtype;
  return is_storage(dtype) && v.inputs_are({0, residual}, dtype) && v.outputs_are({0}, dtype) &&
         (!rebuilds(v) || v.outputs_are({y}, dtype)) && rest_is_f32(v, 2, residual) &&
         v.in(1).shape[-1] <= kMaxNormCols;
}

/// Inputs: x [, residual], w [, b of layernorm]. Outputs: [r = x + residual,] y [, mean of layernorm], rstd.
template <bool kIsLayer, bool kAdds>
Kernel make_forward(const OpView& v) {
  constexpr std::size_t kWeight = kAdds ? 2 : 1;
  constexpr std::size_t kY = kAdds ? 1 : 0;
  constexpr std::size_t kLast = kIsLayer ? 1 : 0;  // the bias after the weight, the mean before rstd
  const NormForward shape{
      .dtype = v.in(0).dtype, .rows = rows_of(v.in(0)), .cols = v.in(0).shape[-1], .eps = v.number("eps")};
  if (!is_storage(shape.dtype) || shape.cols > kMaxNormCols || !v.inputs_are({kWeight - 1}, shape.dtype) ||
      !v.outputs_are({0, kY}, shape.dtype) || !rest_is_f32(v, kWeight, kWeight + kLast + 1)) {
    return {};
  }
  return [context = v.context, shape](const KernelArgs& args) {
    NormForward norm = shape;
    norm.x = args.in[0];
    if constexpr (kAdds) {
      norm.addend = args.in[1];
      norm.sum = args.out[0];
    }
    norm.weight = floats(args.in[kWeight]);
    norm.y = args.out[kY];
    norm.rstd = floats(args.out[kY + kLast + 1]);
    if constexpr (kIsLayer) {
      norm.bias = floats(args.in[kWeight + 1]);
      norm.mean = floats(args.out[kY + 1]);
      launch_layernorm(context->stream(), norm);
    } else {
      launch_rmsnorm(context->stream(), norm);
    }
  };
}

/// Inputs: dy, x, w [, mean of layernorm], rstd [, residual gradient [, b]]. Outputs: dx, dw [, db of
/// layernorm
/// [, sums of dx]] [, y].
template <bool kIsLayer>
Kernel make_backward(const OpView& v) {
  constexpr std::size_t kRstd = kIsLayer ? 4 : 3;
  constexpr std::size_t kResidual = kRstd + 1;
  constexpr std::size_t kBias = 6;
  constexpr std::size_t kSums = 3;
  const bool has_sums = kIsLayer && v.op.attrs.flag("bias_gradient");
  const bool again = rebuilds(v);
  const std::size_t y = kIsLayer ? kSums + (has_sums ? 1 : 0) : 2;
  if (has_sums && !v.outputs_are({kSums}, DType::f32)) return {};
  if (!backward_fits(v, kResidual, y) || (kIsLayer && again && !v.inputs_are({kBias}, DType::f32))) return {};
  const bool has_residual = v.has_in(kResidual);
  const int arrays = kIsLayer ? (has_sums ? 3 : 2) : 1;
  const auto run = [=, context = v.context, shape = backward_shape(v, arrays)](const KernelArgs& args) {
    NormBackward norm = shape;
    norm.dy = args.in[0];
    norm.x = args.in[1];
    norm.weight = floats(args.in[2]);
    norm.rstd = floats(args.in[kRstd]);
    norm.d_residual = has_residual ? args.in[kResidual] : nullptr;
    norm.dx = args.out[0];
    norm.dweight = floats(args.out[1]);
    norm.y = again ? args.out[y] : nullptr;
    if constexpr (kIsLayer) {
      norm.mean = floats(args.in[3]);
      norm.dbias = floats(args.out[2]);
      norm.bias = again ? floats(args.in[kBias]) : nullptr;
      norm.dx_sums = has_sums ? floats(args.out[kSums]) : nullptr;
      launch_layernorm_backward(context->stream(), norm);
    } else {
      launch_rmsnorm_backward(context->stream(), norm);
    }
  };
  // rmsnorm: partial sums of the weight gradient, and their sum
  const int launches = kIsLayer ? layernorm_backward_launches(v.in(1).dtype, v.in(1).shape[-1], has_sums) : 2;
  return {run, {.workspace_bytes = as_bytes(sum_bytes(v, arrays)), .launches = launches}};
}

}  // namespace

MakerRows norms_rows() {
  namespace ops = program::ops;
  return {{&ops::kLayerNorm, make_forward<true, false>, "norm_forward<layer>"},
          {&ops::kAddLayerNorm, make_forward<true, true>, "norm_forward<layer>"},
          {&ops::kLayerNormBackward, make_backward<true>, "norm_backward<layer>"},
          {&ops::kRmsNorm, make_forward<false, false>, "norm_forward<rms>"},
          {&ops::kAddRmsNorm, make_forward<false, true>, "norm_forward<rms>"},
          {&ops::kRmsNormBackward, make_backward<false>, "norm_backward<rms>"}};
}

}  // namespace rooflm::backends::cuda
