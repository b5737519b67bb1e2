// The best way to run a model on a number of devices.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "perfmodel/plan.h"

namespace rooflm::perfmodel {

struct Candidate {
  PlanPoint point{};
  Plan plan{};
  std::string reason{};  ///< why it is not the best
};

struct SearchResult {
  std::vector<Candidate> candidates{};  ///< those that fit, fastest first; then the others by memory
  std::size_t tried = 0, fitting = 0;
};

/// Plans every dp x tp x pp = gpus, ZeRO stage and micro-batch that the model and `global_batch` (0: 4
/// sequences a device) allow, each with as little recompute as fits, on all cores. Tensor parallelism stays
/// within a node. Each loser says by how much, and by what most of it is.
SearchResult search(const PlanPoint& base, const Setting& setting, int gpus, std::int64_t global_batch);

}  // namespace rooflm::perfmodel
