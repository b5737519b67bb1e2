// Whether a trace holds what its calls started. Private to the room.
#pragma once

#include "foreign/foreign_run.h"

namespace rooflm::foreign {

/// Says so where calls launched kernels that the trace does not hold.
void say_missing_work(ForeignRun& run);

}  // namespace rooflm::foreign
