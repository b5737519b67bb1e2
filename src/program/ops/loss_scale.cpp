// loss_scale: decides about one update of mixed precision with scaled gradients, and about the next scale.
//
// Inputs: hyper [4]; norm [1] of the scaled gradients; state (program/loss_scale.h). With s the state's
// scale:
//   hyper' = hyper with 1 / s in the last place, or 0 when the norm is not finite: the update is skipped
//   norm' = norm / s
//   state: a finite norm counts towards doubling s, another one halves s and counts as a skipped update.
// Outputs: hyper' [4], norm' [1], the state in its place.
#include "program/loss_scale.h"

#include "program/ops.h"

namespace rooflm::program::ops {
namespace {

std::vector<Tensor> infer_loss_scale(const Program& p, const Op& op) {
  expect(op.inputs.size() == 3, op, [] { return "wants hyper, norm and state"; });
  expect(p.shape(op.inputs[2]).numel() == kLossScaleState, op, [] { return "the state has another shape"; });
  return {{.shape = {4}, .full_precision = true},
          {.shape = {1}, .role = Role::result, .full_precision = true},
          p.tensor(op.inputs[2])};
}

/// 2: the norm's division and the scale's inverse.
Cost cost_loss_scale(const Program&, const Op&) { return {.elementwise_flop = 2}; }

}  // namespace

const OpDef kLossScale{
    .name = "loss_scale", .work = Work::optimizer, .infer = infer_loss_scale, .cost = cost_loss_scale};

}  // namespace rooflm::program::ops
