// Binds elementwise kernels to their ops.
#include "backends/cuda/kernels/elementwise.h"

#include "backends/cuda/rows/rows.h"
#include "program/ops.h"

namespace rooflm::backends::cuda {

using core::DType;

namespace {

/// Whether a gradient, and the forward op's output if it is written again, have the dtype.
bool outputs_fit(const OpView& v, DType dtype) {
  return v.outputs_are({0}, dtype) && (!rebuilds(v) || v.outputs_are({1}, dtype));
}

}  // namespace

Kernel make_add(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.inputs_are({1}, dtype) || !v.outputs_are({0}, dtype)) return {};
  return [context = v.context, dtype, count = v.in(0).shape.numel()](const KernelArgs& args) {
    launch_add(context->stream(), dtype, count, args.in[0], args.in[1], args.out[0]);
  };
}

Kernel make_cast(const OpView& v) {
  const DType from = v.in(0).dtype;
  const DType to = v.out(0).dtype;
  if (!is_storage(from) || !is_storage(to)) return {};
  return [context = v.context, from, to, count = v.in(0).shape.numel()](const KernelArgs& args) {
    launch_cast(context->stream(), count, from, args.in[0], to, args.out[0]);
  };
}

Kernel make_gelu(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.outputs_are({0}, dtype)) return {};
  return [context = v.context, dtype, count = v.in(0).shape.numel()](const KernelArgs& args) {
    launch_gelu(context->stream(), dtype, count, args.in[0], args.out[0]);
  };
}

/// Inputs: dy, x. Outputs: dx [, y].
Kernel make_gelu_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.inputs_are({1}, dtype) || !outputs_fit(v, dtype)) return {};
  return [context = v.context, dtype, count = v.in(0).shape.numel(),
          again = rebuilds(v)](const KernelArgs& args) {
    launch_gelu_backward(context->stream(), dtype, count, args.in[0], args.in[1], args.out[0],
                         again ? args.out[1] : nullptr);
  };
}

Kernel make_swiglu(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.outputs_are({0}, dtype)) return {};
  return [context = v.context, dtype, rows = rows_of(v.out(0)),
          width = v.out(0).shape[-1]](const KernelArgs& args) {
    launch_swiglu(context->stream(), dtype, rows, width, args.in[0], args.out[0]);
  };
}

/// Inputs: dy [.., F], h [.., 2F]. Outputs: dh [.., 2F] [, y [.., F]].
Kernel make_swiglu_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.inputs_are({1}, dtype) || !outputs_fit(v, dtype)) return {};
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
