// Updating weights while the backward pass still runs.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// Moves each update from the end of the step to where its gradient is final and nothing reads the weight or
/// its copy any more, and merges updates of equal attributes that come close together. All updates but the
/// last run on the lane `background`, and so do weight gradients whose products are too small to fill a GPU.
/// Gradients of updates that have not run yet take memory, so the lane `compute` waits from time to time for
/// what the background was given some while before; the last update waits for all of it.
///
/// Does nothing when the program computes the norm of all gradients: then no update can come early. The last
/// rewrite of a program: it sets Op::waits.
void early_updates(program::Program& program);

}  // namespace rooflm::passes
