// Binds activations of all kinds, multipliers and soft caps to their ops.
#include "backends/cuda/kernels/activate.h"

#include "backends/cuda/rows/one_dtype.h"
#include "backends/cuda/rows/rows.h"
#include "program/ops.h"

namespace rooflm::backends::cuda {
namespace {

using core::DType;

Activate shape_of(const OpView& v, const program::Tensor& y) {
  return {.kind = static_cast<program::Activation>(v.integer("kind")),
          .is_gated = v.op.attrs.flag("gated"),
          .dtype = v.in(0).dtype,
          .rows = rows_of(y),
          .width = y.shape[-1]};
}

}  // namespace

/// Inputs: h [, weights].
Kernel make_activate(const OpView& v) {
  const Activate shape = shape_of(v, v.out(0));
  if (!is_storage(shape.dtype) || !v.outputs_are({0}, shape.dtype) || !v.inputs_are({1}, DType::f32))
    return {};
  return [context = v.context, shape, has_weights = v.has_in(1)](const KernelArgs& args) {
    Activate activate = shape;
    if (has_weights) activate.weights = floats(args.in[1]);
    launch_activate(context->stream(), activate, args.in[0], args.out[0]);
  };
}

/// Inputs: dy, h [, weights]. Outputs: dh [, dweights].
Kernel make_activate_backward(const OpView& v) {
  const Activate shape = shape_of(v, v.in(0));
  const bool has_weights = v.has_in(2);
  if (!is_storage(shape.dtype) || !v.inputs_are({1}, shape.dtype) || !v.inputs_are({2}, DType::f32) ||
      !v.outputs_are({0}, shape.dtype) || (has_weights && !v.outputs_are({1}, DType::f32))) {
    return {};
  }
  const std::size_t bytes = has_weights ? activate_workspace_bytes() : 0;
  auto* workspace = has_weights ? floats(v.context->scratch(bytes)) : nullptr;
  const auto run = [=, context = v.context, accumulate = v.accumulates()](const KernelArgs& args) {
    Activate activate = shape;
    if (has_weights) activate.weights = floats(args.in[2]);
    launch_activate_backward(context->stream(), activate, args.in[0], args.in[1], args.out[0],
                             has_weights ? floats(args.out[1]) : nullptr, accumulate, workspace);
  };
  constexpr std::int64_t kWithSums = 3;  // partial sums, their sum
  return {run, {.workspace_bytes = as_bytes(bytes), .launches = has_weights ? kWithSums : 1}};
}

Kernel make_scale_cap(const OpView& v) {
  const DType from = v.in(0).dtype;
  const DType to = v.out(0).dtype;
  if (!is_storage(from) || !is_storage(to)) return {};
  return [=, context = v.context, count = v.in(0).shape.numel(), factor = v.number("factor"),
          cap = v.number("cap")](const KernelArgs& args) {
    launch_scale_cap(context->stream(), count, factor, cap, from, args.in[0], to, args.out[0]);
  };
}

Kernel make_scale_cap_backward(const OpView& v) {
  return one_dtype<2, 1>(v, launch_scale_cap_backward, v.in(0).shape.numel(), v.number("factor"),
                         v.number("cap"));
}

MakerRows activate_rows() {
  namespace ops = program::ops;
  return {{&ops::kActivate, make_activate, "activate"},
          {&ops::kActivateBackward, make_activate_backward, "activate_backward"},
          {&ops::kScaleCap, make_scale_cap, "scale_cap<ScaleCap>"},
          {&ops::kScaleCapBackward, make_scale_cap_backward, "scale_cap<ScaleCapGradient>"}};
}

}  // namespace rooflm::backends::cuda
