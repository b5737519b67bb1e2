// One tile of queries of flash attention, with an online softmax over tiles of keys. For this folder only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "backends/cpu/fast/attention_tiles.h"
#include "backends/cpu/fast/tile_pack.h"

namespace rooflm::backends::cpu {
namespace {

/// A thread's workspace. Operands of GEMMs are E; sizes are those of fp32 elements, so one size serves both
/// types.
template <TileElement E>
struct Workspace {
  Workspace(void* memory, const AttentionLayout& l, int worker) {
    auto* next = static_cast<float*>(memory) + worker * floats(l);
    const auto take = [&next](std::int64_t count) { return std::exchange(next, next + count); };
    const auto take_elements = [&take](std::int64_t count) { return reinterpret_cast<E*>(take(count)); };
    queries = take_elements(l.padded_dim * kQ);
    keys = take_elements(kC * l.padded_dim);
    values = take_elements(kC * l.padded_dim);
    output = take(l.padded_dim * kQ);
    scores = take(kC * kQ);
    // fp32 probabilities overwrite the scores.
    probabilities = kTerms<E> == 1 ? reinterpret_cast<E*>(scores) : take_elements(kC * kQ);
    top = take(kQ);
    sum = take(kQ);
    rescale = take(kQ);
  }
  static std::int64_t floats(const AttentionLayout& l) {
    return 2 * l.padded_dim * kQ + 2 * kC * l.padded_dim + 2 * kC * kQ + 3 * kQ;
  }
  E* queries;        // [dim, kQ]
  E* keys;           // [kC, dim], rows padded_dim apart
  E* values;         // [kC, padded_dim], the terms of a sum over keys
  E* probabilities;  // [kC, kQ], the terms of a sum over keys
  float* output;     // [dim, kQ]
  float* scores;     // [kC, kQ]
  float* top;        // [kQ] largest score so far, in units of log2
  float* sum;        // [kQ] sum of 2^(score - top) so far
  float* rescale;    // factor that the sums so far must be multiplied by
};

template <TileElement E>
void compute_scores(const AttentionLayout& l, const ScoreTile& t, const Workspace<E>& w) {
  const std::int64_t step = t.masked ? kLanes : t.count;
  for (std::int64_t c = 0; c < t.count; c += step) {
    const std::int64_t v = t.first_vector(c);
    if (v >= kVectors) break;
    tile_gemm(Result::overwrite, std::min(step, t.count - c), kVectors - v, elements<E>(l.dim),
              by_rows<E>(w.keys + c * l.padded_dim, l.padded_dim), w.queries + v * kLanes, kQ,
              w.scores + c * kQ + v * kLanes, kQ);
  }
}

/// Masks the scores of vector v that its queries must not see.
inline void mask_scores(const ScoreTile& t, float* scores, std::int64_t v) {
  for (std::int64_t c = t.seen_by_all(v); c < t.visible_count(v); ++c) {
    float* s = scores + c * kQ + v * kLanes;
    store(s, t.hides(c, v) ? splat(kMasked) : load(s));
  }
}

/// Products of vector v become scores.
inline void shape_scores(const ScoreForm& form, const ScoreTile& t, float* scores, std::int64_t v,
                         float factor) {
  for (std::int64_t c = 0; c < t.visible_count(v); ++c) {
    float* s = scores + c * kQ + v * kLanes;
    store(s, form.of(load(s) * factor, t.query + v * kLanes - t.key - c).score);
  }
}

/// Online softmax: scores of vector v become 2^(score * factor - top) with the new top; updates the sums.
template <TileElement E>
void softmax_vector(const Workspace<E>& w, std::int64_t v, std::int64_t count, float factor) {
  const float* scores = w.scores + v * kLanes;
  const Floats old_top = load(w.top + v * kLanes);
  Floats top = splat(kMasked);
  for (std::int64_t c = 0; c < count; ++c) top = max(top, load(scores + c * kQ));
  top = max(old_top, top * factor);
  const Floats rescale = exp2_nonpositive<float, Floats>(old_top - top);
  Floats sum{};
  const auto probability = [&](std::int64_t c) {
    const Floats p = exp2_nonpositive<float, Floats>(load(scores + c * kQ) * factor - top);
    sum += p;
    return p;
  };
  E* p = w.probabilities + v * kLanes;
  std::int64_t c = 0;
  if constexpr (kTerms<E> == 1) {
    for (; c < count; ++c) store(p + c * kQ, probability(c));
  } else {
    for (; c + 1 < count; c += 2) {
      const Floats low = probability(c);
      store_pairs(p + c / 2 * kQ, low, probability(c + 1));
    }
    if (c < count) store_pairs(p + c / 2 * kQ, probability(c), Floats{});
  }
  store(w.sum + v * kLanes, load(w.sum + v * kLanes) * rescale + sum);
  store(w.top + v * kLanes, top);
  store(w.rescale + v * kLanes, rescale);
}

template <TileElement E>
void accumulate_output(const AttentionLayout& l, const ScoreTile& t, const Workspace<E>& w) {
  // If tiles of keys and queries begin together, the first keys of a masked tile are seen by all its queries.
  static_assert(kQ == kC);
  const std::int64_t step = t.masked ? kLanes : t.count;
  for (std::int64_t c = 0; c < t.count; c += step) {
    const std::int64_t v = t.first_vector(c);
    const std::int64_t count = elements<E>(std::min(step, t.count - c));
    const auto values = transposed<E>(w.values + c / kTerms<E> * l.padded_dim, l.padded_dim);
    const E* p = w.probabilities + c / kTerms<E> * kQ + v * kLanes;
    float* o = w.output + v * kLanes;
    if (c == 0) {
      tile_gemm(Result::scale_and_accumulate, l.dim, kVectors, count, values, p, kQ, o, kQ, w.rescale);
    } else {
      tile_gemm(Result::accumulate, l.dim, kVectors - v, count, values, p, kQ, o, kQ);
    }
  }
}

/// Keys and values of positions that follow each other: rows of D, `stride` elements apart.
template <Storage S>
struct KeysOf {
  const S *k, *v;
  std::int64_t stride;
};

/// Queries [query, query + queries) of one head against all keys that they see, at most kQ; of causal
/// attention `query` is a multiple of kQ. q and o: their first rows, l.qkv_stride and l.o_stride apart.
/// keys_at(key, count): a KeysOf. lse [queries] and sink: null if there is none.
template <TileElement E, Storage S, class KeysAt>
void query_tile(const AttentionLayout& l, const ScoreForm& form, std::int64_t query, std::int64_t queries,
                const S* q, const KeysAt& keys_at, S* o, float* lse, const float* sink,
                const Workspace<E>& w) {
  // The scale is folded into fp32 queries. Pairs would be rounded, so in bf16 the scores are scaled instead.
  const float factor = l.scale * kLog2e;
  const float left = kTerms<E> == 1 ? 1.0F : factor;
  if (queries < kQ)
    std::memset(static_cast<void*>(w.queries), 0, static_cast<std::size_t>(l.dim * kQ) * sizeof(E));
  pack_lanes(queries, l.dim, q, l.qkv_stride, factor, w.queries, kQ);
  std::fill(w.output, w.output + l.dim * kQ, 0.0F);
  std::fill(w.top, w.top + kQ, sink != nullptr ? *sink * kLog2e : kNoScore);
  std::fill(w.sum, w.sum + kQ, sink != nullptr ? 1.0F : 0.0F);
  const std::int64_t keys = l.visible_keys(query, queries);
  for (std::int64_t key = l.first_tile(query); key < keys; key += kC) {
    const std::int64_t count = std::min(kC, keys - key);
    const auto tile = ScoreTile::of(l, query, queries, key, count);
    const KeysOf<S> from = keys_at(key, count);
    pack_rows(count, l.dim, from.k, from.stride, w.keys, l.padded_dim);
    pack_terms(count, l.dim, from.v, from.stride, w.values, l.padded_dim);
    compute_scores(l, tile, w);
    for (std::int64_t vector = 0; vector < kVectors; ++vector) {
      if (l.is_shaped()) shape_scores(form, tile, w.scores, vector, left);
      mask_scores(tile, w.scores, vector);
      softmax_vector(w, vector, tile.visible_count(vector), l.is_shaped() ? 1.0F : left);
    }
    accumulate_output(l, tile, w);
  }
  for (std::int64_t i = 0; i < kQ; ++i) {
    if (lse != nullptr && i < queries) lse[i] = kLn2 * (w.top[i] + std::log2(w.sum[i]));
    w.rescale[i] = 1.0F / w.sum[i];
  }
  unpack_lanes(queries, l.dim, w.output, kQ, w.rescale, o, l.o_stride);
}

}  // namespace
}  // namespace rooflm::backends::cpu
