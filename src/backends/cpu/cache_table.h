// Where decode_attention and paged_attention find the keys and values of a row (program/ops/cache.cpp).
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "backends/cpu/resources.h"
#include "program/ops.h"

namespace rooflm::backends::cpu {

/// Caches of S blocks [K, G, D]. A row of paged_attention has a table of its text's blocks; row n of
/// decode_attention has block n alone, which has all positions.
struct CacheTable {
  std::size_t keys;  ///< index of the op's input k; v and sinks follow
  std::int64_t pool, kv_heads, block, width;

  explicit CacheTable(const OpView& view)
      : keys(view.op.is(program::ops::kPagedAttention) ? 3 : 2),
        pool(view.in(keys).shape[0]),
        kv_heads(view.in(keys).shape[1]),
        block(view.in(keys).shape[2]),
        width(is_paged() ? view.in(2).shape[1] : 1) {}
  [[nodiscard]] std::int64_t positions() const { return block * width; }
  [[nodiscard]] bool is_paged() const { return keys == 3; }

  /// The tables [N, M] of rows at the positions `first`, nullptr of decode_attention. Throws std::logic_error
  /// for a block that is not in the pool.
  const std::int32_t* checked(const KernelArgs& args, const std::int32_t* first, std::int64_t rows) const {
    if (!is_paged()) return nullptr;
    const auto* blocks = static_cast<const std::int32_t*>(args.in[2]);
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
  [[nodiscard]] std::int64_t place(const std::int32_t* blocks, std::int64_t n, std::int64_t head,
                                   std::int64_t t) const {
    if (blocks == nullptr) return (n * kv_heads + head) * block + t;
    return (blocks[n * width + t / block] * kv_heads + head) * block + t % block;
  }
};

}  // namespace rooflm::backends::cpu
