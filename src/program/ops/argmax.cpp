// argmax (x [..., V]) -> y [rows] int32: of each row the place of its largest number, the first of equal
// ones, among the first `valid` numbers (an attribute: the rest is padding). What is not a number is never
// the largest. It has no gradient.
#include <fmt/format.h>

#include "program/ops.h"

namespace rooflm::program::ops {
namespace {

std::vector<Tensor> infer_argmax(const Program& p, const Op& op) {
  const core::Shape& x = p.shape(op.inputs.at(0));
  const std::int64_t valid = op.attrs.integer("valid");
  expect(valid >= 1 && valid <= x[-1], op,
         [&] { return fmt::format("the first {} numbers of rows of {}", valid, x[-1]); });
  return {{.shape = {x.numel() / x[-1]}, .dtype = core::DType::i32}};
}

/// A comparison for each number.
Cost cost_argmax(const Program& p, const Op& op) {
  return {.elementwise_flop = p.shape(op.inputs.at(0)).numel()};
}

}  // namespace

const OpDef kArgmax{.name = "argmax", .work = Work::elementwise, .infer = infer_argmax, .cost = cost_argmax};

}  // namespace rooflm::program::ops
