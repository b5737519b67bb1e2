// Layers with experts, for the balance loss as files say it. Of src/model alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "model/config.h"

namespace rooflm::model {

/// At least 1. The balance loss of transformers is one of all layers, with means over tokens and layers; here
/// it is the sum of one for each.
inline double expert_layers(const ModelConfig& c) {
  double count = 0;
  for (std::int64_t i = 0; i < c.layers; ++i) count += c.experts.are_in(i) ? 1 : 0;
  return std::max(count, 1.0);
}

}  // namespace rooflm::model
