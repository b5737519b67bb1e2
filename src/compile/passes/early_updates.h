// Updating weights while the backward pass still runs.
#pragma once

#include <vector>

#include "program/program.h"

namespace rooflm::passes {

/// Moves updates that need no norm of all gradients from the end of the step to where their gradient is final
/// and nothing reads the weight or its copy any more, and merges those that come close together with equal
/// attributes. All but the last get the attribute `beside`, and so do products that are too small to fill a
/// GPU and give a weight's gradient: a device may run them beside the ops that follow. It must not fall
/// behind without end: an op with the attribute `keep_up` begins when everything is done that was given
/// before the last such op, an op with `join`, the last update, when everything is done; what ops beside use
/// is alive until then (end_beside). In the order of the program all is right as well. Updates that clip are
/// left where they are. Expects one tensor per update, copies attached.
void early_updates(program::Program& program);

/// For each op the last one that it may run beside: itself where it has no attribute `beside`.
std::vector<int> end_beside(const program::Program& program);

}  // namespace rooflm::passes
