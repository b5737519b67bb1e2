// Decode attention: one new query row per text against its key/value cache, or any rows of texts against keys
// and values in blocks. Many rows of one text that follow each other, a part of a prompt, are tiles of flash
// attention.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <memory>
#include <vector>

#include "backends/cpu/cache_table.h"
#include "backends/cpu/fast/attention_query_tile.h"
#include "backends/cpu/fast/maker.h"
#include "backends/cpu/fast/parallel.h"
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

/// to [D] = to * rescale + the sum of p[t] values[t] over `count` rows, in their order.
template <Storage S>
void add_rows(const float* p, const S* values, std::int64_t dim, std::int64_t count, float rescale,
              float* to) {
  constexpr std::int64_t kSums = 4;  // vectors that are kept in registers
  std::int64_t j = 0;
  for (; j + kSums * kLanes <= dim; j += kSums * kLanes) {
    Floats sums[kSums];
    for (std::int64_t i = 0; i < kSums; ++i) sums[i] = load(to + j + i * kLanes) * rescale;
    for (std::int64_t t = 0; t < count; ++t) {
      const S* row = values + t * dim + j;
      for (std::int64_t i = 0; i < kSums; ++i) sums[i] = fma(splat(p[t]), load(row + i * kLanes), sums[i]);
    }
    for (std::int64_t i = 0; i < kSums; ++i) store(to + j + i * kLanes, sums[i]);
  }
  for_lanes(j, dim, [&](auto k, auto n) {
    Floats sum = load_at(to + k, n) * rescale;
    for (std::int64_t t = 0; t < count; ++t) sum = fma(splat(p[t]), load_at(values + t * dim + k, n), sum);
    store_at(to + k, sum, n);
  });
}

/// State of one query head during the pass over its keys.
struct Head {
  float* q;       // [D], times log2(e) scale
  float* output;  // [D]
  float top, sum;
  float slope;  // of ALiBi, times log2(e)
};

/// Products become scores, in units of log2; the first is of a key `distance` before the query.
void shape_products(float cap, float slope, std::int64_t distance, std::int64_t count, float* p) {
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
    shape_products(static_cast<float>(e.scores.cap), head.slope, distance, count, p);
  const float top = std::max(head.top, *std::max_element(p, p + count));
  const float rescale = std::exp2(head.top - top);
  head.top = top;
  head.sum *= rescale;
  for_lanes(0, count, [&](auto t, auto n) {
    const Floats shares = exp2_nonpositive<float, Floats>(load_at(p + t, n) - top);
    store_at(p + t, shares, n);
    head.sum += sum_lanes(pad_at(shares, n, 0));
  });
  add_rows(p, values, dim, count, rescale, head.output);
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

/// Rows of the op that are computed together: [row, row + count), of one text at positions that follow each
/// other within a tile of queries; or a single row.
struct RowTile {
  std::int64_t row, count;
};

/// From so many rows on a tile is faster than its rows.
constexpr std::int64_t kFewestRows = 8;

/// The tiles of all rows, at the positions `first`.
void find_tiles(const CacheTable& table, const std::int32_t* first, const std::int32_t* blocks,
                std::int64_t rows, std::vector<RowTile>& tiles) {
  // Whether row n is of the text of the row before it, one position on.
  const auto follows = [&](std::int64_t n) {
    const std::int32_t* own = blocks + n * table.width;
    const std::int64_t held = first[n - 1] / table.block + 1;
    return first[n] == first[n - 1] + 1 && first[n] % kQ != 0 &&
           std::equal(own - table.width, own - table.width + held, own);
  };
  tiles.clear();
  for (std::int64_t row = 0; row < rows;) {
    std::int64_t count = 1;
    while (blocks != nullptr && row + count < rows && follows(row + count)) ++count;
    const std::int64_t together = count < kFewestRows ? 1 : count;
    for (const std::int64_t end = row + count; row < end; row += together) tiles.push_back({row, together});
  }
}

/// A thread's rows of a tile as query_tile takes them: each [64, D], apart from each other.
template <Storage S>
struct TileRows {
  TileRows(void* memory, std::int64_t dim)
      : q(static_cast<S*>(memory)), o(q + kQ * dim), k(o + kQ * dim), v(k + kC * dim) {}
  static std::int64_t floats(std::int64_t dim) { return 2 * (kQ + kC) * dim; }
  S *q, *o, *k, *v;
};

/// All query heads of one key/value head of a tile of rows, the first at `position`. As decode_head, `l` with
/// rows of D.
template <TileElement E, Storage S, class RunAt>
void attend_tile(const AttentionLayout& l, std::int64_t kv_head, std::int64_t position, std::int64_t count,
                 const S* qkv, std::int64_t qkv_stride, RunAt run_at, S* y, const float* sinks,
                 const TileRows<S>& rows, const Workspace<E>& w) {
  const std::int64_t query = position / kQ * kQ;
  const std::int64_t lead = position - query;  // queries of the tile that are not here: zeros
  const auto bytes = [&](std::int64_t n) { return static_cast<std::size_t>(n * l.dim) * sizeof(S); };
  const auto keys_at = [&](std::int64_t key, std::int64_t keys) {
    for (std::int64_t t = 0; t < keys;) {
      const Run<S> run = run_at(key + t);
      if (t == 0 && run.count >= keys) return KeysOf<S>{run.k, run.v, l.dim};
      const std::int64_t some = std::min(run.count, keys - t);
      std::memcpy(static_cast<void*>(rows.k + t * l.dim), run.k, bytes(some));
      std::memcpy(static_cast<void*>(rows.v + t * l.dim), run.v, bytes(some));
      t += some;
    }
    return KeysOf<S>{rows.k, rows.v, l.dim};
  };
  for (std::int64_t head = kv_head * l.group; head < (kv_head + 1) * l.group; ++head) {
    std::memset(static_cast<void*>(rows.q), 0, bytes(lead));
    for (std::int64_t i = 0; i < count; ++i)
      std::memcpy(static_cast<void*>(rows.q + (lead + i) * l.dim), qkv + i * qkv_stride + head * l.dim,
                  bytes(1));
    query_tile(l, ScoreForm(l, head), query, lead + count, rows.q, keys_at, rows.o, nullptr,
               sinks == nullptr ? nullptr : sinks + head, w);
    for (std::int64_t i = 0; i < count; ++i)
      std::memcpy(static_cast<void*>(y + (i * l.heads + head) * l.dim), rows.o + (lead + i) * l.dim,
                  bytes(1));
  }
}

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
    AttentionLayout l(attention_shape(view, view.in(0).shape));
    l.qkv_stride = l.o_stride = e.dim;
    // Of each thread: of single rows two vectors per head, or what a tile needs.
    const std::int64_t of_rows = (2 * e.heads / e.kv_heads * e.dim + kLanes - 1) / kLanes * kLanes;
    const std::int64_t of_tile =
        table.is_paged() ? Workspace<float>::floats(l) + TileRows<S>::floats(e.dim) : 0;
    const std::int64_t floats = std::max(of_rows, of_tile);
    auto& scratch = view.context->scratch();
    const auto scratch_bytes = static_cast<std::size_t>(floats * view.context->threads()) * sizeof(float);
    scratch.reserve(scratch_bytes);
    const auto tiles = std::make_shared<std::vector<RowTile>>();
    tiles->reserve(static_cast<std::size_t>(e.batch));
    const auto run = [=, &scratch, has_sinks = view.has_in(sinks_in)](const KernelArgs& args) {
      const auto* qkv = static_cast<const S*>(args.in[0]);
      const std::int32_t* first = checked_first(args.in[1], e.batch, 1, table.positions());
      const std::int32_t* blocks = table.checked(args, first, e.batch);
      auto* y = static_cast<S*>(args.out[0]);
      auto* k = static_cast<S*>(args.out[1]);
      auto* v = static_cast<S*>(args.out[2]);
      const auto* sinks = has_sinks ? static_cast<const float*>(args.in[sinks_in]) : nullptr;
      auto* memory = reinterpret_cast<float*>(scratch.data());
      const auto append = [&](std::int64_t row, std::int64_t head) {
        const std::int64_t to = table.place(blocks, row, head, first[row]) * e.dim;
        write_row(e, head, qkv + row * e.width(), k + to, v + to);
      };
      // Rows of one text read what the others write.
      const bool is_shared = blocks != nullptr;
      if (is_shared) {
        parallel_tasks(e.batch * e.kv_heads, [&](std::int64_t task, int /*worker*/) {
          append(task / e.kv_heads, task % e.kv_heads);
        });
      }
      find_tiles(table, first, blocks, e.batch, *tiles);
      parallel_tasks(std::ssize(*tiles) * e.kv_heads, [&](std::int64_t task, int worker) {
        const auto [row, count] = (*tiles)[static_cast<std::size_t>(task / e.kv_heads)];
        const std::int64_t head = task % e.kv_heads;
        if (!is_shared) append(row, head);
        // Of a tile, as its last row has them: blocks of earlier rows may end before.
        const auto run_at = [&, last = row + count - 1](std::int64_t t) {
          const std::int64_t from = table.place(blocks, last, head, t) * e.dim;
          return Run<S>{k + from, v + from, table.block - t % table.block};
        };
        const S* of_row = qkv + row * e.width();
        S* to = y + row * e.heads * e.dim;
        float* work = memory + worker * floats;
        if (count == 1) return decode_head(e, head, first[row], of_row, run_at, to, sinks, work);
        const TileRows<S> rows(work + Workspace<float>::floats(l), e.dim);
        with_elements<S>(e.dim, [&, row = row, count = count]<TileElement E>(E) {
          attend_tile(l, head, first[row], count, of_row, e.width(), run_at, to, sinks, rows,
                      Workspace<E>(work, l, 0));
        });
      });
    };
    return {run, {.workspace_bytes = static_cast<std::int64_t>(scratch_bytes)}};
  });
}

MakerRows decode_attention_rows() {
  namespace ops = program::ops;
  return {{&ops::kDecodeAttention, make_decode_attention, "decode_attention"},
          {&ops::kPagedAttention, make_decode_attention, "paged_attention"}};
}

}  // namespace rooflm::backends::cpu::fast
