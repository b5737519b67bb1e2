// cross_entropy: losses[r] = lse[r] - logits[r, targets[r]], lse[r] = log sum_v exp(logits[r, v]), in nats;
// and the mean over rows. Attributes: rows; valid (columns from `valid` on are vocabulary padding: they take
// no part and get no gradient); grad_scale (d loss / d losses[r] = 1 / (B T) / micro-batches).
#include <fmt/format.h>

#include "program/gradient.h"
#include "program/ops.h"
#include "program/plain_form.h"

namespace rooflm::program::ops {
namespace {

using core::Shape;

std::vector<Tensor> infer_cross_entropy(const Program& p, const Op& op) {
  const Shape& logits = p.shape(op.inputs.at(0));
  const std::int64_t rows = op.attrs.integer("rows");
  expect(logits.numel() / logits[-1] >= rows, op,
         [&] { return fmt::format("{} rows asked of logits {}", rows, logits.str()); });
  expect(op.attrs.integer("valid") <= logits[-1], op, [&] {
    return fmt::format("vocabulary {} exceeds logits {}", op.attrs.integer("valid"), logits.str());
  });
  return {{.shape = {rows}, .full_precision = true}, {.shape = {rows}, .full_precision = true}};
}

std::int64_t logits_of(const Program& p, const Op& op) {
  return op.attrs.integer("rows") * p.shape(op.inputs.at(0))[-1];
}

std::int64_t logits_bytes(const Program& p, const Op& op) {
  return logits_of(p, op) * static_cast<std::int64_t>(core::size_of(p.tensor(op.inputs.at(0)).dtype));
}

/// 4 per logit: maximum, subtract, exp, sum.
Cost cost_cross_entropy(const Program& p, const Op& op) {
  const std::int64_t rows = op.attrs.integer("rows");
  return {.elementwise_flop = 4 * logits_of(p, op),
          .bytes_read = logits_bytes(p, op) + 4 * rows,
          .bytes_written = 8 * rows};
}

/// dlogits = (softmax(logits) - onehot(targets)) * grad_scale. The loss is the root: no incoming gradient.
/// Inputs of the backward op: logits, targets, lse and, with loss scaling, its state (program/loss_scale.h),
/// whose scale also multiplies the gradient.
void gradient_cross_entropy(GradientContext& g) {
  const Shape& logits = g.program().shape(g.input(0));
  g.propagate(
      0, g.emit(kCrossEntropyBackward, {g.input(0), g.input(1), g.output(1)}, g.op().attrs, {logits}).at(0));
}

std::vector<Tensor> infer_cross_entropy_backward(const Program& p, const Op& op) {
  return {{.shape = p.shape(op.inputs.at(0)), .role = Role::activation_gradient}};
}

/// 4 per logit: subtract, exp, subtract, scale.
Cost cost_cross_entropy_backward(const Program& p, const Op& op) {
  return {.elementwise_flop = 4 * logits_of(p, op),
          .bytes_read = logits_bytes(p, op) + 8 * op.attrs.integer("rows"),
          .bytes_written = logits_bytes(p, op)};
}

/// Forward and backward in one op, made by the fuse pass. Inputs: logits, targets and, with loss scaling, its
/// state. Outputs: dlogits, losses, lse.
std::vector<Tensor> infer_cross_entropy_with_gradient(const Program& p, const Op& op) {
  auto outputs = infer_cross_entropy(p, op);
  outputs.insert(outputs.begin(), infer_cross_entropy_backward(p, op).front());
  return outputs;
}

void plain_cross_entropy_with_gradient(PlainForm& f) {
  constexpr std::size_t kState = 2;
  f.emit(kCrossEntropy, {f.input(0), f.input(1)}, f.op().attrs, {f.output(1), f.output(2)});
  std::vector operands{f.input(0), f.input(1), f.output(2)};
  if (f.has_input(kState)) operands.push_back(f.input(kState));
  f.emit(kCrossEntropyBackward, operands, f.op().attrs, {f.output(0)});
}

/// Logits are read once.
Cost cost_cross_entropy_with_gradient(const Program& p, const Op& op) {
  const std::int64_t rows = op.attrs.integer("rows");
  return {.elementwise_flop = 8 * logits_of(p, op),
          .bytes_read = logits_bytes(p, op) + 4 * rows,
          .bytes_written = logits_bytes(p, op) + 8 * rows};
}

/// mean: loss [1] (+)= weight * sum of losses; += with `accumulate`, for later micro-batches. Attribute:
/// weight.
std::vector<Tensor> infer_mean(const Program&, const Op&) {
  return {{.shape = {1}, .role = Role::result, .full_precision = true}};
}

Cost cost_mean(const Program& p, const Op& op) {
  return {.elementwise_flop = p.shape(op.inputs.at(0)).numel()};
}

}  // namespace

const OpDef kCrossEntropy{.name = "cross_entropy",
                          .work = Work::loss,
                          .infer = infer_cross_entropy,
                          .cost = cost_cross_entropy,
                          .gradient = gradient_cross_entropy,
                          .begins_backward = true};
const OpDef kCrossEntropyBackward{.name = "cross_entropy_backward",
                                  .work = Work::loss,
                                  .infer = infer_cross_entropy_backward,
                                  .cost = cost_cross_entropy_backward,
                                  .in_place_input = 0};
const OpDef kCrossEntropyWithGradient{.name = "cross_entropy_with_gradient",
                                      .work = Work::loss,
                                      .infer = infer_cross_entropy_with_gradient,
                                      .cost = cost_cross_entropy_with_gradient,
                                      .in_place_input = 0,
                                      .plain = plain_cross_entropy_with_gradient};
const OpDef kMean{.name = "mean", .work = Work::loss, .infer = infer_mean, .cost = cost_mean};

}  // namespace rooflm::program::ops
