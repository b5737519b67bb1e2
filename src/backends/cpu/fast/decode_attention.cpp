// Decode attention: one new query row per text against its key/value cache, or any rows of texts against keys
// and values in blocks.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "backends/cpu/cache_table.h"
#include "backends/cpu/fast/maker.h"
#include "backends/cpu/fast/parallel.h"
#include "backends/cpu/fast/vec_math.h"
#include "backends/cpu/token_ids.h"
#include "program/ops.h"
#include "program/scores.h"

namespace rooflm::backends::cpu::fast {
namespace {

struct Extents {
  std::int64_t batch, heads, kv_heads, dim;
  program::Scores scores;
  [[nodiscard]] std::int64_t width() const { return (heads + 2 * kv_heads) * dim; }
};

/// Rows of a cache that are processed while they are in L1.
constexpr std::int64_t kTile = 64;

template <Storage S>
float dot_product(const float* q, const S* k, std::int64_t dim) {
  Floats sum{};
  for_lanes(0, dim,
            [&](auto i, auto count) { sum = fma(load_at(q + i, count), load_at(k + i, count), sum); });
  return sum_lanes(sum);
}

/// to += p * row
template <Storage S>
void add_row(float p, const S* row, std::int64_t dim, float* to) {
  for_lanes(0, dim, [&](auto i, auto count) {
    store_at(to + i, fma(splat(p), load_at(row + i, count), load_at(to + i, count)), count);
  });
}

/// State of one query head during the pass over its keys.
struct Head {
  float* q;       // [D], times log2(e) scale
  float* output;  // [D]
  float top, sum;
  float slope;  // of ALiBi, times log2(e)
};

constexpr float kLog2e = 1.44269504F;

/// Products become scores, in units of log2; the first is of a key `distance` before the query.
void shape_scores(float cap, float slope, std::int64_t distance, std::int64_t count, float* p) {
  const float scaled_cap = cap * kLog2e;
  for (std::int64_t t = 0; t < count; ++t) {
    if (cap > 0) p[t] = scaled_cap * std::tanh(p[t] / scaled_cap);
    p[t] -= slope * static_cast<float>(distance - t);
  }
}

/// p = 2^(score - top) for `count` keys, the first one `distance` before the query; rescales the sums so far
/// to the new top.
template <Storage S>
void attend(Head& head, const Extents& e, const S* keys, const S* values, std::int64_t distance,
            std::int64_t count) {
  const std::int64_t dim = e.dim;
  float p[kTile];
  for (std::int64_t t = 0; t < count; ++t) p[t] = dot_product(head.q, keys + t * dim, dim);
  if (e.scores.cap > 0 || e.scores.alibi)
    shape_scores(static_cast<float>(e.scores.cap), head.slope, distance, count, p);
  const float top = std::max(head.top, *std::max_element(p, p + count));
  const float rescale = std::exp2(head.top - top);
  head.top = top;
  head.sum *= rescale;
  for_lanes(0, dim,
            [&](auto i, auto n) { store_at(head.output + i, load_at(head.output + i, n) * rescale, n); });
  for_lanes(0, count, [&](auto t, auto n) {
    const Floats shares = exp2_nonpositive<float, Floats>(load_at(p + t, n) - top);
    store_at(p + t, shares, n);
    head.sum += sum_lanes(pad_at(shares, n, 0));
  });
  for (std::int64_t t = 0; t < count; ++t) add_row(p[t], values + t * dim, dim, head.output);
}

/// Copies the key and the value of one head from a row of qkv.
template <Storage S>
void write_row(const Extents& e, std::int64_t kv_head, const S* qkv, S* k, S* v) {
  const auto row_bytes = static_cast<std::size_t>(e.dim) * sizeof(S);
  const S* new_key = qkv + (e.heads + kv_head) * e.dim;
  std::memcpy(static_cast<void*>(k), new_key, row_bytes);
  std::memcpy(static_cast<void*>(v), new_key + e.kv_heads * e.dim, row_bytes);
}

/// Keys and values of positions that follow each other in memory.
template <Storage S>
struct Run {
  const S *k, *v;
  std::int64_t count;
};

/// All query heads of one key/value head of one row. `qkv`: the row; run_at(t): the head's keys and values
/// from position t on, as many as lie together; y: the row's [H D]; `sinks` [H], or null; `work`: 2 group D
/// floats.
template <Storage S, class RunAt>
void decode_head(const Extents& e, std::int64_t kv_head, std::int64_t position, const S* qkv, RunAt run_at,
                 S* y, const float* sinks, float* work) {
  const std::int64_t group = e.heads / e.kv_heads;
  constexpr float kNothing = -3e38F;
  const float scale = kLog2e * static_cast<float>(e.scores.scale);
  constexpr std::int64_t kMostHeads = 16;
  for (std::int64_t begin = 0; begin < group; begin += kMostHeads) {
    Head heads[kMostHeads];
    const std::int64_t count = std::min(kMostHeads, group - begin);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t head = kv_head * group + begin + i;
      heads[i] = {.q = work + 2 * i * e.dim,
                  .output = work + (2 * i + 1) * e.dim,
                  .top = sinks == nullptr ? kNothing : sinks[head] * kLog2e,
                  .sum = sinks == nullptr ? 0.0F : 1.0F,
                  .slope = static_cast<float>(e.scores.slope(head, e.heads)) * kLog2e};
      const S* q = qkv + head * e.dim;
      for_lanes(0, e.dim, [&](auto j, auto n) {
        store_at(heads[i].q + j, load_at(q + j, n) * scale, n);
        store_at(heads[i].output + j, Floats{}, n);
      });
    }
    for (std::int64_t t = e.scores.first_key(position); t <= position;) {
      const Run<S> run = run_at(t);
      const std::int64_t keys = std::min({kTile, run.count, position + 1 - t});
      for (std::int64_t i = 0; i < count; ++i) attend(heads[i], e, run.k, run.v, position - t, keys);
      t += keys;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      S* to = y + (kv_head * group + begin + i) * e.dim;
      const float share = 1 / heads[i].sum;
      for_lanes(0, e.dim,
                [&](auto j, auto n) { store_at(to + j, load_at(heads[i].output + j, n) * share, n); });
    }
  }
}

}  // namespace

/// Of both ops. Inputs: qkv, first [, blocks], k, v [, sinks]. Outputs: y, k, v.
Kernel make_decode_attention(const OpView& view) {
  if (has_reference_scores(view)) return {};
  const DType dtype = view.in(0).dtype;
  const CacheTable table(view);
  const std::size_t sinks_in = table.keys + 2;
  if (!view.outputs_are({0, 1, 2}, dtype) || !view.inputs_are({sinks_in}, DType::f32)) return {};
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    const Extents e{.batch = view.in(0).shape[0],
                    .heads = view.integer("heads"),
                    .kv_heads = view.integer("kv_heads"),
                    .dim = view.integer("head_dim"),
                    .scores = program::Scores::of(view.op.attrs)};
    const std::int64_t floats = (2 * e.heads / e.kv_heads * e.dim + kLanes - 1) / kLanes * kLanes;
    const auto work =
        std::make_shared<std::vector<float>>(static_cast<std::size_t>(floats * view.context->threads()));
    return [=, has_sinks = view.has_in(sinks_in)](const KernelArgs& args) {
      const auto* qkv = static_cast<const S*>(args.in[0]);
      const std::int32_t* first = checked_first(args.in[1], e.batch, 1, table.positions());
      const std::int32_t* blocks = table.checked(args, first, e.batch);
      auto* y = static_cast<S*>(args.out[0]);
      auto* k = static_cast<S*>(args.out[1]);
      auto* v = static_cast<S*>(args.out[2]);
      const auto* sinks = has_sinks ? static_cast<const float*>(args.in[sinks_in]) : nullptr;
      const std::int64_t tasks = e.batch * e.kv_heads;
      const auto append = [&](std::int64_t row, std::int64_t head) {
        const std::int64_t to = table.place(blocks, row, head, first[row]) * e.dim;
        write_row(e, head, qkv + row * e.width(), k + to, v + to);
      };
      // Rows of one text read what the others write.
      const bool is_shared = blocks != nullptr;
      if (is_shared) {
        parallel_tasks(
            tasks, [&](std::int64_t task, int /*worker*/) { append(task / e.kv_heads, task % e.kv_heads); });
      }
      parallel_tasks(tasks, [&](std::int64_t task, int worker) {
        const std::int64_t row = task / e.kv_heads;
        const std::int64_t head = task % e.kv_heads;
        if (!is_shared) append(row, head);
        const auto run_at = [&](std::int64_t t) {
          const std::int64_t from = table.place(blocks, row, head, t) * e.dim;
          return Run<S>{k + from, v + from, table.block - t % table.block};
        };
        decode_head(e, head, first[row], qkv + row * e.width(), run_at, y + row * e.heads * e.dim, sinks,
                    work->data() + worker * floats);
      });
    };
  });
}

MakerRows decode_attention_rows() {
  namespace ops = program::ops;
  return {{&ops::kDecodeAttention, make_decode_attention, "decode_attention"},
          {&ops::kPagedAttention, make_decode_attention, "paged_attention"}};
}

}  // namespace rooflm::backends::cpu::fast
