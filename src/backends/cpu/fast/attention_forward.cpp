// Flash attention, forward: one task per tile of queries, online softmax over tiles of keys.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "backends/cpu/fast/attention.h"
#include "backends/cpu/fast/attention_tiles.h"
#include "backends/cpu/fast/maker.h"
#include "backends/cpu/fast/parallel.h"
#include "backends/cpu/fast/tile_pack.h"
#include "core/error.h"
#include "program/ops.h"

namespace rooflm::backends::cpu {
namespace {

constexpr std::int64_t kQ = kTileQueries;
constexpr std::int64_t kC = kTileKeys;
constexpr std::int64_t kVectors = kQ / kLanes;

// A thread's workspace. Operands of GEMMs are E; sizes are those of fp32 elements, so one size serves both
// types.
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

// Masks the scores of vector v that its queries must not see.
void mask_scores(const ScoreTile& t, float* scores, std::int64_t v) {
  for (std::int64_t c = t.seen_by_all(v); c < t.visible_count(v); ++c) {
    float* s = scores + c * kQ + v * kLanes;
    store(s, t.hides(c, v) ? splat(kMasked) : load(s));
  }
}

// Products of vector v become scores.
void shape_scores(const ScoreForm& form, const ScoreTile& t, float* scores, std::int64_t v, float factor) {
  for (std::int64_t c = 0; c < t.visible_count(v); ++c) {
    float* s = scores + c * kQ + v * kLanes;
    store(s, form.of(load(s) * factor, t.query + v * kLanes - t.key - c).score);
  }
}

// Online softmax: scores of vector v become 2^(score * factor - top) with the new top; updates the sums.
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

// One tile of queries of one head against all keys that it sees. `sink`: null if there is none.
template <TileElement E, Storage S>
void query_tile(const AttentionLayout& l, const ScoreForm& form, std::int64_t query, const S* q, const S* k,
                const S* v, S* o, float* lse, const float* sink, const Workspace<E>& w) {
  // The scale is folded into fp32 queries. Pairs would be rounded, so in bf16 the scores are scaled instead.
  const float factor = l.scale * kLog2e;
  const float left = kTerms<E> == 1 ? 1.0F : factor;
  const std::int64_t queries = std::min(kQ, l.seq - query);
  if (queries < kQ)
    std::memset(static_cast<void*>(w.queries), 0, static_cast<std::size_t>(l.dim * kQ) * sizeof(E));
  pack_lanes(queries, l.dim, q + query * l.qkv_stride, l.qkv_stride, factor, w.queries, kQ);
  std::fill(w.output, w.output + l.dim * kQ, 0.0F);
  std::fill(w.top, w.top + kQ, sink != nullptr ? *sink * kLog2e : kNoScore);
  std::fill(w.sum, w.sum + kQ, sink != nullptr ? 1.0F : 0.0F);
  const std::int64_t keys = l.visible_keys(query, queries);
  for (std::int64_t key = l.first_tile(query); key < keys; key += kC) {
    const std::int64_t count = std::min(kC, keys - key);
    const auto tile = ScoreTile::of(l, query, queries, key, count);
    pack_rows(count, l.dim, k + key * l.kv_stride, l.kv_stride, w.keys, l.padded_dim);
    pack_terms(count, l.dim, v + key * l.kv_stride, l.kv_stride, w.values, l.padded_dim);
    compute_scores(l, tile, w);
    for (std::int64_t vector = 0; vector < kVectors; ++vector) {
      if (l.is_shaped()) shape_scores(form, tile, w.scores, vector, left);
      mask_scores(tile, w.scores, vector);
      softmax_vector(w, vector, tile.visible_count(vector), l.is_shaped() ? 1.0F : left);
    }
    accumulate_output(l, tile, w);
  }
  for (std::int64_t i = 0; i < kQ; ++i) {
    if (i < queries) lse[query + i] = kLn2 * (w.top[i] + std::log2(w.sum[i]));
    w.rescale[i] = 1.0F / w.sum[i];
  }
  unpack_lanes(queries, l.dim, w.output, kQ, w.rescale, o + query * l.o_stride, l.o_stride);
}

template <TileElement E, Storage S>
void forward(const AttentionShape& shape, const AttentionLayout& l, const S* qkv, const S* keys_values, S* o,
             float* lse, void* scratch, const float* sinks) {
  // Head by head, so keys and values stay in cache; within a head the longest tile first.
  parallel_tasks(shape.batch * shape.heads * l.query_tiles, [&](std::int64_t task, int worker) {
    const std::int64_t head_task = task / l.query_tiles;
    const std::int64_t tile = l.query_tiles - 1 - task % l.query_tiles;
    const std::int64_t batch = head_task / shape.heads;
    const std::int64_t head = head_task % shape.heads;
    const S* row = qkv + batch * l.seq * l.qkv_stride;
    const S* kv = keys_values + batch * l.seq * l.kv_stride + head / l.group * l.dim;
    query_tile(l, ScoreForm(l, head), l.first_query + tile * kQ, row + head * l.dim, kv + l.key_begin,
               kv + l.value_begin, o + batch * l.seq * l.o_stride + head * l.dim, lse + head_task * l.seq,
               sinks == nullptr ? nullptr : sinks + head, Workspace<E>(scratch, l, worker));
  });
}

// Runs with the element type that GEMMs of S use on this CPU.
template <Storage S>
void forward_of(const AttentionShape& shape, const AttentionLayout& l, const S* qkv, const S* keys_values,
                S* o, float* lse, void* scratch, const float* sinks = nullptr) {
  check_attention(shape);
  if constexpr (!std::is_same_v<S, float> && kHasPairDots) {
    if (l.dim % 2 == 0) return forward<Bf16Pair>(shape, l, qkv, keys_values, o, lse, scratch, sinks);
  }
  forward<float>(shape, l, qkv, keys_values, o, lse, scratch, sinks);
}

// The result of queries that see no key.
template <Storage S>
void fill_unseen(const AttentionShape& shape, const AttentionLayout& l, S* o, float* lse) {
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    S* rows = o + b * l.seq * l.o_stride;
    std::memset(static_cast<void*>(rows), 0,
                static_cast<std::size_t>(l.first_query * l.o_stride) * sizeof(S));
  }
  for (std::int64_t head = 0; head < shape.batch * shape.heads; ++head)
    std::fill_n(lse + head * l.seq, l.first_query, -std::numeric_limits<float>::infinity());
}

}  // namespace

std::size_t attention_forward_scratch_bytes(const AttentionShape& shape) {
  check_attention(shape);
  return static_cast<std::size_t>(thread_count() * Workspace<float>::floats(AttentionLayout(shape))) *
         sizeof(float);
}

template <Storage S>
void attention_forward(const AttentionShape& shape, const S* qkv, S* o, float* lse, void* scratch,
                       const float* sinks) {
  forward_of(shape, AttentionLayout(shape), qkv, qkv, o, lse, scratch, sinks);
}
template void attention_forward(const AttentionShape&, const float*, float*, float*, void*, const float*);
template void attention_forward(const AttentionShape&, const core::Bf16*, core::Bf16*, float*, void*,
                                const float*);

template <Storage S>
void attention_block_forward(const AttentionShape& shape, const S* qkv, const S* keys_values, S* o,
                             float* lse, void* scratch) {
  const AttentionLayout l(shape, KeyRows::apart);
  fill_unseen(shape, l, o, lse);
  forward_of(shape, l, qkv, keys_values, o, lse, scratch);
}
template void attention_block_forward(const AttentionShape&, const float*, const float*, float*, float*,
                                      void*);
template void attention_block_forward(const AttentionShape&, const core::Bf16*, const core::Bf16*,
                                      core::Bf16*, float*, void*);

void check_attention(const AttentionShape& s) {
  if (s.batch < 1 || s.seq < 1 || s.heads < 1 || s.kv_heads < 1 || s.head_dim < 1) {
    throw core::UsageError(
        fmt::format("attention [{}, {}] with {} heads, {} key/value heads of size {}: every "
                    "extent must be at least 1",
                    s.batch, s.seq, s.heads, s.kv_heads, s.head_dim));
  }
  if (s.heads % s.kv_heads != 0) {
    throw core::UsageError(
        fmt::format("attention: {} key/value heads do not divide {} heads", s.kv_heads, s.heads));
  }
}

namespace {

// FLOP of one matmul [T, D] x [D, T], or of its visible part.
double matmul_flop(const AttentionShape& s) {
  const auto seq = static_cast<double>(s.seq);
  const auto unseen = static_cast<double>(s.window > 0 ? std::max<std::int64_t>(0, s.seq - s.window) : 0);
  const double scores = s.causal ? seq * (seq + 1) / 2 - unseen * (unseen + 1) / 2 : seq * seq;
  return 2.0 * static_cast<double>(s.batch * s.heads * s.head_dim) * scores;
}

}  // namespace

double attention_forward_flop(const AttentionShape& shape) { return 2 * matmul_flop(shape); }
double attention_backward_flop(const AttentionShape& shape) { return 5 * matmul_flop(shape); }

}  // namespace rooflm::backends::cpu

namespace rooflm::backends::cpu::fast {

Kernel make_flash_attention(const OpView& v) {
  if (has_reference_scores(v)) return {};
  if (!v.outputs_are({0}, v.in(0).dtype) || !v.outputs_are({1}, DType::f32)) return {};
  const bool has_sinks = v.has_in(1);
  if (has_sinks && !v.inputs_are({1}, DType::f32)) return {};
  return with_storage(v.in(0).dtype, [&]<class S>(S) -> Kernel {
    const AttentionShape shape = attention_shape(v, v.in(0).shape);
    const std::size_t scratch_bytes = attention_forward_scratch_bytes(shape);
    v.context->scratch().reserve(scratch_bytes);
    const auto run = [shape, has_sinks, resources = v.context](const KernelArgs& args) {
      attention_forward(shape, static_cast<const S*>(args.in[0]), static_cast<S*>(args.out[0]),
                        static_cast<float*>(args.out[1]), resources->scratch().data(),
                        has_sinks ? static_cast<const float*>(args.in[1]) : nullptr);
    };
    return {run, {.workspace_bytes = static_cast<std::int64_t>(scratch_bytes)}};
  });
}

Kernel make_attention_block(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!program::beyond_plain(v.op).empty()) return {};
  if (!v.inputs_are({1}, dtype) || !v.outputs_are({0}, dtype) || !v.outputs_are({1}, DType::f32)) return {};
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    const AttentionShape shape = block_shape(v, v.in(0).shape);
    const std::size_t scratch_bytes = attention_forward_scratch_bytes(shape);
    v.context->scratch().reserve(scratch_bytes);
    const auto run = [shape, resources = v.context](const KernelArgs& args) {
      attention_block_forward(shape, static_cast<const S*>(args.in[0]), static_cast<const S*>(args.in[1]),
                              static_cast<S*>(args.out[0]), static_cast<float*>(args.out[1]),
                              resources->scratch().data());
    };
    return {run, {.workspace_bytes = static_cast<std::int64_t>(scratch_bytes)}};
  });
}

MakerRows attention_forward_rows() {
  namespace ops = program::ops;
  return {{&ops::kFlashAttention, make_flash_attention, "attention_forward"},
          {&ops::kAttentionBlock, make_attention_block, "attention_block_forward"}};
}

}  // namespace rooflm::backends::cpu::fast
