// fp8_cast: copies of a tensor in fp8 for scaled products (program/fp8.h). fp8_scales: the scales of the next
// step.
//
// fp8_cast, attributes rows, cols, e5m2 (otherwise e4m3), current: x [rows, cols] is multiplied by its slot's
// scale and rounded to nearest even, saturating. The slot's amax becomes the largest |x| if that is larger.
// A slot without a scale gets one from this x first; with `current` every one does.
// Inputs: x; slot [kFp8Slot], not with `current`. Outputs: copy [rows, cols] and its transpose [cols, rows],
// of which one may be absent; the slot.
//
// fp8_scales, attribute e5m2_gradients: fp8_next_scale for all slots, [.., kFp8Slot] in the order of
// Fp8Operand. Input and output: the slots.
#include "program/fp8.h"

#include <fmt/format.h>

#include "core/checked.h"
#include "program/ops.h"

namespace rooflm::program::ops {
namespace {

using core::Count;
using core::DType;

/// Kernels read and write eight and sixteen elements at a time.
constexpr std::int64_t kUnit = 16;

std::vector<Tensor> infer_fp8_cast(const Program& p, const Op& op) {
  const std::int64_t rows = op.attrs.integer("rows");
  const std::int64_t cols = op.attrs.integer("cols");
  expect(Count(rows) * cols == Count(p.shape(op.inputs.at(0)).numel()), op, [&] {
    return fmt::format("x {} is not [{}, {}]", p.shape(op.inputs[0]).str(), rows, cols);
  });
  expect(rows % kUnit == 0 && cols % kUnit == 0, op,
         [&] { return fmt::format("[{}, {}] is not of multiples of {}", rows, cols, kUnit); });
  expect(op.inputs.size() == (op.attrs.flag("current") ? 1U : 2U), op,
         [] { return "wants x and, unless its scale is that of x, a slot"; });
  const DType dtype = op.attrs.flag("e5m2") ? DType::f8_e5m2 : DType::f8;
  return {{.shape = {rows, cols}, .dtype = dtype},
          {.shape = {cols, rows}, .dtype = dtype},
          {.shape = {kFp8Slot}, .full_precision = true}};
}

/// Per element two: scaling, and the comparison with amax. x is read twice where its scale is measured first.
Cost cost_fp8_cast(const Program& p, const Op& op) {
  const Tensor& x = p.tensor(op.inputs.at(0));
  const Count count = x.shape.numel();
  Count copies = 0;
  for (const std::size_t i : {0U, 1U}) {
    if (op.outputs.at(i) != kNone) copies = copies + 1;
  }
  return {.elementwise_flop = 2 * count,
          .bytes_read = (op.attrs.flag("current") ? 2 : 1) * Count(x.bytes()),
          .bytes_written = copies * count};
}

std::vector<Tensor> infer_fp8_scales(const Program& p, const Op& op) {
  const Tensor& slots = p.tensor(op.inputs.at(0));
  expect(slots.shape[-1] == kFp8Slot && slots.shape.numel() % (kFp8Slot * kFp8Operands) == 0, op,
         [&] { return fmt::format("{} are no slots", slots.shape.str()); });
  return {slots};
}

/// One comparison for each number of the histories.
Cost cost_fp8_scales(const Program& p, const Op& op) {
  return {.elementwise_flop = p.shape(op.inputs.at(0)).numel() / kFp8Slot * kFp8History};
}

}  // namespace

const OpDef kFp8Cast{.name = "fp8_cast", .work = Work::copy, .infer = infer_fp8_cast, .cost = cost_fp8_cast};
const OpDef kFp8Scales{
    .name = "fp8_scales", .work = Work::copy, .infer = infer_fp8_scales, .cost = cost_fp8_scales};

}  // namespace rooflm::program::ops
