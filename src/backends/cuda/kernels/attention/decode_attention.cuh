// What the kernels of decode attention share: the work of a block, rows of caches, rules of scores, and what
// the parts of a block leave for each other.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/attention/attention_rules.cuh"
#include "backends/cuda/kernels/attention/decode_attention.h"

namespace rooflm::backends::cuda {

constexpr int kDecodeThreads = 128;
constexpr float kNothing = -1e30F;

struct Decode {
  int heads, kv_heads, dim, lanes, parts;
  std::int64_t positions;
  float scale;  // log2(e) / sqrt(D)
  bool aligned;
  ScoreRules rules;
  Sinks sinks;
  CacheBlocks cache;  // or one block per row, with all positions
  [[nodiscard]] __host__ __device__ int group() const { return heads / kv_heads; }
};

/// Weight of a partial softmax whose maximum is `top`, relative to the maximum `greatest`.
__device__ inline float weight_of(float top, float greatest) { return exp2f(top - greatest); }

/// The work of one block.
struct BlockWork {
  std::int64_t text;
  int kv_head, first_head, heads;  // query heads first_head .. first_head + heads
};

/// Where the keys and values of a text and head are.
template <bool kPaged>
class CacheRows {
 public:
  __device__ CacheRows(const Decode& d, std::int64_t text, int kv_head)
      : blocks_(kPaged ? d.cache.blocks + text * d.cache.width : nullptr),
        first_((text * d.kv_heads + kv_head) * d.positions * d.dim),
        kv_heads_(d.kv_heads),
        kv_head_(kv_head),
        block_(d.cache.block),
        dim_(d.dim) {}
  /// The first element of a position.
  [[nodiscard]] __device__ std::int64_t at(std::int64_t position) const {
    if constexpr (!kPaged) return first_ + position * dim_;
    const int block = static_cast<int>(position) / block_;
    const int row = static_cast<int>(position) - block * block_;
    return ((std::int64_t{blocks_[block]} * kv_heads_ + kv_head_) * block_ + row) * dim_;
  }

 private:
  const std::int32_t* blocks_;
  std::int64_t first_;
  int kv_heads_, kv_head_, block_, dim_;
};

/// What kernels of rules know of them. Scores are in powers of two.
struct DecodeRules {
  std::int64_t position, begin;  // of the query; the first row that it sees
  float cap, inverse_cap;
  bool bend;

  __device__ DecodeRules(const Decode& d, std::int64_t at)
      : position(at),
        begin(d.rules.window > 0 ? max(at + 1 - d.rules.window, std::int64_t{0}) : 0),
        cap(d.rules.cap * kLog2E),
        inverse_cap(d.rules.cap > 0 ? 1.0F / (d.rules.cap * kLog2E) : 0),
        bend(d.rules.cap > 0 || d.rules.alibi) {}
  [[nodiscard]] __device__ static float slope(const Decode& d, int head) {
    return d.rules.alibi ? alibi_slope(head, d.heads) * kLog2E : 0;
  }
  [[nodiscard]] __device__ float score(float score, std::int64_t row, float slope) const {
    if (!bend) return score;
    if (cap > 0) score = cap * tanh_of(score * inverse_cap);
    return score - slope * static_cast<float>(position - row);
  }
};

/// What parts of a block found, in shared memory: of each query head and part the greatest score, the sum of
/// weights relative to it, and the sum of values.
template <int kHeads, int kParts, int kElements>
struct PartResults {
  float tops[kHeads][kParts], sums[kHeads][kParts];
  float outputs[kHeads][kElements];  // of all parts, one after another
};

}  // namespace rooflm::backends::cuda
