// Layout of the heads in packed projections, and tiling of their attention. For the kernels of this folder
// only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "backends/cpu/fast/attention.h"
#include "backends/cpu/fast/vec_math.h"

namespace rooflm::backends::cpu {

/// Queries and keys per tile. Scores are stored transposed, [keys, queries]: the softmax of a query runs down
/// a lane, and of q, k and v only q must be transposed.
constexpr std::int64_t kTileQueries = 64;
constexpr std::int64_t kTileKeys = 64;

constexpr float kLog2e = 1.44269504F;
constexpr float kLn2 = 0.693147181F;
/// Below any real score, and finite, so differences are finite too.
constexpr float kMasked = -1e30F;

/// Keys and values are packed in the rows of the queries, or in separate rows.
enum class KeyRows : std::uint8_t { packed, apart };

/// Offsets and strides in elements, and the tiling of one attention.
struct AttentionLayout {
  explicit AttentionLayout(const AttentionShape& s, KeyRows rows = KeyRows::packed)
      : seq(s.seq),
        keys(s.keys > 0 ? s.keys : s.seq),
        first_query(s.first_query),
        dim(s.head_dim),
        padded_dim((s.head_dim + kLanes - 1) / kLanes * kLanes),
        group(s.heads / s.kv_heads),
        qkv_stride((s.heads + 2 * s.kv_heads) * s.head_dim),
        kv_stride(rows == KeyRows::packed ? qkv_stride : 2 * s.kv_heads * s.head_dim),
        o_stride(s.heads * s.head_dim),
        key_begin(rows == KeyRows::packed ? s.heads * s.head_dim : 0),
        value_begin(key_begin + s.kv_heads * s.head_dim),
        query_tiles((s.seq - s.first_query + kTileQueries - 1) / kTileQueries),
        causal(s.causal),
        scale(s.scale != 0 ? s.scale : 1.0F / std::sqrt(static_cast<float>(s.head_dim))) {}

  std::int64_t seq;   ///< rows of each sequence
  std::int64_t keys;  ///< number of them with keys that some query sees
  std::int64_t first_query;
  std::int64_t dim;
  std::int64_t padded_dim;  ///< dim rounded up to whole vectors
  std::int64_t group;       ///< query heads per key/value head
  std::int64_t qkv_stride;  ///< from one token to the next
  std::int64_t kv_stride;   ///< of keys and values
  std::int64_t o_stride;
  std::int64_t key_begin;  ///< offset of the first key head in a row of keys and values
  std::int64_t value_begin;
  std::int64_t query_tiles;
  bool causal;
  float scale;

  /// Number of keys that the queries [begin, begin + count) see.
  [[nodiscard]] std::int64_t visible_keys(std::int64_t begin, std::int64_t count) const {
    return causal ? begin + count : keys;
  }
};

/// Position of a tile of scores: queries from `query`, `count` keys from `key`. Both are multiples of kLanes.
struct ScoreTile {
  std::int64_t query;
  std::int64_t key;
  std::int64_t count;
  bool masked;  ///< some scores are masked

  /// First vector of queries that sees key c of the tile; c is a multiple of kLanes.
  [[nodiscard]] std::int64_t first_vector(std::int64_t c) const {
    return masked ? std::max<std::int64_t>(0, (key + c - query) / kLanes) : 0;
  }
  /// Number of keys of the tile that some query of vector v sees.
  [[nodiscard]] std::int64_t visible_count(std::int64_t v) const {
    return masked ? std::clamp<std::int64_t>(query + (v + 1) * kLanes - key, 0, count) : count;
  }
  /// Lanes of vector v whose queries do not see key c of the tile.
  [[nodiscard]] ROOFLM_INLINE Ints hides(std::int64_t c, std::int64_t v) const {
    return kLaneIndex < static_cast<std::int32_t>(key + c - query - v * kLanes);
  }
  /// Number of keys of the tile that all queries of vector v see.
  [[nodiscard]] std::int64_t seen_by_all(std::int64_t v) const {
    return masked ? std::clamp<std::int64_t>(query + v * kLanes - key + 1, 0, count) : count;
  }
};

/// Throws core::UsageError if the extents do not fit.
void check_attention(const AttentionShape& shape);

}  // namespace rooflm::backends::cpu
