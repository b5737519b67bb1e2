// add: z = x + y, the residual connection.
#include <fmt/format.h>

#include "program/gradient.h"
#include "program/ops.h"

namespace rooflm::program::ops {
namespace {

std::vector<Tensor> infer_add(const Program& p, const Op& op) {
  const auto& x = p.shape(op.inputs.at(0));
  const auto& y = p.shape(op.inputs.at(1));
  expect(x.numel() == y.numel(), op, [&] { return fmt::format("{} and {} differ", x.str(), y.str()); });
  return {{.shape = x}};
}

Cost cost_add(const Program& p, const Op& op) {
  return {.elementwise_flop = p.shape(op.inputs.at(0)).numel()};
}

/// dx = dz, dy = dz: no arithmetic, the same tensor serves both.
void gradient_add(GradientContext& g) {
  g.propagate(0, g.gradient(0));
  g.propagate(1, g.gradient(0));
}

}  // namespace

const OpDef kAdd{
    .name = "add", .infer = infer_add, .cost = cost_add, .gradient = gradient_add, .in_place_input = 0};

}  // namespace rooflm::program::ops
