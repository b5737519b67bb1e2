// What a gradient rule works with: the forward op, the gradients of its outputs, and where to put the new
// ones.
#include "program/gradient.h"

#include <utility>

#include "program/ops.h"

namespace rooflm::program {

TensorId GradientContext::gradient(std::size_t i) const { return gradients_->of(op_.outputs.at(i)); }

Op GradientContext::make(const OpDef& def, std::vector<TensorId> inputs, Attributes attrs) const {
  Op op;
  op.def = &def;
  op.inputs = std::move(inputs);
  op.attrs = std::move(attrs);
  op.phase = Phase::backward;
  op.scope = op_.scope;
  op.micro_batch = op_.micro_batch;
  return op;
}

std::vector<TensorId> GradientContext::emit(const OpDef& def, std::vector<TensorId> inputs, Attributes attrs,
                                            const std::vector<core::Shape>& shapes) {
  const TensorId named = op_.outputs.empty() ? op_.inputs.at(0) : op_.outputs.front();
  auto ids = program_->append(make(def, std::move(inputs), std::move(attrs)),
                              "d_" + program_->tensor(named).name, shapes);
  for (const TensorId id : ids) program_->tensor(id).role = Role::activation_gradient;
  return ids;
}

void GradientContext::emit_into(const OpDef& def, std::vector<TensorId> inputs, Attributes attrs,
                                std::vector<TensorId> outputs) {
  program_->append_to(make(def, std::move(inputs), std::move(attrs)), std::move(outputs));
}

void GradientContext::propagate(std::size_t i, TensorId gradient) {
  const TensorId input = op_.inputs.at(i);
  const TensorId earlier = gradients_->of(input);
  if (earlier == kNone) return gradients_->set(input, gradient);
  const TensorId sum = emit(ops::kAdd, {earlier, gradient}, {}).at(0);
  program_->tensor(sum).name = "d_" + program_->tensor(input).name;
  gradients_->set(input, sum);
}

GradientContext::Target GradientContext::weight_target(std::size_t i) {
  const TensorId weight = op_.inputs.at(i);
  if (const TensorId known = gradients_->of(weight); known != kNone) return {known, true};
  const TensorId id = program_->add_tensor({.name = "d_" + program_->tensor(weight).name,
                                            .shape = program_->shape(weight),
                                            .role = Role::gradient,
                                            .full_precision = true,
                                            .shards = program_->tensor(weight).shards});
  gradients_->set(weight, id);
  return {id, false};
}

TensorId GradientContext::new_gradient(std::size_t i) {
  const TensorId input = op_.inputs.at(i);
  return program_->add_tensor({.name = "d_" + program_->tensor(input).name,
                               .shape = program_->shape(input),
                               .role = Role::activation_gradient,
                               .full_precision = program_->tensor(input).full_precision});
}

}  // namespace rooflm::program
