// The roofs of a program that is not ours.
#pragma once

#include <vector>

#include "foreign/foreign_run.h"
#include "record/rows.h"

namespace rooflm::cli {

/// Gives the run the roofs of its ops, where it knows what they need, and returns the ceilings that they are
/// made of: those that this machine keeps of its GPU (`is_here`: the run is of this machine), the catalog's
/// for what it has not measured. Empty, and said in the run, where neither knows the device.
std::vector<record::Ceiling> add_roofs(foreign::ForeignRun& run, bool is_here);

}  // namespace rooflm::cli
