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
///
/// `apart`: updates that run beside others get a part of the device to themselves, the attribute `apart` (a
/// share), where the products of the backward pass are long enough for that; these carry it, too, so that a
/// device can cut them for the rest. Small products then stay in their order.
void early_updates(program::Program& program, bool apart = false);

/// For each op the last one that it may run beside: itself where it has no attribute `beside`.
std::vector<int> end_beside(const program::Program& program);

}  // namespace rooflm::passes
