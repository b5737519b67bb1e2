// Caches of latent attention: append_latents, decode_latent_attention (program/ops/latent_cache.cpp).
#include <cmath>
#include <memory>

#include "backends/cpu/reference/arrays.h"
#include "backends/cpu/reference/multiply.h"
#include "backends/cpu/reference/operand.h"
#include "backends/cpu/token_ids.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {
namespace {

using Index = std::int64_t;
/// Heads that one thread computes together, and cached rows that it reads at a time.
constexpr Index kHeads = 8;
constexpr Index kRows = 64;

/// to[at] = from[from_at], one row.
template <class C>
void copy_row(const Operand<C>& from, const void* base, Index from_at, Index count, const Operand<C>& to,
              void* to_base, Index at) {
  const C* row = from.read(base, from_at, count);
  to.write(to_base, at, count, [&](C* values) { std::copy_n(row, count, values); });
}

struct Extents {
  Index batch, heads, qk_dim, v_dim, rank, rotary, positions;
  double scale;
  explicit Extents(const OpView& v)
      : batch(v.in(0).shape[0]),
        heads(v.integer("heads")),
        qk_dim(v.integer("qk_dim")),
        v_dim(v.integer("v_dim")),
        rank(v.in(1).shape[2]),
        rotary(v.in(2).shape[2]),
        positions(v.in(5).shape[2]),
        scale(v.op.attrs.has("scale") ? v.op.attrs.number("scale")
                                      : 1 / std::sqrt(static_cast<double>(qk_dim))) {}
  [[nodiscard]] Index plain() const { return qk_dim - rotary; }
  [[nodiscard]] Index width() const { return rank + rotary; }  ///< of a cached row
  [[nodiscard]] Index blocks() const { return (heads + kHeads - 1) / kHeads; }
};

/// One thread's matrices, row-major.
template <class C>
struct Workspace {
  std::shared_ptr<C[]> queries, rows, scores,
      sums;  // [kHeads, R + Dr], [kRows, R + Dr], [kHeads, P], [kHeads, R]
  explicit Workspace(const Extents& e)
      : queries(aligned_array<C>(kHeads * e.width())),
        rows(aligned_array<C>(kRows * e.width())),
        scores(aligned_array<C>(kHeads * e.positions)),
        sums(aligned_array<C>(kHeads * e.rank)) {}
};

template <class C>
struct Decode {
  Extents e;
  Operand<C> q, w, latents, keys, y;

  /// Calls body(first row, rows) for the cached rows [0, count) of a text, read to the workspace.
  template <class Body>
  void for_cached(Index b, Index count, const Workspace<C>& space, const KernelArgs& args,
                  Body&& body) const {
    for (Index first = 0; first < count; first += kRows) {
      const Index rows = std::min(kRows, count - first);
      for (Index i = 0; i < rows; ++i) {
        const Index at = b * e.positions + first + i;
        C* to = space.rows.get() + i * e.width();
        std::copy_n(latents.read(args.out[1], at * e.rank, e.rank), e.rank, to);
        std::copy_n(keys.read(args.out[2], at * e.rotary, e.rotary), e.rotary, to + e.rank);
      }
      body(first, rows);
    }
  }

  /// Heads [head, head + count) of a text with cached rows 0 .. position.
  void attend(Index b, Index head, Index count, Index position, const Workspace<C>& space,
              const KernelArgs& args) const {
    const Index seen = position + 1;
    for (Index h = 0; h < count; ++h) absorb(b, head + h, space.queries.get() + h * e.width(), args);
    for_cached(b, seen, space, args, [&](Index first, Index rows) {
      multiply<C>(count, rows, e.width(), {space.queries.get(), e.width()},
                  {space.rows.get(), e.width(), true}, {space.scores.get() + first, e.positions});
    });
    for (Index h = 0; h < count; ++h) {
      auto p = array(space.scores.get() + h * e.positions, seen);
      p = (static_cast<C>(e.scale) * (p - p.maxCoeff())).exp();
      p *= static_cast<C>(1 / sum(space.scores.get() + h * e.positions, seen));
    }
    for_cached(b, seen, space, args, [&](Index first, Index rows) {
      multiply<C>(count, e.rank, rows, {space.scores.get() + first, e.positions},
                  {space.rows.get(), e.width()}, {space.sums.get(), e.rank}, first > 0);
    });
    for (Index h = 0; h < count; ++h) expand(b, head + h, space.sums.get() + h * e.rank, args);
  }

 private:
  [[nodiscard]] Index row_of(Index head) const { return head * (e.plain() + e.v_dim); }

  /// to [R + Dr] = (q_plain Wk, q_rotary)
  void absorb(Index b, Index head, C* to, const KernelArgs& args) const {
    const C* query = q.read(args.in[0], (b * e.heads + head) * e.qk_dim, e.qk_dim);
    array(to, e.rank).setZero();
    for (Index i = 0; i < e.plain(); ++i)
      array(to, e.rank) += query[i] * array(w.read(args.in[4], (row_of(head) + i) * e.rank, e.rank), e.rank);
    std::copy_n(query + e.plain(), e.rotary, to + e.rank);
  }
  /// y = Wv sums
  void expand(Index b, Index head, const C* sums, const KernelArgs& args) const {
    y.write(args.out[0], (b * e.heads + head) * e.v_dim, e.v_dim, [&](C* to) {
      for (Index i = 0; i < e.v_dim; ++i) {
        const Index row = row_of(head) + e.plain() + i;
        to[i] = static_cast<C>(dot(sums, w.read(args.in[4], row * e.rank, e.rank), e.rank));
      }
    });
  }
};

}  // namespace

/// Inputs: latent, rotary, latents, keys; with slots between. Outputs: latents, keys.
Kernel make_append_latents(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const bool has_slots = v.op.inputs.size() == 5;
    const Index batch = v.in(0).shape[0], seq = v.in(0).shape[1];
    const Index places = v.out(0).shape[0], positions = v.out(0).shape[2];
    const Index widths[] = {v.in(0).shape[2], v.in(1).shape[2]};
    return [=, from0 = in_operand<C>(v, 0, widths[0]), from1 = in_operand<C>(v, 1, widths[1]),
            to0 = out_operand<C>(v, 0, widths[0]),
            to1 = out_operand<C>(v, 1, widths[1])](const KernelArgs& args) {
      const std::int32_t* slots = has_slots ? checked_first(args.in[2], batch, 1, places) : nullptr;
      for_rows(batch * seq, [&](Index row) {
        const Index at = (slots == nullptr ? row / seq : slots[row / seq]) * positions + row % seq;
        copy_row(from0, args.in[0], row * widths[0], widths[0], to0, args.out[0], at * widths[0]);
        copy_row(from1, args.in[1], row * widths[1], widths[1], to1, args.out[1], at * widths[1]);
      });
    };
  });
}

/// Inputs: q, latent, rotary, first, w, latents, keys. Outputs: y, latents, keys.
Kernel make_decode_latent_attention(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const Extents e(v);
    const Decode<C> decode{e,
                           in_operand<C>(v, 0, e.qk_dim),
                           in_operand<C>(v, 4, e.rank),
                           out_operand<C>(v, 1, e.rank),
                           out_operand<C>(v, 2, e.rotary),
                           out_operand<C>(v, 0, e.v_dim)};
    const auto spaces = std::make_shared<std::vector<Workspace<C>>>();
    for (int i = 0; i < v.context->threads(); ++i) spaces->emplace_back(e);
    return [=, latent = in_operand<C>(v, 1, e.rank),
            rotary = in_operand<C>(v, 2, e.rotary)](const KernelArgs& args) {
      const std::int32_t* first = checked_first(args.in[3], e.batch, 1, e.positions);
      for (Index b = 0; b < e.batch; ++b) {
        const Index at = b * e.positions + first[b];
        copy_row(latent, args.in[1], b * e.rank, e.rank, decode.latents, args.out[1], at * e.rank);
        copy_row(rotary, args.in[2], b * e.rotary, e.rotary, decode.keys, args.out[2], at * e.rotary);
      }
      for_rows(e.batch * e.blocks(), [&](Index task) {
        const Index b = task / e.blocks();
        const Index head = task % e.blocks() * kHeads;
        decode.attend(b, head, std::min(kHeads, e.heads - head), first[b],
                      (*spaces)[static_cast<std::size_t>(omp_get_thread_num())], args);
      });
    };
  });
}

MakerRows latent_cache_rows() {
  namespace ops = program::ops;
  return {{&ops::kAppendLatents, make_append_latents, "reference::append_latents"},
          {&ops::kDecodeLatentAttention, make_decode_latent_attention, "reference::decode_latent_attention"}};
}

}  // namespace rooflm::backends::cpu::reference
