// Binds softmax and cross entropy to their ops.
#include "backends/cuda/kernels/cross_entropy.h"
#include "backends/cuda/kernels/softmax.h"
#include "backends/cuda/rows/rows.h"
#include "program/ops.h"

namespace rooflm::backends::cuda {
namespace {

using core::DType;

/// Score matrices: one launch for all, or one per batch element if looped.
struct Matrices {
  DType dtype;
  std::int64_t seq, launches, rows;  ///< rows per launch
  float scale;
  SoftmaxRules rules;
  [[nodiscard]] std::int64_t bytes() const {
    return rows * seq * static_cast<std::int64_t>(core::size_of(dtype));
  }
  /// The rules of launch i, of whose op the sinks are the input `sinks`.
  [[nodiscard]] SoftmaxRules rules_of_launch(std::int64_t i, const Sinks& sinks) const {
    return {.rules = rules.rules, .heads = rules.heads, .first_row = i * rows, .sinks = sinks};
  }
};

/// Of launch i the part of an operand.
template <class Byte>
Byte* part_of(Byte* data, std::int64_t i, std::int64_t bytes) {
  using Bytes = std::conditional_t<std::is_const_v<Byte>, const std::byte, std::byte>;
  return data == nullptr ? nullptr : static_cast<Bytes*>(data) + i * bytes;
}

Matrices matrices_of(const OpView& v) {
  const std::int64_t seq = v.in(0).shape[-1];
  const std::int64_t launches = v.op.attrs.flag("looped") ? v.integer("batch") : 1;
  return {.dtype = v.in(0).dtype,
          .seq = seq,
          .launches = launches,
          .rows = v.in(0).shape.numel() / seq / launches,
          .scale = v.number("scale"),
          .rules = {.rules = rules_of(v.op, seq), .heads = v.in(0).shape.rank() == 4 ? v.in(0).shape[1] : 1}};
}

LossShape loss_shape(const OpView& v) {
  return {.rows = v.integer("rows"), .cols = v.in(0).shape[-1], .valid = v.integer("valid")};
}

}  // namespace

/// Inputs: scores [, sinks].
Kernel make_causal_softmax(const OpView& v) {
  const Matrices m = matrices_of(v);
  if (!is_storage(m.dtype) || !v.outputs_are({0}, m.dtype)) return {};
  const auto run = [context = v.context, m, sinks = SinksInput(v, 1)](const KernelArgs& args) {
    for (std::int64_t i = 0; i < m.launches; ++i) {
      launch_causal_softmax(context->stream(), m.dtype, m.rows, m.seq, m.scale,
                            part_of(args.in[0], i, m.bytes()), part_of(args.out[0], i, m.bytes()),
                            m.rules_of_launch(i, sinks.of(args)));
    }
  };
  return {run, {.launches = m.launches}};
}

/// Inputs: dp, p [, scores if there is a cap [, sinks]]. Outputs: ds [, d_sinks].
Kernel make_causal_softmax_backward(const OpView& v) {
  const Matrices m = matrices_of(v);
  if (!is_storage(m.dtype) || !v.inputs_are({1, 2}, m.dtype) || !v.outputs_are({0}, m.dtype)) return {};
  const bool has_sinks = v.has_in(3);
  if (has_sinks && !v.outputs_are({1}, DType::f32)) return {};
  const std::int64_t rows = m.launches * m.rows;
  const std::size_t bytes = has_sinks ? static_cast<std::size_t>(rows) * sizeof(float) : 0;
  float* sink_rows = has_sinks ? floats(v.context->scratch(bytes)) : nullptr;
  const auto run = [=, context = v.context, has_scores = v.has_in(2),
                    accumulate = v.accumulates()](const KernelArgs& args) {
    for (std::int64_t i = 0; i < m.launches; ++i) {
      launch_causal_softmax_backward(context->stream(), m.dtype, m.rows, m.seq, m.scale,
                                     part_of(args.in[0], i, m.bytes()), part_of(args.in[1], i, m.bytes()),
                                     part_of(args.out[0], i, m.bytes()), m.rules_of_launch(i, {}),
                                     has_scores ? part_of(args.in[2], i, m.bytes()) : nullptr,
                                     has_sinks ? sink_rows + i * m.rows : nullptr);
    }
    if (!has_sinks) return;
    const std::int64_t heads = m.rules.heads;
    const AttentionShape shape{.batch = rows / (heads * m.seq), .seq = m.seq, .heads = heads};
    launch_sum_sinks(context->stream(), shape, sink_rows, nullptr, {}, floats(args.out[1]), accumulate);
  };
  return {run, {.workspace_bytes = as_bytes(bytes), .launches = m.launches + (has_sinks ? 1 : 0)}};
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
