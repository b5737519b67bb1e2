// Binds the ops of DoRA.
#include "backends/cuda/kernels/dora.h"

#include "backends/cuda/kernels/column_sums.h"
#include "backends/cuda/rows/few_rows.h"
#include "backends/cuda/rows/rows.h"
#include "program/ops.h"

namespace rooflm::backends::cuda {

using core::DType;

namespace {

/// The matrix is unpacked into scratch memory, once before the first step.
Kernel make_packed_row_squares(const OpView& v) {
  const PackedFactor matrix = PackedFactor::of_matrix(v);
  const std::int64_t width = v.in(0).shape[1];
  auto* unpacked =
      static_cast<float*>(v.context->scratch(static_cast<std::size_t>(matrix.count()) * sizeof(float)));
  const auto run = [=, context = v.context, first = v.integer("at") * width,
                    n = v.integer("n")](const KernelArgs& args) {
    launch_unpack(context->stream(), matrix.of(args.in[0]), DType::f32, unpacked);
    launch_row_squares(context->stream(), DType::f32, n, width, unpacked + first, floats(args.out[0]));
  };
  return {run, {.workspace_bytes = matrix.count() * static_cast<std::int64_t>(sizeof(float)), .launches = 2}};
}

}  // namespace

Kernel make_row_squares(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!v.outputs_are({0}, DType::f32)) return {};
  if (core::is_packed(dtype)) return make_packed_row_squares(v);
  if (!is_storage(dtype)) return {};
  const std::int64_t width = v.in(0).shape[1];
  const auto skipped = static_cast<std::size_t>(v.integer("at") * width) * core::size_of(dtype);
  return [=, context = v.context, n = v.integer("n")](const KernelArgs& args) {
    launch_row_squares(context->stream(), dtype, n, width,
                       static_cast<const std::byte*>(args.in[0]) + skipped, floats(args.out[0]));
  };
}

Kernel make_inverse_norms(const OpView& v) {
  const DType dtype = v.in(3).dtype;
  if (!is_storage(dtype) || !v.inputs_are({0, 1, 2}, DType::f32) || !v.outputs_are({0}, DType::f32))
    return {};
  const InverseNorms norms{.n = v.in(3).shape[0],
                           .rank = v.in(3).shape[1],
                           .stride = v.in(1).shape[1],
                           .factor = v.number("factor")};
  return [=, context = v.context, at = v.integer("at")](const KernelArgs& args) {
    InverseNorms each = norms;
    each.squares = floats(args.in[0]);
    each.products = floats(args.in[1]) + at;
    each.grams = floats(args.in[2]);
    each.b = args.in[3];
    each.inverse = floats(args.out[0]);
    launch_inverse_norms(context->stream(), dtype, each);
  };
}

Kernel make_set_scales(const OpView& v) {
  if (!v.inputs_are({1, 2}, DType::f32) || !v.outputs_are({0}, DType::f32)) return {};
  return [context = v.context, width = v.integer("width"), at = v.integer("at"), n = v.in(1).shape[0],
          has_earlier = v.has_in(0)](const KernelArgs& args) {
    launch_set_scales(context->stream(), width, at, n, has_earlier ? floats(args.in[0]) : nullptr,
                      floats(args.in[1]), floats(args.in[2]), floats(args.out[0]));
  };
}

Kernel make_set_scales_backward(const OpView& v) {
  if (!v.inputs_are({0, 1}, DType::f32) || !v.outputs_are({0}, DType::f32)) return {};
  return [context = v.context, at = v.integer("at"), n = v.in(1).shape[0],
          accumulate = v.accumulates()](const KernelArgs& args) {
    launch_set_scales_backward(context->stream(), n, floats(args.in[0]) + at, floats(args.in[1]),
                               floats(args.out[0]), accumulate);
  };
}

Kernel make_scale_columns(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.inputs_are({1}, DType::f32) || !v.outputs_are({0}, dtype)) return {};
  return [=, context = v.context, rows = rows_of(v.in(0)), cols = v.in(0).shape[-1]](const KernelArgs& args) {
    launch_scale_columns(context->stream(), dtype, rows, cols, args.in[0], floats(args.in[1]), args.out[0]);
  };
}

Kernel make_scale_columns_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  const bool fits = is_storage(dtype) && v.inputs_are({1}, dtype) && v.inputs_are({2}, DType::f32) &&
                    v.outputs_are({0}, dtype) && v.outputs_are({1}, DType::f32);
  if (!fits) return {};
  ScaleColumnsBackward scale{.rows = rows_of(v.in(1)), .cols = v.in(1).shape[-1]};
  const std::size_t bytes = bias_backward_workspace_bytes(scale.rows, scale.cols);
  scale.workspace = v.context->scratch(bytes);
  const auto run = [=, context = v.context](const KernelArgs& args) {
    ScaleColumnsBackward each = scale;
    each.dy = args.in[0];
    each.x = args.in[1];
    each.z = floats(args.in[2]);
    each.dx = args.out[0];
    each.dz = floats(args.out[1]);
    launch_scale_columns_backward(context->stream(), dtype, each);
  };
  return {run,
          KernelInfo{.workspace_bytes = as_bytes(bytes), .launches = 2}};  // the second adds partial sums
}

MakerRows dora_rows() {
  namespace ops = program::ops;
  return {{&ops::kRowSquares, make_row_squares, "row_squares"},
          {&ops::kInverseNorms, make_inverse_norms, "inverse_norms"},
          {&ops::kSetScales, make_set_scales, "set_scales"},
          {&ops::kSetScalesBackward, make_set_scales_backward, "set_scales_backward"},
          {&ops::kScaleColumns, make_scale_columns, "scale_columns"},
          {&ops::kScaleColumnsBackward, make_scale_columns_backward, "scale_columns_backward"}};
}

}  // namespace rooflm::backends::cuda
