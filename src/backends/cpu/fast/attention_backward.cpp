// Flash attention, backward: one task per key/value head; scores are recomputed tile by tile.
#include <algorithm>
#include <cmath>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "backends/cpu/fast/attention.h"
#include "backends/cpu/fast/attention_tiles.h"
#include "backends/cpu/fast/elementwise.h"
#include "backends/cpu/fast/maker.h"
#include "backends/cpu/fast/parallel.h"
#include "backends/cpu/fast/tile_pack.h"
#include "program/ops.h"

namespace rooflm::backends::cpu {
namespace {

// A thread's workspace. Operands of GEMMs are E; sizes are those of fp32 elements, so one size serves both
// types. "Rows" are for sums over the head dimension or, for scores, over queries; "terms" are for sums over
// rows; "lanes" are transposed. With fp32 elements rows and terms are equal and share memory, and so do
// scores and probabilities.
template <TileElement E>
struct Workspace {
  Workspace(void* memory, const AttentionLayout& l, int worker) {
    auto* next = static_cast<float*>(memory) + worker * floats(l);
    const auto take = [&next](std::int64_t count) { return std::exchange(next, next + count); };
    const auto take_elements = [&take](std::int64_t count) { return reinterpret_cast<E*>(take(count)); };
    constexpr bool kShared = kTerms<E> == 1;
    const std::int64_t whole = even_keys(l) * l.padded_dim;
    const std::int64_t tile = kQ * l.padded_dim;
    for (float** head : {&d_keys, &d_values}) *head = take(whole);
    // Pairs need half the rows, so rows and terms of the keys fit where fp32 has its single copy.
    key_rows = take_elements(whole);
    key_terms = kShared ? key_rows : key_rows + elements<E>(l.keys) * l.padded_dim;
    value_rows = take_elements(whole);
    for (E** terms : {&q_terms, &d_o_terms, &q_lanes, &d_o_lanes}) *terms = take_elements(tile);
    d_q = take(tile);
    scores = take(kC * kQ);
    d_scores = take(kC * kQ);
    probabilities = kShared ? reinterpret_cast<E*>(scores) : take_elements(kC * kQ / 2);
    d_score_rows = kShared ? reinterpret_cast<E*>(d_scores) : take_elements(kC * kQ / 2);
    d_score_terms = kShared ? d_score_rows : take_elements(kC * kQ / 2);
    for (float** row : {&delta, &lse}) *row = take(kQ);
  }
  static std::int64_t floats(const AttentionLayout& l) {
    return 4 * even_keys(l) * l.padded_dim + 5 * kQ * l.padded_dim + 4 * kC * kQ + 2 * kQ;
  }
  static std::int64_t even_keys(const AttentionLayout& l) { return (l.keys + 1) / 2 * 2; }
  // Row stride of keys, values and scores, in elements.
  static std::int64_t row_stride(const AttentionLayout& l) { return l.padded_dim / kTerms<E>; }
  static constexpr std::int64_t kScoreStride = kQ / kTerms<E>;

  float *d_keys, *d_values;                         // [keys, padded_dim] of the whole head
  E *key_rows, *key_terms, *value_rows;             // of the whole head
  E *q_terms, *d_o_terms;                           // [kQ, padded_dim]
  E *q_lanes, *d_o_lanes;                           // [dim, kQ]
  float* d_q;                                       // [kQ, padded_dim]
  float *scores, *d_scores;                         // [kC, kQ]
  E *probabilities, *d_score_rows, *d_score_terms;  // [kC, kQ]
  float* delta;                                     // [kQ] sum over the head's dimension of d_o * o
  float* lse;                                       // [kQ] in units of log2
};

// scores = k·qᵀ and d_scores = v·d_oᵀ, where visible.
template <TileElement E>
void compute_scores(const AttentionLayout& l, const ScoreTile& t, const Workspace<E>& w) {
  const std::int64_t step = t.masked ? kLanes : t.count;
  const std::int64_t stride = w.row_stride(l);
  const std::int64_t terms = elements<E>(l.dim);
  for (std::int64_t c = 0; c < t.count; c += step) {
    const std::int64_t v = t.first_vector(c);
    if (v >= kVectors) break;
    const std::int64_t rows = std::min(step, t.count - c);
    const std::int64_t key = (t.key + c) * stride;
    const std::int64_t at = c * kQ + v * kLanes;
    tile_gemm(Result::overwrite, rows, kVectors - v, terms, by_rows<E>(w.key_rows + key, stride),
              w.q_lanes + v * kLanes, kQ, w.scores + at, kQ);
    tile_gemm(Result::overwrite, rows, kVectors - v, terms, by_rows<E>(w.value_rows + key, stride),
              w.d_o_lanes + v * kLanes, kQ, w.d_scores + at, kQ);
  }
}

struct Gradients {
  Floats p, d_score;
};

// Stores probabilities and gradients of key c, and of key c + 1 if the GEMMs read pairs.
ROOFLM_INLINE void store_gradients(const Workspace<float>& w, std::int64_t c, std::int64_t v,
                                   const Gradients& g) {
  store(w.probabilities + c * kQ + v * kLanes, g.p);
  store(w.d_score_rows + c * kQ + v * kLanes, g.d_score);
}
ROOFLM_INLINE void store_row(Bf16Pair* rows, std::int64_t c, std::int64_t v, Floats x) {
  store(reinterpret_cast<core::Bf16*>(rows) + c * kQ + v * kLanes, x);
}
ROOFLM_INLINE void store_gradients(const Workspace<Bf16Pair>& w, std::int64_t c, std::int64_t v,
                                   const Gradients& low, const Gradients& high) {
  store_row(w.probabilities, c, v, low.p);
  store_row(w.probabilities, c + 1, v, high.p);
  store_row(w.d_score_rows, c, v, low.d_score);
  store_row(w.d_score_rows, c + 1, v, high.d_score);
  store_pairs(w.d_score_terms + c / 2 * kQ + v * kLanes, low.d_score, high.d_score);
}

// p = 2^(score * factor - lse), zero where invisible; d_score = p (d_p - delta). With kShaped the form makes
// the scores.
template <bool kShaped, TileElement E>
void softmax_backward(const ScoreForm& form, const ScoreTile& t, const Workspace<E>& w, float factor) {
  for (std::int64_t v = 0; v < kVectors; ++v) {
    const Floats lse = load(w.lse + v * kLanes);
    const Floats delta = load(w.delta + v * kLanes);
    const auto gradients = [&](std::int64_t c, bool masked) {
      const std::int64_t at = c * kQ + v * kLanes;
      const Floats product = load(w.scores + at) * factor;
      ScoreForm::Score score{product, splat(1.0F)};
      if constexpr (kShaped) score = form.of(product, t.query + v * kLanes - t.key - c);
      Floats p = exp2_nonpositive<float, Floats>(score.score - lse);
      if (masked) p = t.hides(c, v) ? Floats{} : p;
      const Floats d_score = p * (load(w.d_scores + at) - delta);
      if constexpr (kShaped) return Gradients{p, d_score * score.derivative};
      return Gradients{p, d_score};
    };
    const std::int64_t count = t.visible_count(v);
    const auto run = [&](std::int64_t begin, std::int64_t end, bool masked) {
      if constexpr (kTerms<E> == 1) {
        for (std::int64_t c = begin; c < end; ++c) store_gradients(w, c, v, gradients(c, masked));
      } else {
        std::int64_t c = begin;
        for (; c + 1 < end; c += 2) store_gradients(w, c, v, gradients(c, masked), gradients(c + 1, masked));
        if (c < end) store_gradients(w, c, v, gradients(c, masked), Gradients{});
      }
    };
    const std::int64_t whole = t.masked || t.window > 0 ? t.seen_by_all(v) / 2 * 2 : count;
    run(0, whole, false);
    run(whole, count, true);
  }
}

template <TileElement E>
void accumulate_gradients(const AttentionLayout& l, const ScoreTile& t, std::int64_t queries,
                          const Workspace<E>& w) {
  const std::int64_t vectors = l.padded_dim / kLanes;
  const std::int64_t stride = l.padded_dim;
  const std::int64_t key_step = t.masked ? kLanes : t.count;
  for (std::int64_t c = 0; c < t.count; c += key_step) {
    const std::int64_t first = t.first_vector(c) * kLanes;
    if (first >= queries) break;
    const std::int64_t rows = std::min(key_step, t.count - c);
    const std::int64_t terms = elements<E>(queries - first);
    const std::int64_t left = c * w.kScoreStride + first / kTerms<E>;
    const std::int64_t right = first / kTerms<E> * stride;
    const std::int64_t key = (t.key + c) * stride;
    tile_gemm(Result::accumulate, rows, vectors, terms, by_rows<E>(w.probabilities + left, w.kScoreStride),
              w.d_o_terms + right, stride, w.d_values + key, stride);
    tile_gemm(Result::accumulate, rows, vectors, terms, by_rows<E>(w.d_score_rows + left, w.kScoreStride),
              w.q_terms + right, stride, w.d_keys + key, stride);
  }
  const std::int64_t query_step = t.masked ? kLanes : queries;
  for (std::int64_t i = 0; i < queries; i += query_step) {
    const std::int64_t visible = t.masked ? t.visible_count(i / kLanes) : t.count;
    tile_gemm(Result::accumulate, std::min(query_step, queries - i), vectors, elements<E>(visible),
              transposed<E>(w.d_score_terms + i, kQ), w.key_terms + t.key / kTerms<E> * stride, stride,
              w.d_q + i * stride, stride);
  }
}

// Pointers to the first row of one query head.
template <Storage S, Storage D>
struct QueryHead {
  const S* q;
  const S* o;
  const S* d_o;
  const float* lse;
  D* d_q;
};

// Destinations of gradients: queries in rows with `stride`, keys and values in the layout of their inputs.
template <Storage D>
struct Gradient {
  D* queries;
  std::int64_t stride;
  D* keys_values;
  bool accumulate;
};

// Destinations of an attention_block.
Gradient<float> sums(const AttentionLayout& l, float* queries, float* keys_values) {
  return {.queries = queries, .stride = l.o_stride, .keys_values = keys_values, .accumulate = true};
}

// Loads a tile of queries into the workspace.
template <TileElement E, Storage S, Storage D>
void load_queries(const AttentionLayout& l, const QueryHead<S, D>& h, std::int64_t query,
                  std::int64_t queries, const Workspace<E>& w) {
  const S* q = h.q + query * l.qkv_stride;
  const S* d_o = h.d_o + query * l.o_stride;
  const S* o = h.o + query * l.o_stride;
  pack_terms(queries, l.dim, q, l.qkv_stride, w.q_terms, l.padded_dim);
  pack_terms(queries, l.dim, d_o, l.o_stride, w.d_o_terms, l.padded_dim);
  if (queries < kQ) {
    const auto bytes = static_cast<std::size_t>(l.dim * kQ) * sizeof(E);
    std::memset(static_cast<void*>(w.q_lanes), 0, bytes);
    std::memset(static_cast<void*>(w.d_o_lanes), 0, bytes);
  }
  pack_lanes(queries, l.dim, q, l.qkv_stride, l.scale * kLog2e, w.q_lanes, kQ);
  pack_lanes(queries, l.dim, d_o, l.o_stride, 1.0F, w.d_o_lanes, kQ);
  std::fill(w.d_q, w.d_q + kQ * l.padded_dim, 0.0F);
  for (std::int64_t i = 0; i < kQ; ++i) {
    Floats delta{};
    if (i < queries) {
      for_lanes(0, l.dim, [&, a = o + i * l.o_stride, b = d_o + i * l.o_stride](auto j, auto count) {
        delta += load_at(a + j, count) * load_at(b + j, count);
      });
    }
    w.delta[i] = sum_lanes(delta);
    w.lse[i] = i < queries ? h.lse[query + i] * kLog2e : 0.0F;
  }
}

// d_sink of a tile of queries: the sink's p is exp(sink - lse), and its dp is 0.
template <TileElement E>
float sink_gradient(const Workspace<E>& w, std::int64_t queries, float sink) {
  float sum = 0;
  for (std::int64_t i = 0; i < queries; ++i) sum -= std::exp2(sink * kLog2e - w.lse[i]) * w.delta[i];
  return sum;
}

template <TileElement E, Storage S, Storage D>
void query_tile(const AttentionLayout& l, const ScoreForm& form, const QueryHead<S, D>& h,
                const Gradient<D>& d, std::int64_t query, const Workspace<E>& w) {
  const std::int64_t queries = std::min(kQ, l.seq - query);
  load_queries(l, h, query, queries, w);
  const std::int64_t keys = l.visible_keys(query, queries);
  const float factor = kTerms<E> == 1 ? 1.0F : l.scale * kLog2e;
  for (std::int64_t key = l.first_tile(query); key < keys; key += kC) {
    const std::int64_t count = std::min(kC, keys - key);
    const auto tile = ScoreTile::of(l, query, queries, key, count);
    compute_scores(l, tile, w);
    if (l.is_shaped()) {
      softmax_backward<true>(form, tile, w, factor);
    } else {
      softmax_backward<false>(form, tile, w, factor);
    }
    accumulate_gradients(l, tile, queries, w);
  }
  unpack_rows(queries, l.dim, w.d_q, l.padded_dim, l.scale, h.d_q + query * d.stride, d.stride, d.accumulate);
}

template <TileElement E, Storage S, Storage D>
void backward(const AttentionShape& shape, const AttentionLayout& l, const S* d_o, const S* qkv,
              const S* keys_values, const S* o, const float* lse, const Gradient<D>& d, void* scratch,
              const float* sinks, float* d_sinks) {
  parallel_tasks(shape.batch * shape.kv_heads, [&](std::int64_t task, int worker) {
    const Workspace<E> w(scratch, l, worker);
    const std::int64_t batch = task / shape.kv_heads;
    const std::int64_t kv_head = task % shape.kv_heads;
    const std::int64_t row = batch * l.seq * l.qkv_stride;
    const std::int64_t kv_row = batch * l.seq * l.kv_stride + kv_head * l.dim;
    const std::int64_t key = kv_row + l.key_begin;
    const std::int64_t value = kv_row + l.value_begin;
    pack_rows(l.keys, l.dim, keys_values + key, l.kv_stride, w.key_rows, w.row_stride(l));
    if (kTerms < E >> 1) pack_terms(l.keys, l.dim, keys_values + key, l.kv_stride, w.key_terms, l.padded_dim);
    pack_rows(l.keys, l.dim, keys_values + value, l.kv_stride, w.value_rows, w.row_stride(l));
    std::fill(w.d_keys, w.d_keys + l.keys * l.padded_dim, 0.0F);
    std::fill(w.d_values, w.d_values + l.keys * l.padded_dim, 0.0F);
    for (std::int64_t head = kv_head * l.group; head < (kv_head + 1) * l.group; ++head) {
      const std::int64_t out = batch * l.seq * l.o_stride + head * l.dim;
      const QueryHead<S, D> h{qkv + row + head * l.dim, o + out, d_o + out,
                              lse + (batch * shape.heads + head) * l.seq,
                              d.queries + batch * l.seq * d.stride + head * l.dim};
      const ScoreForm form(l, head);
      float d_sink = 0;
      for (std::int64_t query = l.first_query; query < l.seq; query += kQ) {
        query_tile(l, form, h, d, query, w);
        if (sinks != nullptr) d_sink += sink_gradient(w, std::min(kQ, l.seq - query), sinks[head]);
      }
      if (sinks != nullptr) d_sinks[batch * shape.heads + head] = d_sink;
    }
    unpack_rows(l.keys, l.dim, w.d_keys, l.padded_dim, l.scale, d.keys_values + key, l.kv_stride,
                d.accumulate);
    unpack_rows(l.keys, l.dim, w.d_values, l.padded_dim, 1.0F, d.keys_values + value, l.kv_stride,
                d.accumulate);
  });
}

template <Storage S, Storage D>
void backward_of(const AttentionShape& shape, const AttentionLayout& l, const S* d_o, const S* qkv,
                 const S* keys_values, const S* o, const float* lse, const Gradient<D>& d, void* scratch,
                 const float* sinks = nullptr, float* d_sinks = nullptr) {
  check_attention(shape);
  with_elements<S>(l.dim, [&]<TileElement E>(E) {
    backward<E>(shape, l, d_o, qkv, keys_values, o, lse, d, scratch, sinks, d_sinks);
  });
}

}  // namespace

std::size_t attention_backward_scratch_bytes(const AttentionShape& shape) {
  check_attention(shape);
  return static_cast<std::size_t>(thread_count() * Workspace<float>::floats(AttentionLayout(shape))) *
         sizeof(float);
}

template <Storage S>
void attention_backward(const AttentionShape& shape, const S* d_o, const S* qkv, const S* o, const float* lse,
                        S* d_qkv, void* scratch, const float* sinks, float* d_sinks) {
  const AttentionLayout l(shape);
  backward_of(shape, l, d_o, qkv, qkv, o, lse, Gradient<S>{d_qkv, l.qkv_stride, d_qkv, false}, scratch, sinks,
              d_sinks);
}
template void attention_backward(const AttentionShape&, const float*, const float*, const float*,
                                 const float*, float*, void*, const float*, float*);
template void attention_backward(const AttentionShape&, const core::Bf16*, const core::Bf16*,
                                 const core::Bf16*, const float*, core::Bf16*, void*, const float*, float*);

template <Storage S>
void attention_block_backward(const AttentionShape& shape, const S* d_o, const S* qkv, const S* keys_values,
                              const S* o, const float* lse, float* d_q, float* d_keys_values, void* scratch) {
  const AttentionLayout l(shape, KeyRows::apart);
  backward_of(shape, l, d_o, qkv, keys_values, o, lse, sums(l, d_q, d_keys_values), scratch);
}
template void attention_block_backward(const AttentionShape&, const float*, const float*, const float*,
                                       const float*, const float*, float*, float*, void*);
template void attention_block_backward(const AttentionShape&, const core::Bf16*, const core::Bf16*,
                                       const core::Bf16*, const core::Bf16*, const float*, float*, float*,
                                       void*);

}  // namespace rooflm::backends::cpu

namespace rooflm::backends::cpu::fast {
namespace {

/// to [H] (+)= the sum over the batch of parts [B, H].
void add_batch(const std::vector<float>& parts, std::int64_t heads, bool accumulates, float* to) {
  if (!accumulates) std::fill_n(to, heads, 0.0F);
  for (std::size_t i = 0; i < parts.size(); ++i) to[static_cast<std::int64_t>(i) % heads] += parts[i];
}

}  // namespace

/// Inputs: dy, qkv, y, lse [, sinks].
Kernel make_flash_attention_backward(const OpView& v) {
  if (has_reference_scores(v)) return {};
  const DType dtype = v.in(0).dtype;
  if (!v.inputs_are({1, 2}, dtype) || !v.inputs_are({3}, DType::f32) || !v.outputs_are({0}, dtype)) {
    return {};
  }
  const bool has_sinks = v.has_in(4);
  if (has_sinks && !(v.inputs_are({4}, DType::f32) && v.outputs_are({1}, DType::f32))) return {};
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    const AttentionShape shape = attention_shape(v, v.in(1).shape);
    const std::size_t scratch_bytes = attention_backward_scratch_bytes(shape);
    v.context->scratch().reserve(scratch_bytes);
    const auto parts = has_sinks ? std::make_shared<std::vector<float>>(shape.batch * shape.heads) : nullptr;
    const auto run = [shape, parts, accumulates = v.accumulates(),
                      resources = v.context](const KernelArgs& args) {
      attention_backward(shape, static_cast<const S*>(args.in[0]), static_cast<const S*>(args.in[1]),
                         static_cast<const S*>(args.in[2]), static_cast<const float*>(args.in[3]),
                         static_cast<S*>(args.out[0]), resources->scratch().data(),
                         parts ? static_cast<const float*>(args.in[4]) : nullptr,
                         parts ? parts->data() : nullptr);
      if (parts) add_batch(*parts, shape.heads, accumulates, static_cast<float*>(args.out[1]));
    };
    return {run, {.workspace_bytes = static_cast<std::int64_t>(scratch_bytes)}};
  });
}

/// Inputs: dy, qkv, keys_values, y, lse [, dq, d_keys_values to accumulate into].
Kernel make_attention_block_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!program::beyond_plain(v.op).empty()) return {};
  if (!v.inputs_are({1, 2, 3}, dtype) || !v.inputs_are({4}, DType::f32) || !v.outputs_are({0, 1}, DType::f32))
    return {};
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    const AttentionShape shape = block_shape(v, v.in(1).shape);
    const std::size_t scratch_bytes = attention_backward_scratch_bytes(shape);
    v.context->scratch().reserve(scratch_bytes);
    const auto run = [shape, begins = !v.has_in(5), dq = v.out(0).shape.numel(), dkv = v.out(1).shape.numel(),
                      resources = v.context](const KernelArgs& args) {
      auto* const d_q = static_cast<float*>(args.out[0]);
      auto* const d_keys_values = static_cast<float*>(args.out[1]);
      if (begins) {
        fill(dq, 0.0F, d_q);
        fill(dkv, 0.0F, d_keys_values);
      }
      attention_block_backward(shape, static_cast<const S*>(args.in[0]), static_cast<const S*>(args.in[1]),
                               static_cast<const S*>(args.in[2]), static_cast<const S*>(args.in[3]),
                               static_cast<const float*>(args.in[4]), d_q, d_keys_values,
                               resources->scratch().data());
    };
    return {run, {.workspace_bytes = static_cast<std::int64_t>(scratch_bytes)}};
  });
}

MakerRows attention_backward_rows() {
  namespace ops = program::ops;
  return {{&ops::kFlashAttentionBackward, make_flash_attention_backward, "attention_backward"},
          {&ops::kAttentionBlockBackward, make_attention_block_backward, "attention_block_backward"}};
}

}  // namespace rooflm::backends::cpu::fast
