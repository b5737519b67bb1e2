// Dropout, for plans of frameworks that train with it.
#include "compile/planned/dropout.h"

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "compile/passes/op_like.h"
#include "compile/passes/words.h"
#include "core/scope.h"

namespace rooflm::passes {
namespace {

std::vector<Tensor> infer_dropout(const Program& p, const Op& op) {
  const Tensor& x = p.tensor(op.inputs.at(0));
  return {{.shape = x.shape, .role = x.role}, {.shape = x.shape}};
}

/// A random number, a comparison and a multiplication per element.
Cost cost_dropout(const Program& p, const Op& op) {
  const Tensor& x = p.tensor(op.inputs.at(0));
  Cost cost{.elementwise_flop = 3 * x.shape.numel()};
  if (op.attrs.flag("fused")) {
    cost.bytes_read = x.bytes();
    cost.bytes_written = x.shape.numel();
  }
  return cost;
}

std::vector<Tensor> infer_dropout_backward(const Program& p, const Op& op) {
  return {{.shape = p.shape(op.inputs.at(0)), .role = Role::activation_gradient}};
}
Cost cost_dropout_backward(const Program& p, const Op& op) {
  return {.elementwise_flop = 2 * p.shape(op.inputs.at(0)).numel()};
}

/// Whether the op's matmul feeds the residual. Tensor-parallel partial results are summed first.
bool ends_in_residual(const Op& op) {
  const auto part = core::Scope(op.scope).part();
  return part == "attention/proj" || part == "feed_forward/fc2";
}

class DropoutWriter {
 public:
  explicit DropoutWriter(Program& step) : step_(&step) {
    for (const Op& op : step.ops) {
      if (program::is_collective(op) && op.phase == Phase::forward) summed_.insert(op.scope);
    }
  }

  void run() {
    std::vector<Op> ops = std::move(step_->ops);
    step_->ops.clear();
    for (Op& op : ops) {
      const bool is_softmax_backward = op.is(ops::kCausalSoftmaxBackward);
      if (is_softmax_backward) {
        op.inputs.at(0) = backward(op, op.inputs.at(0), masks_.at(op.inputs.at(1)));
      } else {
        for (TensorId& id : op.inputs) {
          if (const auto found = dropped_.find(id); found != dropped_.end()) id = found->second;
        }
        if (op.phase == Phase::backward && !op.recomputed && ends_in_residual(op)) read_masked(op);
      }
      const bool is_forward = op.phase == Phase::forward || op.recomputed;
      const bool is_probability = op.is(ops::kCausalSoftmax);
      const bool is_branch = is_forward && ends_in_residual(op) && is_last_of_branch(op);
      step_->ops.push_back(op);
      if (is_probability || is_branch) forward(op, is_branch);
    }
  }

 private:
  using Branch = std::tuple<std::string, int>;

  [[nodiscard]] bool is_last_of_branch(const Op& op) const {
    return summed_.contains(op.scope) ? program::is_collective(op) : op.is(ops::kMatmul);
  }

  void forward(const Op& op, bool is_fused) {
    const TensorId x = op.outputs.at(0);
    Tensor y = step_->tensor(x);
    y.name += ".dropout";
    const TensorId dropped = step_->add_tensor(y);
    y.name += "_mask";
    y.dtype = core::DType::f8;
    const TensorId mask = step_->add_tensor(std::move(y));
    Op drop = op_like(op, kDropout, {x}, {dropped, mask});
    drop.attrs = Attributes{{"fused", is_fused}};
    step_->ops.push_back(std::move(drop));
    dropped_[x] = dropped;
    masks_[x] = mask;
    if (is_fused) branches_[{op.scope, op.micro_batch}] = mask;
  }

  TensorId backward(const Op& like, TensorId dy, TensorId mask) {
    Tensor dx = step_->tensor(dy);
    dx.name += ".dropout";
    dx.role = Role::activation_gradient;
    const TensorId result = step_->add_tensor(std::move(dx));
    Op op = op_like(like, kDropoutBackward, {dy, mask}, {result});
    op.attrs = Attributes{};
    step_->ops.push_back(std::move(op));
    return result;
  }

  /// The gradient ops of the branch read the masked gradient of the residual.
  void read_masked(Op& op) {
    const auto mask = branches_.find({op.scope, op.micro_batch});
    if (mask == branches_.end()) return;
    const core::Shape shape = step_->shape(mask->second);
    for (TensorId& id : op.inputs) {
      const bool is_gradient = id != program::kNone && step_->shape(id) == shape &&
                               step_->tensor(id).role == Role::activation_gradient;
      if (!is_gradient || program::is_collective(op)) continue;
      const auto [entry, is_new] = masked_.try_emplace({id, mask->second}, program::kNone);
      if (is_new) entry->second = backward(op, id, mask->second);
      id = entry->second;
    }
  }

  Program* step_;
  std::map<TensorId, TensorId> dropped_, masks_;  ///< by the tensor that dropout reads
  std::map<Branch, TensorId> branches_;           ///< masks
  /// Scopes whose matmul results are summed over tensor-parallel ranks.
  std::set<std::string> summed_;
  std::map<std::pair<TensorId, TensorId>, TensorId> masked_;  ///< by gradient and mask
};

}  // namespace

const program::OpDef kDropout{.name = "dropout", .infer = infer_dropout, .cost = cost_dropout};
const program::OpDef kDropoutBackward{
    .name = "dropout_backward", .infer = infer_dropout_backward, .cost = cost_dropout_backward};

void dropout(Program& step) { DropoutWriter(step).run(); }

}  // namespace rooflm::passes
