// Updates weights while the backward pass still runs.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// Moves each update from the end of the step to the point where its gradient is final and nothing reads the
/// weight or its copy any more. Merges nearby updates with equal attributes. All updates but the last run on
/// the lane `background`, and so do weight gradients whose matmuls are too small to fill a GPU. Gradients of
/// pending updates take memory, so the lane `compute` waits from time to time for background work submitted
/// some while before; the last update waits for all of it.
///
/// Does nothing if the program computes the global gradient norm: then no update can be early. Sets
/// Op::waits, so it is the last rewrite of a program.
void early_updates(program::Program& program);
/// The same for updates alone, and without waits: nothing is done about the memory of pending gradients.
void advance_updates(program::Program& program);

}  // namespace rooflm::passes
