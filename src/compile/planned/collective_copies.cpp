// The copies that PyTorch makes around collectives. For plans only.
#include "compile/planned/collective_copies.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compile/passes/op_like.h"
#include "compile/passes/words.h"
#include "compile/planned/gradient_sums.h"

namespace rooflm::passes {
namespace {

std::vector<Tensor> infer_rearrange(const Program& p, const Op& op) {
  std::vector<Tensor> outputs;
  outputs.reserve(op.inputs.size());
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const Tensor& like = p.tensor(i < op.outputs.size() ? op.outputs[i] : op.inputs[i]);
    outputs.push_back(
        {.shape = p.shape(op.inputs[i]), .role = like.role, .full_precision = like.full_precision});
  }
  return outputs;
}

Cost cost_rearrange(const Program&, const Op&) { return {}; }

Op rearrange(const Op& like, std::vector<TensorId> from, std::vector<TensorId> to) {
  Op op = op_like(like, kRearrange, std::move(from), std::move(to));
  op.attrs = Attributes{};
  return op;
}

/// A temporary tensor with the size of another.
TensorId buffer_like(Program& step, TensorId id, DType dtype, const std::string& suffix) {
  const Tensor like = step.tensor(id);
  return step.add_tensor({.name = like.name + suffix,
                          .shape = like.shape,
                          .dtype = dtype,
                          .role = Role::workspace,
                          .full_precision = dtype == DType::f32});
}

bool is_of(const Op& op, const program::OpDef& def, program::Group group) {
  return op.is(def) && program::group_of(op) == group;
}

class UnitBuffers {
 public:
  UnitBuffers(Program& step, UnitKind kind) : step_(&step), kind_(kind) {}

  void run() {
    std::vector<Op> ops = std::move(step_->ops);
    step_->ops.clear();
    for (const Op& op : ops) {
      if (op.phase == program::Phase::setup && op.is(ops::kCast)) masters_[op.outputs[0]] = op.inputs[0];
      if (op.attrs.flag("accumulate") || op.is(kAddGradient))
        added_up_.insert(op.outputs.begin(), op.outputs.end());
    }
    for (Op& op : ops) {
      copy_before_use(op);
      const bool is_flat = kind_ != UnitKind::copied;
      if (is_of(op, ops::kAllGather, program::Group::data) && !is_flat) {
        gather(op);
      } else if (is_of(op, ops::kReduceScatter, program::Group::data) &&
                 (is_flat || !op.attrs.flag("accumulate"))) {
        reduce(op);
      }
      step_->ops.push_back(std::move(op));
    }
  }

 private:
  /// Weights are copied out of the buffer when they are needed, not when they arrive.
  void gather(Op& op) {
    for (TensorId& id : op.inputs) id = cast_of_master(op, id);
    const std::vector<TensorId> weights = op.outputs;
    for (TensorId& id : op.outputs) id = buffer_like(*step_, id, step_->tensor(id).dtype, ".gathered");
    const std::size_t number = copies_.size();
    copies_.push_back(rearrange(op, op.outputs, weights));
    for (const TensorId id : weights) pending_[id] = number;
  }

  /// Parts are cast from their masters each time, so they have no 16-bit copies.
  TensorId cast_of_master(const Op& like, TensorId id) {
    const auto found = masters_.find(id);
    if (found == masters_.end()) return id;
    step_->tensor(id).view_of = found->second;
    const TensorId own = buffer_like(*step_, id, step_->tensor(id).dtype, ".sent");
    Op cast = rearrange(like, {found->second}, {own});
    cast.def = &ops::kCast;
    step_->ops.push_back(std::move(cast));
    return own;
  }

  void copy_before_use(const Op& op) {
    for (const TensorId id : op.inputs) {
      const auto found = pending_.find(id);
      if (found == pending_.end()) continue;
      Op copy = copies_[found->second];
      copy.phase = op.phase;
      for (const TensorId weight : copy.outputs) pending_.erase(weight);
      step_->ops.push_back(std::move(copy));
    }
  }

  void reduce(Op& op) {
    const std::vector<TensorId> gradients = op.inputs;
    for (TensorId& id : op.inputs) {
      Tensor& gradient = step_->tensor(id);
      if (gradient.dtype == DType::f32 && has_halves_ && !added_up_.contains(id)) {
        gradient.dtype = DType::bf16;
        gradient.full_precision = false;
      }
      const DType dtype = kind_ == UnitKind::flat_halves ? gradient.dtype : DType::f32;
      id = buffer_like(*step_, id, dtype, ".reduced");
    }
    step_->ops.push_back(rearrange(op, gradients, op.inputs));
  }

  Program* step_;
  UnitKind kind_;
  std::vector<Op> copies_;
  /// Accumulated over micro-batches: in fp32 (to_accumulated_grad_if_needed).
  std::set<TensorId> added_up_;
  std::map<TensorId, TensorId> masters_;     ///< by 16-bit copy
  std::map<TensorId, std::size_t> pending_;  ///< weights that are gathered but not yet copied, by their copy
  bool has_halves_ =
      std::ranges::any_of(step_->tensors, [](const Tensor& tensor) { return tensor.dtype == DType::bf16; });
};

}  // namespace

const program::OpDef kRearrange{
    .name = "rearrange", .work = program::Work::copy, .infer = infer_rearrange, .cost = cost_rearrange};

void unit_buffers(Program& step, UnitKind kind) {
  if (kind != UnitKind::none) UnitBuffers(step, kind).run();
}

void row_copies(Program& step) {
  std::vector<Op> ops = std::move(step.ops);
  step.ops.clear();
  for (Op& op : ops) {
    const bool gathers = is_of(op, ops::kAllGather, program::Group::tensor);
    const bool scatters = is_of(op, ops::kReduceScatter, program::Group::tensor);
    const bool is_activation =
        (gathers || scatters) && op.outputs.size() == 1 && step.shape(op.outputs[0]).rank() > 1;
    if (!is_activation) {
      step.ops.push_back(std::move(op));
      continue;
    }
    const TensorId whole = gathers ? op.outputs[0] : op.inputs[0];
    const TensorId chunks = buffer_like(step, whole, step.tensor(whole).dtype, ".chunks");
    const Op copy = gathers ? rearrange(op, {chunks}, {whole}) : rearrange(op, {whole}, {chunks});
    (gathers ? op.outputs[0] : op.inputs[0]) = chunks;
    if (scatters) step.ops.push_back(copy);
    step.ops.push_back(std::move(op));
    if (gathers) step.ops.push_back(copy);
  }
}

}  // namespace rooflm::passes
