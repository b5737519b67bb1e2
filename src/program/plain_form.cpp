// Expands a fused op into the equivalent plain ops.
#include "program/plain_form.h"

#include <algorithm>
#include <utility>

namespace rooflm::program {
namespace {

PlainForm::Operand operand(const std::vector<TensorId>& ids, const std::vector<std::int64_t>& offsets,
                           std::size_t i) {
  return {.id = ids.at(i), .offset = i < offsets.size() ? offsets[i] : 0};
}

void split(const std::vector<PlainForm::Operand>& operands, std::vector<TensorId>& ids,
           std::vector<std::int64_t>& offsets) {
  for (const auto& [id, offset] : operands) {
    ids.push_back(id);
    offsets.push_back(offset);
  }
  const bool is_whole = std::all_of(offsets.begin(), offsets.end(), [](auto offset) { return offset == 0; });
  if (is_whole) offsets.clear();
}

}  // namespace

PlainForm::Operand PlainForm::input(std::size_t i) const {
  return operand(op_->inputs, op_->input_offset, i);
}
PlainForm::Operand PlainForm::output(std::size_t i) const {
  return operand(op_->outputs, op_->output_offset, i);
}

void PlainForm::emit(const OpDef& def, const std::vector<Operand>& inputs, Attributes attrs,
                     const std::vector<Operand>& outputs) {
  Op op = *op_;
  op.def = &def;
  op.attrs = std::move(attrs);
  op.inputs.clear();
  op.outputs.clear();
  op.input_offset.clear();
  op.output_offset.clear();
  split(inputs, op.inputs, op.input_offset);
  split(outputs, op.outputs, op.output_offset);
  emit(std::move(op));
}

void PlainForm::emit(Op op) {
  op.lane = Lane::compute;
  op.waits.clear();
  ops_.push_back(std::move(op));
}

std::vector<Op> plain_ops(const Program& program, const Op& op) {
  if (op.def->plain == nullptr) return {};
  PlainForm form(program, op);
  op.def->plain(form);
  return form.ops();
}

}  // namespace rooflm::program
