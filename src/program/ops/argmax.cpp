// argmax (x [..., V]) -> y [rows] int32: the index of the largest of the first `valid` elements of each row
// (the attribute `valid`; the rest is padding). Ties go to the lowest index; NaN is never the largest. No
// gradient.
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

/// One comparison per element.
Cost cost_argmax(const Program& p, const Op& op) {
  return {.elementwise_flop = p.shape(op.inputs.at(0)).numel()};
}

}  // namespace

const OpDef kArgmax{.name = "argmax", .work = Work::elementwise, .infer = infer_argmax, .cost = cost_argmax};

}  // namespace rooflm::program::ops
