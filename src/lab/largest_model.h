// The largest model whose training step fits an amount of memory: computed, not picked from presets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/point.h"
#include "record/rows.h"

namespace rooflm::lab {

struct LargestModel {
  model::ModelConfig config;
  std::int64_t params = 0;
  double needed_bytes = 0;       ///< of its step, as planned
  double next_needed_bytes = 0;  ///< of the next larger one, which does not fit
};

/// Of the shapes C = 64 k, heads of 64, L = C / 80 (as GPT-3's 2.7B has it) and F = 4 C (llama: 8/3 C, to a
/// multiple of 64), with everything else as `point` has it (kind, vocabulary, B, T, dtype, engine,
/// recompute), the largest whose planned step needs at most `limit_bytes`. Nothing where the smallest does
/// not fit, or the largest that is tried (about 10^13 parameters) still does.
std::optional<LargestModel> largest_model(const Point& point, double limit_bytes);

/// One row for each dtype and engine of the points, of series "largest".
std::vector<record::Cell> largest_cells(const std::vector<Point>& points, double limit_bytes);

}  // namespace rooflm::lab
