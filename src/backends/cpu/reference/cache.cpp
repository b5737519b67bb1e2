// Key/value caches: append_cache, decode_attention, paged_attention, last_rows, pick_rows
// (program/ops/cache.cpp).
#include <cmath>
#include <memory>

#include "backends/cpu/cache_table.h"
#include "backends/cpu/reference/arrays.h"
#include "backends/cpu/reference/operand.h"
#include "backends/cpu/reference/scores.h"
#include "backends/cpu/token_ids.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {
namespace {

using Index = std::int64_t;

struct Extents {
  Index batch, seq, heads, kv_heads, dim, positions;
  Extents(const OpView& v, Index p)
      : batch(v.in(0).shape[0]),
        seq(v.in(0).shape[1]),
        heads(v.integer("heads")),
        kv_heads(v.integer("kv_heads")),
        dim(v.integer("head_dim")),
        positions(p) {}
  /// Stride of the threads' scores; each begins at an aligned boundary (aligned_array).
  [[nodiscard]] Index score_stride() const { return (positions + 15) / 16 * 16; }
  /// Offset in qkv of row t of head h, counting query, then key, then value heads.
  [[nodiscard]] Index qkv_at(Index b, Index t, Index h) const {
    return ((b * seq + t) * (heads + 2 * kv_heads) + h) * dim;
  }
  /// Offset in a cache [B, K, P, D].
  [[nodiscard]] Index cache_at(Index b, Index head, Index position) const {
    return ((b * kv_heads + head) * positions + position) * dim;
  }
};

/// Copies one row: to[at] = from[from_at].
template <class C>
void copy_row(const Operand<C>& from, const void* base, Index from_at, Index count, const Operand<C>& to,
              void* to_base, Index at) {
  const C* row = from.read(base, from_at, count);
  to.write(to_base, at, count, [&](C* values) { std::copy_n(row, count, values); });
}

template <class C>
struct Decode {
  Extents e;
  CacheTable table;
  Operand<C> qkv, y, k, v;
  ScoreRows<C> score;
  Sinks<C> sinks;
  std::shared_ptr<C[]> scores;  // [threads, P rounded up]

  /// The row of one head's caches at `position` becomes that of qkv.
  void append(const KernelArgs& args, const std::int32_t* blocks, Index b, Index head, Index position) const {
    const Index at = table.place(blocks, b, head, position) * e.dim;
    copy_row(qkv, args.in[0], e.qkv_at(b, 0, e.heads + head), e.dim, k, args.out[1], at);
    copy_row(qkv, args.in[0], e.qkv_at(b, 0, e.heads + e.kv_heads + head), e.dim, v, args.out[2], at);
  }

  /// softmax(q k^T / sqrt(D)) v over rows up to `position`.
  void attend(const KernelArgs& args, const std::int32_t* blocks, Index b, Index h, Index position) const {
    const Index first = score.rule.first_key(position);
    const Index keys = position + 1 - first;
    const Index head = h / (e.heads / e.kv_heads);
    const auto at = [&](Index t) { return table.place(blocks, b, head, first + t) * e.dim; };
    C* p = scores.get() + omp_get_thread_num() * e.score_stride();
    const C* q = qkv.read(args.in[0], e.qkv_at(b, 0, h), e.dim);
    for (Index t = 0; t < keys; ++t) p[t] = static_cast<C>(dot(q, k.read(args.out[1], at(t), e.dim), e.dim));
    score.apply(h, position, first, keys, p);
    const C scale = score.factor();
    C greatest = array(p, keys).maxCoeff();
    if (sinks) greatest = std::max(greatest, sinks.of_head(args, h) / scale);
    array(p, keys) = (scale * (array(p, keys) - greatest)).exp();
    double total = sum(p, keys);
    if (sinks) total += std::exp(static_cast<double>(sinks.of_head(args, h) - scale * greatest));
    array(p, keys) *= static_cast<C>(1 / total);
    y.write(args.out[0], (b * e.heads + h) * e.dim, e.dim, [&](C* to) {
      std::fill_n(to, e.dim, C(0));
      for (Index t = 0; t < keys; ++t)
        array(to, e.dim) += p[t] * array(v.read(args.out[2], at(t), e.dim), e.dim);
    });
  }
};

}  // namespace

/// Inputs: qkv, k, v; with slots between. Outputs: k, v.
Kernel make_append_cache(const OpView& view) {
  return with_compute_type(view, [&]<class C>(C) -> Kernel {
    const core::Shape& cache = view.out(0).shape;
    const Extents e(view, cache[2]);
    const bool has_slots = view.op.inputs.size() == 4;
    return [e, has_slots, places = cache[0], qkv = in_operand<C>(view, 0, e.dim),
            k = out_operand<C>(view, 0, e.dim), v = out_operand<C>(view, 1, e.dim)](const KernelArgs& args) {
      const std::int32_t* slots = has_slots ? checked_first(args.in[1], e.batch, 1, places) : nullptr;
      for_rows(e.batch * e.kv_heads, [&](Index task) {
        const Index b = task / e.kv_heads;
        const Index head = task % e.kv_heads;
        for (Index t = 0; t < e.seq; ++t) {
          const Index at = e.cache_at(slots == nullptr ? b : slots[b], head, t);
          copy_row(qkv, args.in[0], e.qkv_at(b, t, e.heads + head), e.dim, k, args.out[0], at);
          copy_row(qkv, args.in[0], e.qkv_at(b, t, e.heads + e.kv_heads + head), e.dim, v, args.out[1], at);
        }
      });
    };
  });
}

/// Of decode_attention and paged_attention. Inputs: qkv, first [, blocks], k, v [, sinks]. Outputs: y, k, v.
Kernel make_decode_attention(const OpView& view) {
  return with_compute_type(view, [&]<class C>(C) -> Kernel {
    const CacheTable table(view);
    const Extents e(view, table.positions());
    const Decode<C> decode{.e = e,
                           .table = table,
                           .qkv = in_operand<C>(view, 0, e.dim),
                           .y = out_operand<C>(view, 0, e.dim),
                           .k = out_operand<C>(view, 1, e.dim),
                           .v = out_operand<C>(view, 2, e.dim),
                           .score = {program::Scores::of(view.op.attrs), e.heads},
                           .sinks = Sinks<C>::of(view, table.keys + 2),
                           .scores = aligned_array<C>(view.context->threads() * e.score_stride())};
    return [decode, e](const KernelArgs& args) {
      const std::int32_t* first = checked_first(args.in[1], e.batch, 1, e.positions);
      const std::int32_t* blocks = decode.table.checked(args, first, e.batch);
      for_rows(e.batch * e.kv_heads, [&](Index task) {
        const Index b = task / e.kv_heads;
        decode.append(args, blocks, b, task % e.kv_heads, first[b]);
      });
      for_rows(e.batch * e.heads, [&](Index task) {
        const Index b = task / e.heads;
        decode.attend(args, blocks, b, task % e.heads, first[b]);
      });
    };
  });
}

/// Inputs: x, lengths.
Kernel make_last_rows(const OpView& view) {
  return with_compute_type(view, [&]<class C>(C) -> Kernel {
    const core::Shape& x = view.in(0).shape;
    const Index batch = x[0];
    const Index seq = x[1];
    const Index cols = x[2];
    return
        [=, from = in_operand<C>(view, 0, cols), to = out_operand<C>(view, 0, cols)](const KernelArgs& args) {
          const auto* lengths = static_cast<const std::int32_t*>(args.in[1]);
          for_rows(batch, [&](Index b) {
            const Index last = std::clamp<Index>(lengths[b], 1, seq) - 1;
            copy_row(from, args.in[0], (b * seq + last) * cols, cols, to, args.out[0], b * cols);
          });
        };
  });
}

/// Inputs: x, rows.
Kernel make_pick_rows(const OpView& view) {
  return with_compute_type(view, [&]<class C>(C) -> Kernel {
    const Index rows = view.in(0).shape[0];
    const Index cols = view.in(0).shape[2];
    const Index picked = view.out(0).shape[0];
    return
        [=, from = in_operand<C>(view, 0, cols), to = out_operand<C>(view, 0, cols)](const KernelArgs& args) {
          const std::int32_t* numbers = checked_first(args.in[1], picked, 1, rows);
          for_rows(picked, [&](Index r) {
            copy_row(from, args.in[0], numbers[r] * cols, cols, to, args.out[0], r * cols);
          });
        };
  });
}

MakerRows cache_rows() {
  namespace ops = program::ops;
  return {{&ops::kAppendCache, make_append_cache, "reference::append_cache"},
          {&ops::kDecodeAttention, make_decode_attention, "reference::decode_attention"},
          {&ops::kPagedAttention, make_decode_attention, "reference::paged_attention"},
          {&ops::kLastRows, make_last_rows, "reference::last_rows"},
          {&ops::kPickRows, make_pick_rows, "reference::pick_rows"}};
}

}  // namespace rooflm::backends::cpu::reference
