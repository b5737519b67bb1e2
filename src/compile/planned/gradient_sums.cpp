// Gradient accumulation over micro-batches by separate additions. For plans only.
#include "compile/planned/gradient_sums.h"

#include <utility>
#include <vector>

#include "compile/passes/op_like.h"
#include "compile/passes/words.h"
#include "core/dtype.h"

namespace rooflm::passes {
namespace {

std::vector<Tensor> infer_sum(const Program& p, const Op& op) {
  const Tensor& sum = p.tensor(op.outputs.at(0));
  return {{.shape = sum.shape, .role = sum.role, .full_precision = sum.full_precision}};
}

Cost cost_sum(const Program& p, const Op& op) {
  const Tensor& sum = p.tensor(op.outputs.at(0));
  const Tensor& own = p.tensor(op.inputs.at(1));
  return {.elementwise_flop = sum.shape.numel(),
          .bytes_read = sum.bytes() + own.bytes(),
          .bytes_written = sum.bytes()};
}

bool adds_to_gradient(const Program& step, const Op& op) {
  return ops::is_matmul(op) && op.attrs.flag("accumulate") && op.output_offset.empty() &&
         step.tensor(op.outputs[0]).role == Role::gradient;
}

}  // namespace

const program::OpDef kAddGradient{.name = "add_gradient", .infer = infer_sum, .cost = cost_sum};

void gradient_sums(Program& step) {
  std::vector<Op> all = std::move(step.ops);
  step.ops.clear();
  for (Op& op : all) {
    if (!adds_to_gradient(step, op)) {
      step.ops.push_back(std::move(op));
      continue;
    }
    const TensorId sum = op.outputs[0];
    const core::DType factor = step.tensor(op.inputs[0]).dtype;
    Tensor own = step.tensor(sum);
    own.name += ".of_micro_batch";
    own.dtype = core::is_fp8(factor) ? core::DType::bf16 : factor;
    own.role = Role::workspace;
    own.view_of = program::kNone;
    const TensorId made = step.add_tensor(std::move(own));
    op.outputs[0] = made;
    op.attrs.set("accumulate", false);
    Op add = op_like(op, kAddGradient, {sum, made}, {sum});
    add.attrs = Attributes{};
    step.ops.push_back(std::move(op));
    step.ops.push_back(std::move(add));
  }
}

}  // namespace rooflm::passes
