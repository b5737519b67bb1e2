// fp8_cast: fp8 copies of a tensor for fp8 matmuls (program/fp8.h). fp8_scales: the scales of the next step.
//
// fp8_cast, attributes rows, cols, e5m2 (otherwise e4m3), current: multiplies x [rows, cols] by its slot's
// scale and rounds to nearest even, saturating. The slot's amax becomes max(amax, max |x|). A slot without a
// scale first gets one from this x; with `current` every one does. Inputs: x; slot [kFp8Slot], absent with
// `current`. Outputs: the copy [rows, cols] and its transpose [cols, rows], one of which may be absent; the
// slot.
//
// Casts fused into the op that produces x, made by passes/fp8_matmuls.h, with the same attributes, slot and
// outputs:
// swiglu_fp8: x = swiglu(h), rounded to the dtype of h as if it were stored. Inputs: h [rows, 2 cols], slot.
// swiglu_backward_fp8: x = the gradient of swiglu. Inputs: dy [rows, cols / 2], h [rows, cols], slot.
// layernorm_fp8, rmsnorm_fp8, add_layernorm_fp8, add_rmsnorm_fp8: x = the norm's y, in e4m3, cols at most
// kFp8NormCols. Inputs: those of the norm, slot. Outputs after the slot: those of the norm except y: [r,]
// [mean,] rstd. Attributes: also those of the norm.
//
// fp8_scales, attribute e5m2_gradients: fp8_next_scale for all slots, [.., kFp8Slot] in the order of
// Fp8Operand, in place.
#include "program/fp8.h"

#include <fmt/format.h>

#include "core/checked.h"
#include "program/ops.h"

namespace rooflm::program::ops {
namespace {

using core::Count;
using core::DType;

/// Kernels read and write vectors of 8 and 16 elements.
constexpr std::int64_t kUnit = 16;

/// Refuses input `i` unless its shape is [rows, cols].
void expect_matrix(const Program& p, const Op& op, std::size_t i, std::int64_t rows, std::int64_t cols) {
  expect(Count(rows) * cols == p.shape(op.inputs.at(i)).numel(), op, [&] {
    return fmt::format("input {} {} is not [{}, {}]", i, p.shape(op.inputs[i]).str(), rows, cols);
  });
}

/// The outputs of a cast of [rows, cols] that has so many inputs before the slot.
std::vector<Tensor> copies(const Op& op, std::size_t inputs) {
  const std::int64_t rows = op.attrs.integer("rows");
  const std::int64_t cols = op.attrs.integer("cols");
  expect(rows % kUnit == 0 && cols % kUnit == 0, op,
         [&] { return fmt::format("[{}, {}] is not of multiples of {}", rows, cols, kUnit); });
  expect(op.inputs.size() == inputs + (op.attrs.flag("current") ? 0 : 1), op,
         [] { return "expected a slot, except with current scaling"; });
  const DType dtype = op.attrs.flag("e5m2") ? DType::f8_e5m2 : DType::f8;
  return {{.shape = {rows, cols}, .dtype = dtype},
          {.shape = {cols, rows}, .dtype = dtype},
          {.shape = {kFp8Slot}, .full_precision = true}};
}

std::vector<Tensor> infer_fp8_cast(const Program& p, const Op& op) {
  expect_matrix(p, op, 0, op.attrs.integer("rows"), op.attrs.integer("cols"));
  return copies(op, 1);
}

std::vector<Tensor> infer_swiglu_fp8(const Program& p, const Op& op) {
  expect_matrix(p, op, 0, op.attrs.integer("rows"), 2 * op.attrs.integer("cols"));
  return copies(op, 1);
}

std::vector<Tensor> infer_swiglu_backward_fp8(const Program& p, const Op& op) {
  const std::int64_t rows = op.attrs.integer("rows");
  const std::int64_t cols = op.attrs.integer("cols");
  expect(cols % (2 * kUnit) == 0, op, [&] { return fmt::format("{} columns have no halves", cols); });
  expect_matrix(p, op, 0, rows, cols / 2);
  expect_matrix(p, op, 1, rows, cols);
  return copies(op, 2);
}

/// Cost of a cast that computes each element with `flop_per_element`, plus two FLOP for scaling and for the
/// comparison with amax. If the scale is measured first, everything is read and computed twice.
Cost cost_of_cast(const Program& p, const Op& op, std::size_t inputs, double flop_per_element) {
  const Count times = op.attrs.flag("current") ? 2 : 1;
  const Count count = Count(op.attrs.integer("rows")) * op.attrs.integer("cols");
  Cost cost{.elementwise_flop =
                2 * count + times * static_cast<std::int64_t>(flop_per_element * static_cast<double>(count))};
  for (std::size_t i = 0; i < inputs; ++i)
    cost.bytes_read = cost.bytes_read + times * Count(p.tensor(op.inputs.at(i)).bytes());
  for (const std::size_t i : {0U, 1U}) {
    if (op.outputs.at(i) != kNone) cost.bytes_written = cost.bytes_written + count;
  }
  return cost;
}

Cost cost_fp8_cast(const Program& p, const Op& op) { return cost_of_cast(p, op, 1, 0); }

/// As swiglu and its gradient.
Cost cost_swiglu_fp8(const Program& p, const Op& op) { return cost_of_cast(p, op, 1, 5); }
Cost cost_swiglu_backward_fp8(const Program& p, const Op& op) { return cost_of_cast(p, op, 2, 5.5); }

/// The norm op whose output this op casts.
Op norm_in(const Op& op, const OpDef& def) {
  Op norm = op;
  norm.def = &def;
  if (!op.attrs.flag("current")) norm.inputs.pop_back();
  return norm;
}

/// `y`: the index of the norm's output that is cast.
template <const OpDef& kNorm, std::size_t y>
std::vector<Tensor> infer_norm_fp8(const Program& p, const Op& op) {
  const Op norm = norm_in(op, kNorm);
  const std::int64_t cols = op.attrs.integer("cols");
  expect_matrix(p, op, 0, op.attrs.integer("rows"), cols);
  expect(cols <= kFp8NormCols && !op.attrs.flag("e5m2"), op,
         [&] { return fmt::format("of {} columns, at most {}, in e4m3", cols, kFp8NormCols); });
  std::vector<Tensor> outputs = copies(op, norm.inputs.size());
  std::vector<Tensor> others = kNorm.infer(p, norm);
  others.erase(others.begin() + y);
  outputs.insert(outputs.end(), others.begin(), others.end());
  return outputs;
}

template <const OpDef& kNorm>
Cost cost_norm_fp8(const Program& p, const Op& op) {
  constexpr std::size_t kFirstOther = 3;  // first output after the copies and the slot
  const Op norm = norm_in(op, kNorm);
  Cost cost = cost_of_cast(p, op, norm.inputs.size(), 0);
  const Count times = op.attrs.flag("current") ? 2 : 1;
  cost.elementwise_flop = cost.elementwise_flop + times * kNorm.cost(p, norm).elementwise_flop;
  for (std::size_t i = kFirstOther; i < op.outputs.size(); ++i)
    cost.bytes_written = cost.bytes_written + Count(p.tensor(op.outputs[i]).bytes());
  return cost;
}

template <const OpDef& kNorm, std::size_t y>
constexpr OpDef norm_fp8(std::string_view name) {
  return {.name = name, .work = Work::norm, .infer = infer_norm_fp8<kNorm, y>, .cost = cost_norm_fp8<kNorm>};
}

std::vector<Tensor> infer_fp8_scales(const Program& p, const Op& op) {
  const Tensor& slots = p.tensor(op.inputs.at(0));
  expect(slots.shape[-1] == kFp8Slot && slots.shape.numel() % (std::int64_t{kFp8Slot} * kFp8Operands) == 0,
         op, [&] { return fmt::format("{} are no slots", slots.shape.str()); });
  return {slots};
}

/// One comparison per number of the histories.
Cost cost_fp8_scales(const Program& p, const Op& op) {
  return {.elementwise_flop = p.shape(op.inputs.at(0)).numel() / kFp8Slot * kFp8History};
}

}  // namespace

const OpDef kFp8Cast{.name = "fp8_cast", .work = Work::copy, .infer = infer_fp8_cast, .cost = cost_fp8_cast};
const OpDef kSwiGluFp8{.name = "swiglu_fp8", .infer = infer_swiglu_fp8, .cost = cost_swiglu_fp8};
const OpDef kSwiGluBackwardFp8{
    .name = "swiglu_backward_fp8", .infer = infer_swiglu_backward_fp8, .cost = cost_swiglu_backward_fp8};
const OpDef kLayerNormFp8 = norm_fp8<kLayerNorm, 0>("layernorm_fp8");
const OpDef kAddLayerNormFp8 = norm_fp8<kAddLayerNorm, 1>("add_layernorm_fp8");
const OpDef kRmsNormFp8 = norm_fp8<kRmsNorm, 0>("rmsnorm_fp8");
const OpDef kAddRmsNormFp8 = norm_fp8<kAddRmsNorm, 1>("add_rmsnorm_fp8");
const OpDef kFp8Scales{
    .name = "fp8_scales", .work = Work::copy, .infer = infer_fp8_scales, .cost = cost_fp8_scales};

}  // namespace rooflm::program::ops
