// Sums squares of gradients while the backward pass still runs.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// Splits `global_norm` into partial sums of squares, one per twentieth of the parameters. Each partial sum
/// (`square_sum`) runs as soon as its gradients are final: on the lane `background`, the last one on
/// `compute`. On a GPU they overlap matmuls; on a CPU there is no gain. `norm_of_squares` then computes the
/// norm where global_norm was. Does nothing if there would be fewer than two sums. Sets Op::waits, so it runs
/// after all passes that move ops.
void early_norm(program::Program& program);

}  // namespace rooflm::passes
