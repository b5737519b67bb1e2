// The loops of one kind of processor, one after the other. Private to the room.
#pragma once

#include <vector>

#include "measure/instruction_peaks.h"

namespace rooflm::measure {

/// Those of the architecture that this binary is compiled for; empty where there are none.
std::vector<InstructionLoop> loops_of_architecture();

}  // namespace rooflm::measure
