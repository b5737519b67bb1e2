// Adding up squares of gradients while the backward pass still runs.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// Of a program with `global_norm`: squares of gradients are added up by twentieths of the parameters, as
/// soon as each is final (`square_sum`, on the lane `background`; the last one on `compute`), and
/// `norm_of_squares` makes the norm of the sums where global_norm was. On GPUs the sums run beside products;
/// processors gain nothing. Does nothing where there would be fewer than two sums. Runs behind all passes
/// that move ops: it sets Op::waits.
void early_norm(program::Program& program);

}  // namespace rooflm::passes
