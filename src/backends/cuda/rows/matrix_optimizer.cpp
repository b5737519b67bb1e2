// Binds what optimizers of whole matrices need beside matmuls and sgd.
#include "backends/cuda/kernels/optimizer/matrix_optimizer.h"

#include <vector>

#include "backends/cuda/rows/rows.h"
#include "program/ops.h"
#include "program/update.h"

namespace rooflm::backends::cuda {

using core::DType;

Kernel make_momentum(const OpView& v) {
  using Operands = program::UpdateOperands;
  constexpr std::size_t kFirst = 2;  // gradients and moments follow hyper and norm
  const std::size_t count = (v.op.inputs.size() - kFirst) / 2;
  const MomentumStep fixed{.max_norm = v.number("max_norm"),
                           .beta = core::MovingAverage(v.op.attrs.number("beta")),
                           .squared = v.op.attrs.flag("squared"),
                           .nesterov = v.op.attrs.flag("nesterov"),
                           .direction_dtype = v.out(0).dtype};
  if (!is_storage(fixed.direction_dtype) || !v.inputs_are({Operands::kNorm}, DType::f32)) return {};
  std::vector<DType> dtypes;
  for (std::size_t i = 0; i < count; ++i) {
    dtypes.push_back(v.in(kFirst + 2 * i).dtype);
    if (!is_storage(dtypes.back()) || !v.inputs_are({kFirst + 2 * i + 1}, DType::f32)) return {};
  }
  const std::int64_t n = v.in(kFirst).shape.numel();
  const std::int64_t bytes = n * static_cast<std::int64_t>(core::size_of(fixed.direction_dtype));
  const auto run = [=, context = v.context](const KernelArgs& args) {
    MomentumStep step = fixed;
    step.norm = floats(args.in[Operands::kNorm]);
    std::vector<MomentumTensor> tensors(count);
    for (std::size_t i = 0; i < count; ++i) {
      tensors[i] = {.count = n,
                    .gradient = args.in[kFirst + 2 * i],
                    .moment = floats(args.out[1 + i]),
                    .direction = static_cast<std::byte*>(args.out[0]) + static_cast<std::int64_t>(i) * bytes,
                    .gradient_dtype = dtypes[i]};
    }
    launch_momentum(context->stream(), step, tensors);
  };
  return {run, {.launches = momentum_launches(std::vector<std::int64_t>(count, n))}};
}

Kernel make_normalize(const OpView& v) {
  constexpr std::int64_t kMostMatrices = 65535;
  const DType dtype = v.in(0).dtype;
  const core::Shape& shape = v.in(0).shape;
  const std::int64_t n = shape[-2] * shape[-1];
  Normalize fixed{.matrices = shape.numel() / n,
                  .n = n,
                  .size = v.op.attrs.number("size"),
                  .eps = v.op.attrs.number("eps")};
  if (!is_storage(dtype) || !v.outputs_are({0}, dtype) || fixed.matrices > kMostMatrices) return {};
  const std::size_t bytes = normalize_workspace_bytes(fixed.matrices, n);
  fixed.workspace = v.context->scratch(bytes);
  const auto run = [=, context = v.context](const KernelArgs& args) {
    Normalize each = fixed;
    each.x = args.in[0];
    each.y = args.out[0];
    launch_normalize(context->stream(), dtype, each);
  };
  return {run, {.workspace_bytes = as_bytes(bytes), .launches = 2}};
}

Kernel make_matrix_polynomial(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.inputs_are({1}, dtype) || !v.outputs_are({0}, dtype)) return {};
  const MatrixPolynomial fixed{.rows = rows_of(v.in(0)),
                               .n = v.in(0).shape[-1],
                               .a = v.number("a"),
                               .b = v.number("b"),
                               .c = v.number("c")};
  return [=, context = v.context, has_square = v.has_in(1)](const KernelArgs& args) {
    MatrixPolynomial each = fixed;
    each.x = args.in[0];
    each.square = has_square ? args.in[1] : nullptr;
    each.y = args.out[0];
    launch_matrix_polynomial(context->stream(), dtype, each);
  };
}

MakerRows matrix_optimizer_rows() {
  namespace ops = program::ops;
  return {{&ops::kMomentum, make_momentum, "momentum"},
          {&ops::kNormalize, make_normalize, "scale_matrices"},
          {&ops::kMatrixPolynomial, make_matrix_polynomial, "matrix_polynomial"}};
}

}  // namespace rooflm::backends::cuda
