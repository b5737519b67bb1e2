// Key/value caches: append_cache, decode_attention, last_rows (program/ops/cache.cpp).
#include <cmath>
#include <memory>

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
  Extents(const OpView& v, const core::Shape& cache)
      : batch(v.in(0).shape[0]),
        seq(v.in(0).shape[1]),
        heads(v.integer("heads")),
        kv_heads(v.integer("kv_heads")),
        dim(v.integer("head_dim")),
        positions(cache[2]) {}
  /// Stride of the threads' scores; each begins at an aligned boundary (aligned_array).
  [[nodiscard]] Index score_stride() const { return (positions + 15) / 16 * 16; }
  [[nodiscard]] Index group() const { return heads / kv_heads; }
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
  Operand<C> qkv, y, k, v;
  ScoreRows<C> score;
  Sinks<C> sinks;
  std::shared_ptr<C[]> scores;  // [threads, P rounded up]

  /// Row `position` of one head's caches becomes that of qkv.
  void append(Index b, Index head, Index position, const KernelArgs& args) const {
    const Index at = e.cache_at(b, head, position);
    copy_row(qkv, args.in[0], e.qkv_at(b, 0, e.heads + head), e.dim, k, args.out[1], at);
    copy_row(qkv, args.in[0], e.qkv_at(b, 0, e.heads + e.kv_heads + head), e.dim, v, args.out[2], at);
  }

  /// softmax(q k^T / sqrt(D)) v over rows up to `position`.
  void attend(Index b, Index h, Index position, const KernelArgs& args) const {
    const Index first = score.rule.first_key(position);
    const Index keys = position + 1 - first;
    const Index head = h / e.group();
    C* p = scores.get() + omp_get_thread_num() * e.score_stride();
    const C* q = qkv.read(args.in[0], e.qkv_at(b, 0, h), e.dim);
    for (Index t = 0; t < keys; ++t)
      p[t] = static_cast<C>(dot(q, k.read(args.out[1], e.cache_at(b, head, first + t), e.dim), e.dim));
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
        array(to, e.dim) += p[t] * array(v.read(args.out[2], e.cache_at(b, head, first + t), e.dim), e.dim);
    });
  }
};

}  // namespace

/// Inputs: qkv, k, v; with slots between. Outputs: k, v.
Kernel make_append_cache(const OpView& view) {
  return with_compute_type(view, [&]<class C>(C) -> Kernel {
    const core::Shape& cache = view.out(0).shape;
    const Extents e(view, cache);
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

/// Inputs: qkv, first, k, v [, sinks]. Outputs: y, k, v. One thread computes all query heads of a key/value
/// head.
Kernel make_decode_attention(const OpView& view) {
  return with_compute_type(view, [&]<class C>(C) -> Kernel {
    const Extents e(view, view.in(2).shape);
    const Decode<C> decode{.e = e,
                           .qkv = in_operand<C>(view, 0, e.dim),
                           .y = out_operand<C>(view, 0, e.dim),
                           .k = out_operand<C>(view, 1, e.dim),
                           .v = out_operand<C>(view, 2, e.dim),
                           .score = {program::Scores::of(view.op.attrs), e.heads},
                           .sinks = Sinks<C>::of(view, 4),
                           .scores = aligned_array<C>(view.context->threads() * e.score_stride())};
    return [decode, e](const KernelArgs& args) {
      const std::int32_t* first = checked_first(args.in[1], e.batch, 1, e.positions);
      for_rows(e.batch * e.kv_heads, [&](Index task) {
        const Index b = task / e.kv_heads;
        const Index head = task % e.kv_heads;
        decode.append(b, head, first[b], args);
        for (Index h = head * e.group(); h < (head + 1) * e.group(); ++h) decode.attend(b, h, first[b], args);
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

MakerRows cache_rows() {
  namespace ops = program::ops;
  return {{&ops::kAppendCache, make_append_cache, "reference::append_cache"},
          {&ops::kDecodeAttention, make_decode_attention, "reference::decode_attention"},
          {&ops::kLastRows, make_last_rows, "reference::last_rows"}};
}

}  // namespace rooflm::backends::cpu::reference
