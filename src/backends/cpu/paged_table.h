// Where the rows of a text are in blocks of keys and values (program/ops/paged_cache.cpp).
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>

#include "backends/cpu/resources.h"

namespace rooflm::backends::cpu {

struct PagedTable {
  std::int64_t pool = 0, block = 0, width = 0;  ///< S blocks of G positions; M of a text
  [[nodiscard]] std::int64_t positions() const { return block * width; }

  /// The tables [N, M] of rows at the positions `first`. Throws std::logic_error for a block that is not in
  /// the pool.
  const std::int32_t* checked(const void* tables, const std::int32_t* first, std::int64_t rows) const {
    const auto* blocks = static_cast<const std::int32_t*>(tables);
    for (std::int64_t n = 0; n < rows; ++n) {
      for (std::int64_t i = 0; i <= first[n] / block; ++i) {
        const std::int32_t b = blocks[n * width + i];
        if (b < 0 || b >= pool)
          throw std::logic_error(fmt::format("block {} of row {} is {}, of {} blocks", i, n, b, pool));
      }
    }
    return blocks;
  }

  /// Row of a cache [S K G, D] that has position t of row n's text.
  [[nodiscard]] std::int64_t place(const std::int32_t* blocks, std::int64_t n, std::int64_t t,
                                   std::int64_t kv_heads, std::int64_t head) const {
    return (blocks[n * width + t / block] * kv_heads + head) * block + t % block;
  }
};

/// Of an op with the inputs qkv, first, blocks, k, v.
inline PagedTable paged_table(const OpView& view) {
  const core::Shape& cache = view.in(3).shape;
  return {.pool = cache[0], .block = cache[2], .width = view.in(2).shape[1]};
}

}  // namespace rooflm::backends::cpu
