// The roofs of a foreign program.
#pragma once

#include <vector>

#include "foreign/foreign_run.h"
#include "record/rows.h"

namespace rooflm::cli {

/// Adds roofs to the ops of the run whose work is known, and returns the ceilings used: this machine's cached
/// ceilings of its GPU (`is_here`: the run is of this machine), and the catalog's for those that were not
/// measured. Empty, with a fact that says so, if neither knows the device.
std::vector<record::Ceiling> add_roofs(foreign::ForeignRun& run, bool is_here);

}  // namespace rooflm::cli
