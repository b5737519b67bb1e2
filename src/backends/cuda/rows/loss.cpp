// Binds softmax and cross entropy to their ops.
#include "backends/cuda/kernels/cross_entropy.h"
#include "backends/cuda/kernels/softmax.h"
#include "backends/cuda/rows/rows.h"
#include "program/ops.h"

namespace rooflm::backends::cuda {
namespace {

using core::DType;

/// Score matrices: one launch for all, or one per batch element if looped.
struct Scores {
  DType dtype;
  std::int64_t seq, launches, rows;  ///< rows per launch
  float scale;
  [[nodiscard]] std::int64_t bytes() const {
    return rows * seq * static_cast<std::int64_t>(core::size_of(dtype));
  }
};

Scores scores_of(const OpView& v) {
  const std::int64_t seq = v.in(0).shape[-1];
  const std::int64_t launches = v.op.attrs.flag("looped") ? v.integer("batch") : 1;
  return {.dtype = v.in(0).dtype,
          .seq = seq,
          .launches = launches,
          .rows = v.in(0).shape.numel() / seq / launches,
          .scale = v.number("scale")};
}

LossShape loss_shape(const OpView& v) {
  return {.rows = v.integer("rows"), .cols = v.in(0).shape[-1], .valid = v.integer("valid")};
}

}  // namespace

Kernel make_causal_softmax(const OpView& v) {
  const Scores scores = scores_of(v);
  if (!is_storage(scores.dtype) || !v.outputs_are({0}, scores.dtype)) return {};
  const auto run = [context = v.context, scores](const KernelArgs& args) {
    for (std::int64_t i = 0; i < scores.launches; ++i) {
      launch_causal_softmax(context->stream(), scores.dtype, scores.rows, scores.seq, scores.scale,
                            static_cast<const std::byte*>(args.in[0]) + i * scores.bytes(),
                            static_cast<std::byte*>(args.out[0]) + i * scores.bytes());
    }
  };
  return {run, {.launches = scores.launches}};
}

/// Inputs: dp, p.
Kernel make_causal_softmax_backward(const OpView& v) {
  const Scores scores = scores_of(v);
  if (!is_storage(scores.dtype) || !v.inputs_are({1}, scores.dtype) || !v.outputs_are({0}, scores.dtype))
    return {};
  const auto run = [context = v.context, scores](const KernelArgs& args) {
    for (std::int64_t i = 0; i < scores.launches; ++i) {
      launch_causal_softmax_backward(context->stream(), scores.dtype, scores.rows, scores.seq, scores.scale,
                                     static_cast<const std::byte*>(args.in[0]) + i * scores.bytes(),
                                     static_cast<const std::byte*>(args.in[1]) + i * scores.bytes(),
                                     static_cast<std::byte*>(args.out[0]) + i * scores.bytes());
    }
  };
  return {run, {.launches = scores.launches}};
}

/// Inputs: logits, targets. Outputs: losses, lse.
Kernel make_cross_entropy(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.outputs_are({0, 1}, DType::f32)) return {};
  const LossShape shape = loss_shape(v);
  const auto checked = v.context->ids().add(
      {.what = "target", .count = shape.rows, .limit = shape.valid, .negative_is_ignored = true});
  return [context = v.context, dtype, shape, checked](const KernelArgs& args) {
    checked->ids = ids(args.in[1]);
    launch_cross_entropy(context->stream(), dtype, shape, args.in[0], checked->ids, floats(args.out[0]),
                         floats(args.out[1]), context->ids().flag());
  };
}

/// Inputs: logits, targets, lse [, state of the loss scale].
Kernel make_cross_entropy_backward(const OpView& v) {
  constexpr std::size_t kLossScale = 3;
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.inputs_are({2, kLossScale}, DType::f32) || !v.outputs_are({0}, dtype))
    return {};
  const bool is_scaled = v.has_in(kLossScale);
  return [context = v.context, dtype, shape = loss_shape(v), is_scaled,
          scale = v.number("grad_scale")](const KernelArgs& args) {
    launch_cross_entropy_backward(context->stream(), dtype, shape, args.in[0], ids(args.in[1]),
                                  floats(args.in[2]), scale, args.out[0],
                                  is_scaled ? floats(args.in[kLossScale]) : nullptr);
  };
}

/// Inputs: logits, targets [, state of the loss scale]. Outputs: dlogits, losses, lse.
Kernel make_cross_entropy_with_gradient(const OpView& v) {
  constexpr std::size_t kLossScale = 2;
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.outputs_are({0}, dtype) || !v.outputs_are({1, 2}, DType::f32)) return {};
  const LossShape shape = loss_shape(v);
  const bool is_scaled = v.has_in(kLossScale);
  const auto checked = v.context->ids().add(
      {.what = "target", .count = shape.rows, .limit = shape.valid, .negative_is_ignored = true});
  const auto run = [context = v.context, dtype, shape, checked, is_scaled,
                    scale = v.number("grad_scale")](const KernelArgs& args) {
    checked->ids = ids(args.in[1]);
    launch_cross_entropy_with_gradient(context->stream(), dtype, shape, args.in[0], checked->ids, scale,
                                       floats(args.out[1]), floats(args.out[2]), args.out[0],
                                       is_scaled ? floats(args.in[kLossScale]) : nullptr,
                                       context->ids().flag());
  };
  return {run, {.launches = cross_entropy_with_gradient_launches(dtype, shape)}};
}

Kernel make_mean(const OpView& v) {
  if (!v.inputs_are({0}, DType::f32) || !v.outputs_are({0}, DType::f32)) return {};
  return [context = v.context, count = v.in(0).shape.numel(), weight = v.op.attrs.number("weight"),
          accumulate = v.accumulates()](const KernelArgs& args) {
    launch_mean(context->stream(), count, floats(args.in[0]), weight, accumulate, floats(args.out[0]));
  };
}

MakerRows loss_rows() {
  namespace ops = program::ops;
  return {{&ops::kCausalSoftmax, make_causal_softmax, "causal_softmax"},
          {&ops::kCausalSoftmaxBackward, make_causal_softmax_backward, "causal_softmax_backward"},
          {&ops::kCrossEntropy, make_cross_entropy, "cross_entropy"},
          {&ops::kCrossEntropyBackward, make_cross_entropy_backward, "cross_entropy_backward"},
          {&ops::kCrossEntropyWithGradient, make_cross_entropy_with_gradient, "cross_entropy_with_gradient"},
          {&ops::kMean, make_mean, "mean"}};
}

}  // namespace rooflm::backends::cuda
