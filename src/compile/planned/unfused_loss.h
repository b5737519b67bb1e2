// The loss as frameworks compute it that do not fuse it. For plans only.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

// Ops that the pass emits. No kernel computes them, so they are not in ops::all(). All tensors [N, V] are
// fp32.
/// log_probabilities [N, V] = log softmax of logits [N, V].
extern const program::OpDef kLogSoftmax;
/// log_probabilities, targets -> losses [N] and the other outputs of cross_entropy.
extern const program::OpDef kPickLosses;
/// targets, losses -> gradient [N, V], zero except for one column per row.
extern const program::OpDef kPickLossesBackward;
/// gradient, log_probabilities -> d logits [N, V].
extern const program::OpDef kLogSoftmaxBackward;

/// y [N, V] = an elementwise function of one or two x [N, V].
extern const program::OpDef kLossStep;
/// The same of its first input, as the last step of a function. The other inputs are tensors that the
/// function holds until it returns; they are not read.
extern const program::OpDef kLossLastStep;

/// Replaces cross_entropy and its gradient, after differentiate and before cast, by what PyTorch runs for
/// cross_entropy(logits.float(), targets) outside of torch.compile: a cast of all logits to fp32, their log
/// softmax, which is kept, and two full gradients in fp32, the last of which is cast back. With a part of the
/// vocabulary (attribute `first`): what loss_parallel runs (torch/distributed/tensor/parallel/loss.py).
/// Forward: logits minus their maximum, their exp, and the log softmax. Backward: zeros, exp of the log
/// softmax, their sum, and that times the gradient, while the function still holds the zeros and the log
/// softmax.
void unfused_loss(program::Program& step);

}  // namespace rooflm::passes
