// How a model's rotary positions are scaled.
#pragma once

#include "model/config.h"
#include "program/rotary.h"

namespace rooflm::model {

/// Of a model whose rope_scaling is not empty.
program::RotaryScaling scaling_of(const ModelConfig& config);

}  // namespace rooflm::model
