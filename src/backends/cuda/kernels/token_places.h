// Positions of a rank's tokens in their sequence, for kernels; equals program::Pieces.
#pragma once

#include <cstdint>
#include <limits>

namespace rooflm::backends::cuda {

/// Token t < piece is at position t + first, any other at t + second; by default all are at t.
struct TokenPlaces {
  std::int64_t piece = std::numeric_limits<std::int64_t>::max(), first = 0, second = 0;

  /// For rank `index` of `parts` that share sequences, which has `own` tokens of each.
  static TokenPlaces of(std::int64_t parts, std::int64_t index, std::int64_t own) {
    if (parts == 1) return {};
    const std::int64_t piece = own / 2;
    return {.piece = piece, .first = index * piece, .second = (2 * parts - 2 - index) * piece};
  }
  [[nodiscard]] bool is_split() const { return piece != std::numeric_limits<std::int64_t>::max(); }
};

}  // namespace rooflm::backends::cuda
