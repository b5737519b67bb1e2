// A training run in fp8 with every cast counted: scales, what saturates and what underflows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "lab/point.h"
#include "record/rows.h"

namespace rooflm::lab {

/// Effects of a cast on the elements of a tensor.
struct CastCount {
  std::int64_t elements = 0;
  std::int64_t saturated = 0;    ///< scaled beyond the format's largest number
  std::int64_t subnormal = 0;    ///< rounded to less than its smallest normal number, but not to 0
  std::int64_t underflowed = 0;  ///< rounded to 0, and not 0 before
  double squares = 0;            ///< of all elements
  double error_squares = 0;      ///< of what the cast changed them by
  CastCount& operator+=(const CastCount& other);
};

/// Of values that are multiplied by `scale`, rounded to e4m3, or to e5m2, and divided by it.
CastCount count_cast(std::span<const float> values, float scale, bool is_e5m2);

/// Trains the point for `steps` steps in fp8, op by op, weights cast once, and counts each cast on the host.
/// Series "fp8": a row for each operand of each matmul, with its shares, error and scales of all steps, one
/// after the other ("2^6, from step 3 2^5"). Series "fp8_steps": a row for each step, with its loss, and for
/// activations, weights and gradients their shares and the range of their scales. Nothing where no matmul
/// has extents that are multiples of 16. A signal ends it after a step. Throws core::Unavailable for devices
/// without fp8, core::InputError for damaged shards.
std::vector<record::Cell> fp8_cells(Point point, int steps, const std::vector<std::filesystem::path>& shards);

}  // namespace rooflm::lab
