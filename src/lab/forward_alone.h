// The forward pass of a training step that does not fit.
#pragma once

#include <vector>

#include "lab/run.h"
#include "record/rows.h"

namespace rooflm::lab {

/// Times the forward pass and loss alone, with nothing kept for a backward pass, as settings.steps of plain
/// steps: samples of the phase "forward". Empty where that does not fit either, for several micro-batches or
/// ranks, and for devices that run nothing.
std::vector<record::Sample> time_forward_alone(const Point& point, const RunSettings& settings);

}  // namespace rooflm::lab
