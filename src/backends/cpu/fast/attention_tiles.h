// Layout of the heads in packed projections, and tiling of their attention. For the kernels of this folder
// only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "backends/cpu/fast/attention.h"
#include "backends/cpu/fast/vec_math.h"
#include "program/scores.h"

namespace rooflm::backends::cpu {

/// Queries and keys per tile. Scores are stored transposed, [keys, queries]: the softmax of a query runs down
/// a lane, and of q, k and v only q must be transposed.
constexpr std::int64_t kQ = 64;
constexpr std::int64_t kC = 64;
constexpr std::int64_t kVectors = kQ / kLanes;  ///< of queries

constexpr float kLog2e = 1.44269504F;
constexpr float kLn2 = 0.693147181F;
/// Below any real score, and finite, so differences are finite too.
constexpr float kMasked = -1e30F;
/// The largest score of a query that has seen none: above a masked one times any scale, so a tile of which it
/// sees nothing adds nothing.
constexpr float kNoScore = -1e20F;

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
        query_tiles((s.seq - s.first_query + kQ - 1) / kQ),
        window(s.causal ? s.window : 0),
        heads(s.heads),
        causal(s.causal),
        cap(s.cap),
        alibi(s.alibi),
        slopes(s.slopes),
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
  std::int64_t window;  ///< 0: queries see all keys before them
  std::int64_t heads;
  bool causal;
  float cap;
  bool alibi;
  double slopes;
  float scale;

  /// Number of keys that the queries [begin, begin + count) see.
  [[nodiscard]] std::int64_t visible_keys(std::int64_t begin, std::int64_t count) const {
    return causal ? begin + count : keys;
  }
  /// The first key of the first tile of keys that queries from `query` on see.
  [[nodiscard]] std::int64_t first_tile(std::int64_t query) const {
    const bool hides = window > 0 && query >= window;
    return hides ? (query - window + 1) / kC * kC : 0;
  }
  /// Whether products become scores by more than a factor.
  [[nodiscard]] bool is_shaped() const { return cap > 0 || alibi; }
};

/// tanh(x); a series near 0, where the quotient would lose digits.
ROOFLM_INLINE Floats tanh_of(Floats x) {
  const Floats square = x * x;
  Floats near = square * 0.0218694885F - 0.0539682540F;
  near = near * square + 0.133333333F;
  near = near * square - 0.333333333F;
  near = (near * square) * x + x;
  const Floats a = max(x, -x);
  const Floats e = exp2_nonpositive<float, Floats>(a * (-2 * kLog2e));
  const Floats far = (1.0F - e) / (1.0F + e);
  return a < 0.3F ? near : (x < 0.0F ? -far : far);
}

/// Makes scores of products, of one head. All in units of log2.
class ScoreForm {
 public:
  ScoreForm(const AttentionLayout& l, std::int64_t head)
      : cap_(l.cap * kLog2e),
        slope_(
            static_cast<float>(program::Scores{.alibi = l.alibi, .slopes = l.slopes}.slope(head, l.heads)) *
            kLog2e) {}

  struct Score {
    Floats score, derivative;  ///< with respect to the product
  };
  /// Lane 0 is `distance` behind the key.
  [[nodiscard]] ROOFLM_INLINE Score of(Floats product, std::int64_t distance) const {
    Score s{product, splat(1.0F)};
    if (cap_ > 0) {
      const Floats bend = tanh_of(product / cap_);
      s = {bend * cap_, 1.0F - bend * bend};
    }
    const Floats behind = __builtin_convertvector(kLaneIndex, Floats) + static_cast<float>(distance);
    s.score -= behind * slope_;
    return s;
  }

 private:
  float cap_, slope_;
};

/// Position of a tile of scores: queries from `query`, `count` keys from `key`. Both are multiples of kLanes.
struct ScoreTile {
  std::int64_t query;
  std::int64_t key;
  std::int64_t count;
  bool masked;          ///< some scores are masked, those of keys behind their query
  std::int64_t window;  ///< others, of keys so far before their query; 0: none

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
    const auto ahead = static_cast<std::int32_t>(key + c - query - v * kLanes);
    const Ints behind = kLaneIndex < ahead;
    return window > 0 ? behind | (kLaneIndex >= ahead + static_cast<std::int32_t>(window)) : behind;
  }
  /// Number of keys of the tile that all queries of vector v see.
  [[nodiscard]] std::int64_t seen_by_all(std::int64_t v) const {
    if (window > 0) return 0;
    return masked ? std::clamp<std::int64_t>(query + v * kLanes - key + 1, 0, count) : count;
  }
  /// The tile of keys from `key` on.
  static ScoreTile of(const AttentionLayout& l, std::int64_t query, std::int64_t queries, std::int64_t key,
                      std::int64_t count) {
    const bool leaves = l.window > 0 && query + queries - key > l.window;
    return {query, key, count, l.causal && key + count - 1 > query, leaves ? l.window : 0};
  }
};

/// Throws core::UsageError if the extents do not fit.
void check_attention(const AttentionShape& shape);

}  // namespace rooflm::backends::cpu
