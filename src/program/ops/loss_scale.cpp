// loss_scale: decides whether an update with scaled gradients is applied, and sets the next scale.
//
// Inputs: hyper [4]; norm [1] of the scaled gradients; state (program/loss_scale.h). With s the scale of the
// state:
//   hyper' = hyper with hyper[3] = 1 / s, or 0 if the norm is not finite: the update is skipped
//   norm'  = norm / s
//   state: a finite norm counts towards doubling s; any other halves s and counts as a skipped update.
// Outputs: hyper' [4], norm' [1], the state in place.
#include "program/loss_scale.h"

#include "program/ops.h"

namespace rooflm::program::ops {
namespace {

std::vector<Tensor> infer_loss_scale(const Program& p, const Op& op) {
  expect(op.inputs.size() == 3, op, [] { return "expected hyper, norm and state"; });
  expect(p.shape(op.inputs[2]).numel() == kLossScaleState, op, [] { return "the state has another shape"; });
  return {{.shape = {4}, .full_precision = true},
          {.shape = {1}, .role = Role::result, .full_precision = true},
          p.tensor(op.inputs[2])};
}

/// 2: the division of the norm and the inverse of the scale.
Cost cost_loss_scale(const Program&, const Op&) { return {.elementwise_flop = 2}; }

}  // namespace

const OpDef kLossScale{
    .name = "loss_scale", .work = Work::optimizer, .infer = infer_loss_scale, .cost = cost_loss_scale};

}  // namespace rooflm::program::ops
