// Updates weights while the backward pass still runs.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// Moves each update from the end of the step to the point where its gradient is final and nothing reads the
/// weight or its copy any more. Merges nearby updates with equal attributes. `lane` is where small work runs:
/// on a device with the lane `background`, all updates but the last go there, and so do weight gradients
/// whose matmuls are too small to fill a GPU. Gradients of pending updates take memory, so the lane `compute`
/// waits from time to time for background work submitted some while before; the last update waits for all of
/// it. A device that runs one op after the other has the lane `compute` only.
///
/// Does nothing if the program computes the global gradient norm: then no update can be early. Sets
/// Op::waits, so it is the last rewrite of a program.
void early_updates(program::Program& program, program::Lane lane);
/// The same for updates alone, and without waits: nothing is done about the memory of pending gradients.
void advance_updates(program::Program& program, program::Lane lane);

}  // namespace rooflm::passes
