// Binds elementwise kernels to their ops.
#include "backends/cuda/kernels/elementwise.h"

#include "backends/cuda/kernels/column_sums.h"
#include "backends/cuda/kernels/gelu_backward.h"
#include "backends/cuda/rows/one_dtype.h"
#include "backends/cuda/rows/rows.h"
#include "program/ops.h"

namespace rooflm::backends::cuda {

using core::DType;

namespace {

/// Whether a gradient and, if it is written again, output y of the forward op have the dtype.
bool outputs_fit(const OpView& v, DType dtype, std::size_t y) {
  return v.outputs_are({0}, dtype) && (!rebuilds(v) || v.outputs_are({y}, dtype));
}

}  // namespace

Kernel make_add(const OpView& v) { return one_dtype<2, 1>(v, launch_add, v.in(0).shape.numel()); }

Kernel make_cast(const OpView& v) {
  const DType from = v.in(0).dtype;
  const DType to = v.out(0).dtype;
  if (!is_storage(from) || !is_storage(to)) return {};
  return [context = v.context, from, to, count = v.in(0).shape.numel()](const KernelArgs& args) {
    launch_cast(context->stream(), count, from, args.in[0], to, args.out[0]);
  };
}

Kernel make_gelu(const OpView& v) { return one_dtype<1, 1>(v, launch_gelu, v.in(0).shape.numel()); }

/// Inputs: dy, x. Outputs: dx [, db of the bias] [, y].
Kernel make_gelu_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  const bool bias = v.op.attrs.flag("bias_gradient");
  const std::size_t y = bias ? 2 : 1;
  if (!is_storage(dtype) || !v.inputs_are({1}, dtype) || !outputs_fit(v, dtype, y)) return {};
  GeluBackward gelu{.rows = rows_of(v.in(0)), .cols = v.in(0).shape[-1], .accumulate = v.accumulates()};
  KernelInfo info;
  if (bias) {
    if (!v.outputs_are({1}, DType::f32)) return {};
    const std::size_t bytes = bias_backward_workspace_bytes(gelu.rows, gelu.cols);
    gelu.workspace = v.context->scratch(bytes);
    info = {.workspace_bytes = as_bytes(bytes), .launches = 2};  // the second adds partial sums
  }
  const auto run = [=, context = v.context, again = rebuilds(v)](const KernelArgs& args) {
    GeluBackward each = gelu;
    each.dy = args.in[0];
    each.x = args.in[1];
    each.dx = args.out[0];
    each.db = bias ? floats(args.out[1]) : nullptr;
    each.y = again ? args.out[y] : nullptr;
    launch_gelu_backward(context->stream(), dtype, each);
  };
  return {run, info};
}

Kernel make_swiglu(const OpView& v) {
  return one_dtype<1, 1>(v, launch_swiglu, rows_of(v.out(0)), v.out(0).shape[-1]);
}

/// Inputs: dy [.., F], h [.., 2F]. Outputs: dh [.., 2F] [, y [.., F]].
Kernel make_swiglu_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.inputs_are({1}, dtype) || !outputs_fit(v, dtype, 1)) return {};
  return [context = v.context, dtype, rows = rows_of(v.in(0)), width = v.in(0).shape[-1],
          again = rebuilds(v)](const KernelArgs& args) {
    launch_swiglu_backward(context->stream(), dtype, rows, width, args.in[0], args.in[1], args.out[0],
                           again ? args.out[1] : nullptr);
  };
}

MakerRows elementwise_rows() {
  namespace ops = program::ops;
  return {{&ops::kAdd, make_add, "map<Add>"},
          {&ops::kCast, make_cast, "map<Identity>"},
          {&ops::kGelu, make_gelu, "map<Gelu>"},
          {&ops::kGeluBackward, make_gelu_backward, "gelu_backward"},
          {&ops::kSwiGlu, make_swiglu, "swiglu"},
          {&ops::kSwiGluBackward, make_swiglu_backward, "swiglu_backward"}};
}

}  // namespace rooflm::backends::cuda
