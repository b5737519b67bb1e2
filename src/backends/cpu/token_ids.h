// Validates token ids, which are external input, before kernels use them as row numbers.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>

#include "backends/token_ids.h"

namespace rooflm::backends::cpu {

using backends::check_ids;

/// The positions of the first rows of `batch` texts with `rows` rows each. Throws std::logic_error if a row
/// would be at position `limit` or beyond.
inline const std::int32_t* checked_first(const void* first, std::int64_t batch, std::int64_t rows,
                                         std::int64_t limit) {
  const auto* positions = static_cast<const std::int32_t*>(first);
  for (std::int64_t b = 0; b < batch; ++b) {
    if (positions[b] < 0 || positions[b] + rows > limit) {
      throw std::logic_error(fmt::format("rows {} to {} of text {} among {} positions", positions[b],
                                         positions[b] + rows, b, limit));
    }
  }
  return positions;
}

}  // namespace rooflm::backends::cpu
