// Names the operands of an op that updates weights.
#include "program/update.h"

#include <cstdint>
#include <iterator>
#include <vector>

namespace rooflm::program {
namespace {

/// Index of the first weight copy among the outputs of an update.
std::ptrdiff_t first_copy(const Op& op) {
  const UpdateOperands operands(op);
  return static_cast<std::ptrdiff_t>(operands.weight_out(operands.count()));
}

}  // namespace

void append_update(Op& to, const Op& more) {
  const std::ptrdiff_t own = first_copy(to);
  const std::ptrdiff_t other = first_copy(more);
  const auto shared = static_cast<std::ptrdiff_t>(UpdateOperands(more).weight_in(0));
  if (!to.input_offset.empty() || !more.input_offset.empty()) {
    to.input_offset.resize(to.inputs.size(), 0);
    std::vector<std::int64_t> offsets = more.input_offset;
    offsets.resize(more.inputs.size(), 0);
    to.input_offset.insert(to.input_offset.end(), offsets.begin() + shared, offsets.end());
  }
  to.outputs.insert(to.outputs.begin() + own, more.outputs.begin(), more.outputs.begin() + other);
  to.outputs.insert(to.outputs.end(), more.outputs.begin() + other, more.outputs.end());
  to.inputs.insert(to.inputs.end(), more.inputs.begin() + shared, more.inputs.end());
}

Op single_update(const Op& op, std::size_t i) {
  const UpdateView all(op);
  Op one = op;
  one.inputs = {all.hyper(), all.norm(), all.weight(i), all.gradient(i)};
  one.outputs = {op.outputs[all.weight_out(i)]};
  for (std::size_t k = 0; k < all.moments(); ++k) {
    one.inputs.push_back(all.moment(i, k));
    one.outputs.push_back(op.outputs[all.moment_out(i, k)]);
  }
  if (all.has_copies()) one.outputs.push_back(all.copy(i));
  if (op.input_offset.empty()) return one;
  one.input_offset.assign(one.inputs.size(), 0);
  one.input_offset[UpdateOperands(one).gradient_in(0)] = op.input_offset[all.gradient_in(i)];
  return one;
}

}  // namespace rooflm::program
