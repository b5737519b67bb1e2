// Binds elementwise kernels to their ops.
#include "backends/cuda/kernels/elementwise.h"

#include "backends/cuda/rows/rows.h"
#include "program/ops.h"

namespace rooflm::backends::cuda {

using core::DType;

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

/// Inputs: dy, x.
Kernel make_gelu_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.inputs_are({1}, dtype) || !v.outputs_are({0}, dtype)) return {};
  return [context = v.context, dtype, count = v.in(0).shape.numel()](const KernelArgs& args) {
    launch_gelu_backward(context->stream(), dtype, count, args.in[0], args.in[1], args.out[0]);
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

/// Inputs: dy [.., F], h [.., 2F].
Kernel make_swiglu_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.inputs_are({1}, dtype) || !v.outputs_are({0}, dtype)) return {};
  return [context = v.context, dtype, rows = rows_of(v.in(0)),
          width = v.in(0).shape[-1]](const KernelArgs& args) {
    launch_swiglu_backward(context->stream(), dtype, rows, width, args.in[0], args.in[1], args.out[0]);
  };
}

MakerRows elementwise_rows() {
  namespace ops = program::ops;
  return {{&ops::kAdd, make_add, "map<Add>"},
          {&ops::kCast, make_cast, "map<Identity>"},
          {&ops::kGelu, make_gelu, "map<Gelu>"},
          {&ops::kGeluBackward, make_gelu_backward, "map<GeluBackward>"},
          {&ops::kSwiGlu, make_swiglu, "swiglu"},
          {&ops::kSwiGluBackward, make_swiglu_backward, "swiglu_backward"}};
}

}  // namespace rooflm::backends::cuda
