// Collectives of recorded programs as ops of their own: what a module starts is not what it computes.
#pragma once

#include "report/model/run_data.h"

namespace rooflm::report {

/// The block and part of ops that are made here.
inline constexpr const char* kCollectives = "collectives";

/// Kernels of collectives, which records of other programs give to the module that started them, become those
/// of an op per phase and layer, of class "collective", on a lane of its own. Events and times of the modules
/// are then without them. Nothing changes where collectives have ops already.
void take_collectives(RunData& run);

}  // namespace rooflm::report
