// What optimizers of whole matrices need beside matmuls and sgd: momentum, normalize, matrix_polynomial.
#include <fmt/format.h>

#include "core/checked.h"
#include "program/ops.h"

namespace rooflm::program::ops {
namespace {

using core::Count;
using core::Shape;

constexpr std::size_t kShared = 2;  // hyper and norm come before the gradients

/// The matrices of a tensor [r, c] or [k, r, c].
std::int64_t matrices_of(const Shape& shape) { return shape.numel() / (shape[-2] * shape[-1]); }

/// momentum: for a list of (g, m) of one shape [r, c] or [E, r, c]
///   g' = factor * g,  m = beta m + (1 - beta) g',  d = nesterov ? beta m + (1 - beta) g' : m
/// The factor is that of updates (program/ops/optimizer.cpp), squared with the attribute `squared`. Inputs:
/// hyper, norm or kNone, then g and m of each. Outputs: d [k, r, c], all of them one after another; each m,
/// in place. Attributes: beta, max_norm, nesterov, squared.
std::vector<Tensor> infer_momentum(const Program& p, const Op& op) {
  expect(op.inputs.size() > kShared && op.inputs.size() % 2 == 0, op, [&] {
    return fmt::format("expected pairs of a gradient and a moment, got {} inputs", op.inputs.size());
  });
  const Shape& first = p.shape(op.inputs.at(kShared));
  const auto count = static_cast<std::int64_t>((op.inputs.size() - kShared) / 2);
  std::vector<Tensor> outputs{{.shape = {count * matrices_of(first), first[-2], first[-1]}}};
  for (std::size_t i = kShared; i < op.inputs.size(); i += 2) {
    const Tensor& moment = p.tensor(op.inputs[i + 1]);
    expect(p.shape(op.inputs[i]) == first && moment.shape == first, op, [&] {
      return fmt::format("{} and {} are not {}", p.shape(op.inputs[i]).str(), moment.shape.str(),
                         first.str());
    });
    outputs.push_back({.shape = first, .role = moment.role, .full_precision = moment.full_precision});
  }
  return outputs;
}

/// 7 per element.
Cost cost_momentum(const Program& p, const Op& op) {
  return {.elementwise_flop = 7 * Count(p.shape(op.outputs.at(0)).numel())};
}

/// normalize: y = size * x / (|x| + eps) for each matrix of x [k, r, c], |x| its Frobenius norm, summed in
/// double. Attributes: size, eps.
std::vector<Tensor> infer_same(const Program& p, const Op& op) {
  return {{.shape = p.shape(op.inputs.at(0))}};
}

/// 3 per element.
Cost cost_normalize(const Program& p, const Op& op) {
  return {.elementwise_flop = 3 * Count(p.shape(op.inputs.at(0)).numel())};
}

/// matrix_polynomial: y = a I + b A + c Q for each matrix of A and Q [k, n, n]; Q, say A^2, may be absent.
/// Attributes: a, b, c.
std::vector<Tensor> infer_polynomial(const Program& p, const Op& op) {
  const Shape& a = p.shape(op.inputs.at(0));
  expect(a[-1] == a[-2], op, [&] { return fmt::format("{} are not square matrices", a.str()); });
  expect(op.inputs.size() < 2 || p.shape(op.inputs[1]).numel() == a.numel(), op,
         [&] { return fmt::format("{} and {} differ", a.str(), p.shape(op.inputs[1]).str()); });
  return {{.shape = a}};
}

/// 2 per element of each operand.
Cost cost_polynomial(const Program& p, const Op& op) {
  return {.elementwise_flop =
              2 * static_cast<std::int64_t>(op.inputs.size()) * Count(p.shape(op.inputs.at(0)).numel())};
}

}  // namespace

const OpDef kMomentum{
    .name = "momentum", .work = Work::optimizer, .infer = infer_momentum, .cost = cost_momentum};
const OpDef kNormalize{.name = "normalize",
                       .work = Work::optimizer,
                       .infer = infer_same,
                       .cost = cost_normalize,
                       .in_place_input = 0};
const OpDef kMatrixPolynomial{.name = "matrix_polynomial",
                              .work = Work::optimizer,
                              .infer = infer_polynomial,
                              .cost = cost_polynomial,
                              .in_place_input = 0};

}  // namespace rooflm::program::ops
