// The loss as frameworks compute it that do not fuse it. For plans only.
#include "compile/planned/unfused_loss.h"

#include <map>
#include <utility>
#include <vector>

#include "compile/passes/op_like.h"
#include "compile/passes/words.h"
#include "core/checked.h"

namespace rooflm::passes {
namespace {

Tensor whole_logits(const core::Shape& shape) { return {.shape = shape, .full_precision = true}; }

std::vector<Tensor> infer_log_softmax(const Program& p, const Op& op) {
  return {whole_logits(p.shape(op.inputs.at(0)))};
}
/// 4 per logit: maximum, subtract, exp, sum.
Cost cost_log_softmax(const Program& p, const Op& op) {
  return {.elementwise_flop = 4 * p.shape(op.inputs.at(0)).numel()};
}

std::vector<Tensor> infer_pick(const Program&, const Op& op) {
  const std::int64_t rows = op.attrs.integer("rows");
  return {{.shape = {rows}, .full_precision = true}, {.shape = {rows}, .full_precision = true}};
}
/// One element per row is read.
Cost cost_pick(const Program&, const Op& op) {
  const core::Count rows = op.attrs.integer("rows");
  return {.bytes_read = 8 * rows, .bytes_written = 4 * rows};
}

std::vector<Tensor> infer_pick_backward(const Program& p, const Op& op) {
  return {whole_logits(p.shape(op.outputs.at(0)))};
}
Cost cost_zeros(const Program&, const Op&) { return {}; }

Cost cost_last_step(const Program& p, const Op& op) {
  return {.elementwise_flop = p.shape(op.inputs.at(0)).numel(),
          .bytes_read = p.tensor(op.inputs.at(0)).bytes(),
          .bytes_written = p.tensor(op.outputs.at(0)).bytes()};
}

class LossWriter {
 public:
  explicit LossWriter(Program& step) : step_(&step) {}

  void run() {
    std::vector<Op> ops = std::move(step_->ops);
    step_->ops.clear();
    for (Op& op : ops) {
      if (op.is(ops::kCrossEntropy)) {
        forward(op);
      } else if (op.is(ops::kCrossEntropyBackward)) {
        backward(op);
      } else {
        step_->ops.push_back(std::move(op));
      }
    }
  }

 private:
  void write(const Op& like, const program::OpDef& def, std::vector<TensorId> inputs,
             std::vector<TensorId> outputs) {
    step_->ops.push_back(op_like(like, def, std::move(inputs), std::move(outputs)));
  }
  TensorId whole(const char* name, TensorId logits, Role role) {
    Tensor tensor = whole_logits(step_->shape(logits));
    tensor.name = name;
    tensor.role = role;
    return step_->add_tensor(std::move(tensor));
  }

  void forward(const Op& op) {
    const TensorId logits = op.inputs.at(0);
    const TensorId wide = whole("logits_fp32", logits, Role::activation);
    const TensorId kept = whole("log_probabilities", logits, Role::activation);
    write(op, ops::kCast, {logits}, {wide});
    if (op.attrs.has("first")) {
      const TensorId shifted = whole("shifted_logits", logits, Role::activation);
      const TensorId powers = whole("exp_logits", logits, Role::activation);
      write(op, kLossStep, {wide}, {shifted});
      write(op, kLossStep, {shifted}, {powers});
      write(op, kLossStep, {shifted, powers}, {kept});
    } else {
      write(op, kLogSoftmax, {wide}, {kept});
    }
    write(op, kPickLosses, {kept, op.inputs.at(1)}, op.outputs);
    kept_[logits] = kept;
  }

  void backward(const Op& op) {
    const TensorId logits = op.inputs.at(0);
    const TensorId picked = whole("d_log_probabilities", logits, Role::activation_gradient);
    const TensorId wide = whole("d_logits_fp32", logits, Role::activation_gradient);
    write(op, kPickLossesBackward, {op.inputs.at(1), op.inputs.at(2)}, {picked});
    if (op.attrs.has("first")) {
      const TensorId powers = whole("probabilities", logits, Role::activation_gradient);
      const TensorId sum = whole("d_sum", logits, Role::activation_gradient);
      write(op, kLossStep, {kept_.at(logits)}, {powers});
      write(op, kLossStep, {picked, powers}, {sum});
      write(op, kLossLastStep, {sum, picked, kept_.at(logits)}, {wide});
    } else {
      write(op, kLogSoftmaxBackward, {picked, kept_.at(logits)}, {wide});
    }
    write(op, ops::kCast, {wide}, op.outputs);
  }

  Program* step_;
  std::map<TensorId, TensorId> kept_;  ///< log softmax by logits
};

}  // namespace

const program::OpDef kLogSoftmax{
    .name = "log_softmax", .work = program::Work::loss, .infer = infer_log_softmax, .cost = cost_log_softmax};
const program::OpDef kPickLosses{
    .name = "pick_losses", .work = program::Work::loss, .infer = infer_pick, .cost = cost_pick};
const program::OpDef kPickLossesBackward{.name = "pick_losses_backward",
                                         .work = program::Work::loss,
                                         .infer = infer_pick_backward,
                                         .cost = cost_zeros};
const program::OpDef kLogSoftmaxBackward{.name = "log_softmax_backward",
                                         .work = program::Work::loss,
                                         .infer = infer_log_softmax,
                                         .cost = cost_log_softmax};

const program::OpDef kLossStep{
    .name = "loss_step", .work = program::Work::loss, .infer = infer_log_softmax, .cost = cost_log_softmax};
const program::OpDef kLossLastStep{
    .name = "loss_step", .work = program::Work::loss, .infer = infer_log_softmax, .cost = cost_last_step};

void unfused_loss(Program& step) { LossWriter(step).run(); }

}  // namespace rooflm::passes
