// The loss as frameworks compute it that do not fuse it.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

// What the pass writes. They are described, and no kernel computes them: they are no part of ops::all(). All
// tensors [N, V] are fp32.
/// log_probabilities [N, V] = log softmax of logits [N, V].
extern const program::OpDef kLogSoftmax;
/// log_probabilities, targets -> losses [N] and what cross_entropy returns beside them.
extern const program::OpDef kPickLosses;
/// targets, losses -> gradient [N, V], zero but for one column of each row.
extern const program::OpDef kPickLossesBackward;
/// gradient, log_probabilities -> d logits [N, V].
extern const program::OpDef kLogSoftmaxBackward;

/// y [N, V] of one or two x [N, V], element by element.
extern const program::OpDef kLossStep;
/// The same of its first input, as the last step of a function: the other inputs are what the function holds
/// until it returns, and are not read.
extern const program::OpDef kLossLastStep;

/// Replaces cross_entropy and its gradient, after differentiate and before cast, by what PyTorch runs for
/// cross_entropy(logits.float(), targets) outside of torch.compile: a cast of the whole logits to fp32, their
/// log softmax, which is kept, and two whole gradients in fp32, of which the last is cast back. Of a part of
/// the vocabulary (attribute `first`) what loss_parallel runs (torch/distributed/tensor/parallel/loss.py):
/// the logits less their maximum, their exp and the log softmax; backward zeros, exp of the log softmax,
/// their sum, and that times the gradient, while the function still holds the zeros and the log softmax.
void unfused_loss(program::Program& step);

}  // namespace rooflm::passes
