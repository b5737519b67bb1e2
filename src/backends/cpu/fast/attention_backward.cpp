// Flash attention, backward: one task per key/value head, scores made again tile by tile.
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

// What a thread works in; all fp32. "By rows" is [queries, padded_dim], "by lanes" is transposed, [dim, kQ].
struct Workspace {
  Workspace(void* memory, const AttentionLayout& l, int worker) {
    auto* next = static_cast<float*>(memory) + worker * floats(l);
    const auto take = [&next](std::int64_t count) { return std::exchange(next, next + count); };
    for (float** whole : {&keys, &values, &d_keys, &d_values}) *whole = take(l.seq * l.padded_dim);
    for (float** rows : {&q_rows, &d_o_rows, &d_q}) *rows = take(kQ * l.padded_dim);
    for (float** lanes : {&q_lanes, &d_o_lanes}) *lanes = take(kQ * l.padded_dim);
    for (float** tile : {&scores, &d_scores}) *tile = take(kC * kQ);
    for (float** row : {&delta, &lse}) *row = take(kQ);
  }
  static std::int64_t floats(const AttentionLayout& l) {
    return 4 * l.seq * l.padded_dim + 5 * kQ * l.padded_dim + 2 * kC * kQ + 2 * kQ;
  }
  float *keys, *values, *d_keys, *d_values;  // [seq, padded_dim] of the whole head
  float *q_rows, *d_o_rows, *d_q;            // [kQ, padded_dim]
  float *q_lanes, *d_o_lanes;                // [dim, kQ]; q_lanes in units of log2
  float *scores, *d_scores;                  // [kC, kQ]; scores become probabilities
  float* delta;                              // [kQ] sum over d of d_o * o
  float* lse;                                // [kQ] in units of log2
};

// scores = k·qᵀ and d_scores = v·d_oᵀ, where visible.
void compute_scores(const AttentionLayout& l, const ScoreTile& t, const Workspace& w) {
  const std::int64_t step = t.masked ? kLanes : t.count;
  for (std::int64_t c = 0; c < t.count; c += step) {
    const std::int64_t v = t.first_vector(c);
    if (v >= kVectors) break;
    const std::int64_t rows = std::min(step, t.count - c);
    const std::int64_t key = (t.key + c) * l.padded_dim;
    const std::int64_t at = c * kQ + v * kLanes;
    tile_product<Result::overwrite>(rows, kVectors - v, l.dim, LeftFactor<false>{w.keys + key, l.padded_dim},
                                    w.q_lanes + v * kLanes, kQ, w.scores + at, kQ);
    tile_product<Result::overwrite>(rows, kVectors - v, l.dim,
                                    LeftFactor<false>{w.values + key, l.padded_dim}, w.d_o_lanes + v * kLanes,
                                    kQ, w.d_scores + at, kQ);
  }
}

// p = 2^(score - lse), zero where invisible; d_score = p (d_p - delta).
void softmax_backward(const ScoreTile& t, const Workspace& w) {
  constexpr I32x16 kIndex = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  for (std::int64_t v = 0; v < kVectors; ++v) {
    const F32x16 lse = load(w.lse + v * kLanes);
    const F32x16 delta = load(w.delta + v * kLanes);
    const auto finish = [&](std::int64_t c, F32x16 p) {
      const std::int64_t at = c * kQ + v * kLanes;
      store(w.scores + at, p);
      store(w.d_scores + at, p * (load(w.d_scores + at) - delta));
    };
    const auto probability = [&](std::int64_t c) {
      return exp2_nonpositive(load(w.scores + c * kQ + v * kLanes) - lse);
    };
    const std::int64_t whole = t.seen_by_all(v);
    for (std::int64_t c = 0; c < whole; ++c) finish(c, probability(c));
    for (std::int64_t c = whole; c < t.visible_count(v); ++c) {
      const auto lane = static_cast<std::int32_t>(t.key + c - t.query - v * kLanes);
      finish(c, kIndex < lane ? F32x16{} : probability(c));
    }
  }
}

void accumulate_gradients(const AttentionLayout& l, const ScoreTile& t, std::int64_t queries,
                          const Workspace& w) {
  const std::int64_t vectors = l.padded_dim / kLanes;
  const std::int64_t key_step = t.masked ? kLanes : t.count;
  for (std::int64_t c = 0; c < t.count; c += key_step) {
    const std::int64_t first = t.first_vector(c) * kLanes;
    if (first >= queries) break;
    const std::int64_t rows = std::min(key_step, t.count - c);
    const std::int64_t key = (t.key + c) * l.padded_dim;
    const std::int64_t query = first * l.padded_dim;
    const LeftFactor<false> p{w.scores + c * kQ + first, kQ};
    const LeftFactor<false> d_s{w.d_scores + c * kQ + first, kQ};
    tile_product<Result::accumulate>(rows, vectors, queries - first, p, w.d_o_rows + query, l.padded_dim,
                                     w.d_values + key, l.padded_dim);
    tile_product<Result::accumulate>(rows, vectors, queries - first, d_s, w.q_rows + query, l.padded_dim,
                                     w.d_keys + key, l.padded_dim);
  }
  const std::int64_t query_step = t.masked ? kLanes : queries;
  for (std::int64_t i = 0; i < queries; i += query_step) {
    const std::int64_t visible = t.masked ? t.visible_count(i / kLanes) : t.count;
    tile_product<Result::accumulate>(std::min(query_step, queries - i), vectors, visible,
                                     LeftFactor<true>{w.d_scores + i, kQ}, w.keys + t.key * l.padded_dim,
                                     l.padded_dim, w.d_q + i * l.padded_dim, l.padded_dim);
  }
}

// Pointers to the first row of one query head.
template <Storage S>
struct QueryHead {
  const S* q;
  const S* o;
  const S* d_o;
  const float* lse;
  S* d_q;
};

template <Storage S>
void write_rows(std::int64_t rows, std::int64_t cols, const float* from, std::int64_t from_stride,
                float factor, S* to, std::int64_t to_stride) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* source = from + i * from_stride;
    S* target = to + i * to_stride;
    for_lanes(0, cols,
              [=](auto j, auto count) { store_at(target + j, load_at(source + j, count) * factor, count); });
  }
}

// Brings a tile of queries into the workspace.
template <Storage S>
void load_queries(const AttentionLayout& l, const QueryHead<S>& h, std::int64_t query, std::int64_t queries,
                  const Workspace& w) {
  const S* q = h.q + query * l.qkv_stride;
  const S* d_o = h.d_o + query * l.o_stride;
  const S* o = h.o + query * l.o_stride;
  copy_rows(queries, l.dim, q, l.qkv_stride, w.q_rows, l.padded_dim);
  copy_rows(queries, l.dim, d_o, l.o_stride, w.d_o_rows, l.padded_dim);
  if (queries < kQ) {
    std::fill(w.q_lanes, w.q_lanes + l.dim * kQ, 0.0F);
    std::fill(w.d_o_lanes, w.d_o_lanes + l.dim * kQ, 0.0F);
  }
  transpose_into(queries, l.dim, w.q_rows, l.padded_dim, l.scale * kLog2e, w.q_lanes, kQ);
  transpose_into(queries, l.dim, w.d_o_rows, l.padded_dim, 1.0F, w.d_o_lanes, kQ);
  std::fill(w.d_q, w.d_q + kQ * l.padded_dim, 0.0F);
  for (std::int64_t i = 0; i < kQ; ++i) {
    F32x16 delta{};
    if (i < queries) {
      for_lanes(0, l.dim,
                [&, row = o + i * l.o_stride, gradient = w.d_o_rows + i * l.padded_dim](auto j, auto count) {
                  delta += load_at(row + j, count) * load(gradient + j);
                });
    }
    w.delta[i] = sum_lanes(delta);
    w.lse[i] = i < queries ? h.lse[query + i] * kLog2e : 0.0F;
  }
}

template <Storage S>
void query_tile(const AttentionLayout& l, const QueryHead<S>& h, std::int64_t query, const Workspace& w) {
  const std::int64_t queries = std::min(kQ, l.seq - query);
  load_queries(l, h, query, queries, w);
  const std::int64_t keys = l.visible_keys(query, queries);
  for (std::int64_t key = 0; key < keys; key += kC) {
    const std::int64_t count = std::min(kC, keys - key);
    const ScoreTile tile{query, key, count, l.causal && key + count - 1 > query};
    compute_scores(l, tile, w);
    softmax_backward(tile, w);
    accumulate_gradients(l, tile, queries, w);
  }
  write_rows(queries, l.dim, w.d_q, l.padded_dim, l.scale, h.d_q + query * l.qkv_stride, l.qkv_stride);
}

}  // namespace

std::size_t attention_backward_scratch_bytes(const AttentionShape& shape) {
  check_attention(shape);
  return static_cast<std::size_t>(thread_count() * Workspace::floats(AttentionLayout(shape))) * sizeof(float);
}

template <Storage S>
void attention_backward(const AttentionShape& shape, const S* d_o, const S* qkv, const S* o, const float* lse,
                        S* d_qkv, void* scratch) {
  check_attention(shape);
  const AttentionLayout l(shape);
  parallel_tasks(shape.batch * shape.kv_heads, [&](std::int64_t task, int worker) {
    const Workspace w(scratch, l, worker);
    const std::int64_t batch = task / shape.kv_heads;
    const std::int64_t kv_head = task % shape.kv_heads;
    const std::int64_t row = batch * l.seq * l.qkv_stride;
    const std::int64_t key = row + l.key_begin + kv_head * l.dim;
    const std::int64_t value = row + l.value_begin + kv_head * l.dim;
    copy_rows(l.seq, l.dim, qkv + key, l.qkv_stride, w.keys, l.padded_dim);
    copy_rows(l.seq, l.dim, qkv + value, l.qkv_stride, w.values, l.padded_dim);
    std::fill(w.d_keys, w.d_keys + l.seq * l.padded_dim, 0.0F);
    std::fill(w.d_values, w.d_values + l.seq * l.padded_dim, 0.0F);
    for (std::int64_t head = kv_head * l.group; head < (kv_head + 1) * l.group; ++head) {
      const std::int64_t out = batch * l.seq * l.o_stride + head * l.dim;
      const QueryHead<S> h{qkv + row + head * l.dim, o + out, d_o + out,
                           lse + (batch * shape.heads + head) * l.seq, d_qkv + row + head * l.dim};
      for (std::int64_t query = 0; query < l.seq; query += kQ) query_tile(l, h, query, w);
    }
    write_rows(l.seq, l.dim, w.d_keys, l.padded_dim, l.scale, d_qkv + key, l.qkv_stride);
    write_rows(l.seq, l.dim, w.d_values, l.padded_dim, 1.0F, d_qkv + value, l.qkv_stride);
  });
}

template void attention_backward(const AttentionShape&, const float*, const float*, const float*,
                                 const float*, float*, void*);
template void attention_backward(const AttentionShape&, const core::Bf16*, const core::Bf16*,
                                 const core::Bf16*, const float*, core::Bf16*, void*);

}  // namespace rooflm::backends::cpu
