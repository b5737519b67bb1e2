// Flash attention, forward: one task per tile of queries, online softmax over tiles of keys.
#include <algorithm>
#include <cmath>
#include <utility>

#include "backends/cpu/fast/attention.h"
#include "backends/cpu/fast/attention_tiles.h"
#include "backends/cpu/fast/parallel.h"
#include "backends/cpu/fast/tile_product.h"

namespace rooflm::backends::cpu {
namespace {

constexpr std::int64_t kQ = kTileQueries;
constexpr std::int64_t kC = kTileKeys;
constexpr std::int64_t kVectors = kQ / kLanes;

// What a thread works in; all fp32.
struct Workspace {
  Workspace(void* memory, const AttentionLayout& l, int worker) {
    auto* next = static_cast<float*>(memory) + worker * floats(l);
    const auto take = [&next](std::int64_t count) { return std::exchange(next, next + count); };
    queries = take(l.dim * kQ);
    output = take(l.dim * kQ);
    scores = take(kC * kQ);
    keys = take(kC * l.padded_dim);
    values = take(kC * l.padded_dim);
    top = take(kQ);
    sum = take(kQ);
    rescale = take(kQ);
  }
  static std::int64_t floats(const AttentionLayout& l) {
    return 2 * l.dim * kQ + kC * kQ + 2 * kC * l.padded_dim + 3 * kQ;
  }
  float* queries;  // [dim, kQ] scaled, in units of log2
  float* output;   // [dim, kQ]
  float* scores;   // [kC, kQ]
  float* keys;     // [kC, padded_dim]
  float* values;   // [kC, padded_dim]
  float* top;      // [kQ] largest score so far
  float* sum;      // [kQ] sum of 2^(score - top) so far
  float* rescale;  // [kQ] what the sums so far must be multiplied by
};

void compute_scores(const AttentionLayout& l, const ScoreTile& t, const Workspace& w) {
  const std::int64_t step = t.masked ? kLanes : t.count;
  for (std::int64_t c = 0; c < t.count; c += step) {
    const std::int64_t v = t.first_vector(c);
    if (v >= kVectors) break;
    const LeftFactor<false> keys{w.keys + c * l.padded_dim, l.padded_dim};
    tile_product<Result::overwrite>(std::min(step, t.count - c), kVectors - v, l.dim, keys,
                                    w.queries + v * kLanes, kQ, w.scores + c * kQ + v * kLanes, kQ);
  }
}

// Replaces the scores of vector v that a query must not see.
void mask_scores(const ScoreTile& t, const Workspace& w, std::int64_t v, std::int64_t count) {
  constexpr I32x16 kIndex = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  for (std::int64_t c = t.seen_by_all(v); c < count; ++c) {
    float* s = w.scores + c * kQ + v * kLanes;
    const auto lane = static_cast<std::int32_t>(t.key + c - t.query - v * kLanes);
    store(s, kIndex < lane ? splat(kMasked) : load(s));
  }
}

// Scores become 2^(score - top) with the new top; sums follow.
void softmax_vector(const Workspace& w, std::int64_t v, std::int64_t count) {
  float* scores = w.scores + v * kLanes;
  const F32x16 old_top = load(w.top + v * kLanes);
  F32x16 top = old_top;
  for (std::int64_t c = 0; c < count; ++c) top = max(top, load(scores + c * kQ));
  const F32x16 rescale = exp2_nonpositive(old_top - top);
  F32x16 sum{};
  for (std::int64_t c = 0; c < count; ++c) {
    const F32x16 p = exp2_nonpositive(load(scores + c * kQ) - top);
    store(scores + c * kQ, p);
    sum += p;
  }
  store(w.sum + v * kLanes, load(w.sum + v * kLanes) * rescale + sum);
  store(w.top + v * kLanes, top);
  store(w.rescale + v * kLanes, rescale);
}

void accumulate_output(const AttentionLayout& l, const ScoreTile& t, const Workspace& w) {
  const LeftFactor<true> values{w.values, l.padded_dim};
  const auto add = [&](std::int64_t v, std::int64_t vectors, std::int64_t count) {
    tile_product<Result::scale_and_accumulate>(l.dim, vectors, count, values, w.scores + v * kLanes, kQ,
                                               w.output + v * kLanes, kQ, w.rescale + v * kLanes);
  };
  std::int64_t v = 0;
  for (; v < kVectors && t.visible_count(v) < t.count; ++v) add(v, 1, t.visible_count(v));
  if (v < kVectors) add(v, kVectors - v, t.count);
}

// One tile of queries of one head, against all the keys that it sees.
template <Storage S>
void query_tile(const AttentionLayout& l, std::int64_t query, const S* q, const S* k, const S* v, S* o,
                float* lse, const Workspace& w) {
  const std::int64_t queries = std::min(kQ, l.seq - query);
  std::fill(w.queries, w.queries + l.dim * kQ, 0.0F);
  transpose_into(queries, l.dim, q + query * l.qkv_stride, l.qkv_stride, l.scale * kLog2e, w.queries, kQ);
  std::fill(w.output, w.output + l.dim * kQ, 0.0F);
  std::fill(w.top, w.top + kQ, kMasked);
  std::fill(w.sum, w.sum + kQ, 0.0F);
  const std::int64_t keys = l.visible_keys(query, queries);
  for (std::int64_t key = 0; key < keys; key += kC) {
    const std::int64_t count = std::min(kC, keys - key);
    const ScoreTile tile{query, key, count, l.causal && key + count - 1 > query};
    copy_rows(count, l.dim, k + key * l.qkv_stride, l.qkv_stride, w.keys, l.padded_dim);
    copy_rows(count, l.dim, v + key * l.qkv_stride, l.qkv_stride, w.values, l.padded_dim);
    compute_scores(l, tile, w);
    for (std::int64_t vector = 0; vector < kVectors; ++vector) {
      const std::int64_t visible = tile.visible_count(vector);
      if (tile.masked) mask_scores(tile, w, vector, visible);
      softmax_vector(w, vector, visible);
    }
    accumulate_output(l, tile, w);
  }
  for (std::int64_t i = 0; i < kQ; ++i) {
    if (i < queries) lse[query + i] = kLn2 * (w.top[i] + std::log2(w.sum[i]));
    w.rescale[i] = 1.0F / w.sum[i];
  }
  transpose_out(queries, l.dim, w.output, kQ, w.rescale, o + query * l.o_stride, l.o_stride);
}

}  // namespace

std::size_t attention_forward_scratch_bytes(const AttentionShape& shape) {
  check_attention(shape);
  return static_cast<std::size_t>(thread_count() * Workspace::floats(AttentionLayout(shape))) * sizeof(float);
}

template <Storage S>
void attention_forward(const AttentionShape& shape, const S* qkv, S* o, float* lse, void* scratch) {
  check_attention(shape);
  const AttentionLayout l(shape);
  // Head by head, so that keys and values stay in cache; in a head the longest tile first.
  parallel_tasks(shape.batch * shape.heads * l.query_tiles, [&](std::int64_t task, int worker) {
    const std::int64_t head_task = task / l.query_tiles;
    const std::int64_t tile = l.query_tiles - 1 - task % l.query_tiles;
    const std::int64_t batch = head_task / shape.heads;
    const std::int64_t head = head_task % shape.heads;
    const S* row = qkv + batch * l.seq * l.qkv_stride;
    const std::int64_t kv_offset = head / l.group * l.dim;
    query_tile(l, tile * kQ, row + head * l.dim, row + l.key_begin + kv_offset,
               row + l.value_begin + kv_offset, o + batch * l.seq * l.o_stride + head * l.dim,
               lse + head_task * l.seq, Workspace(scratch, l, worker));
  });
}

template void attention_forward(const AttentionShape&, const float*, float*, float*, void*);
template void attention_forward(const AttentionShape&, const core::Bf16*, core::Bf16*, float*, void*);

}  // namespace rooflm::backends::cpu
