// latent_attention and its gradient, query by query (program/ops/latent_attention.cpp).
#include <cmath>
#include <memory>

#include "backends/cpu/reference/arrays.h"
#include "backends/cpu/reference/operand.h"
#include "backends/cpu/reference/scores.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {
namespace {

using Index = std::int64_t;

struct Extents {
  Index batch, seq, heads, qk_dim, v_dim, rotary;
  double scale;
  /// `q`: index of the input q; kv and rotary follow.
  Extents(const OpView& v, std::size_t q)
      : batch(v.in(q).shape[0]),
        seq(v.in(q).shape[1]),
        heads(v.integer("heads")),
        qk_dim(v.integer("qk_dim")),
        v_dim(v.integer("v_dim")),
        rotary(v.in(q + 2).shape[2]),
        scale(v.op.attrs.has("scale") ? v.op.attrs.number("scale")
                                      : 1 / std::sqrt(static_cast<double>(qk_dim))) {}
  [[nodiscard]] Index plain() const { return qk_dim - rotary; }
  /// Row of text b's position t, and in it head h.
  [[nodiscard]] Index row(Index b, Index t) const { return b * seq + t; }
  [[nodiscard]] Index q_at(Index b, Index t, Index h) const { return (row(b, t) * heads + h) * qk_dim; }
  [[nodiscard]] Index y_at(Index b, Index t, Index h) const { return (row(b, t) * heads + h) * v_dim; }
  [[nodiscard]] Index kv_at(Index b, Index t, Index h) const {
    return (row(b, t) * heads + h) * (plain() + v_dim);
  }
};

/// Whether the op has the inputs q, kv and rotary alone, and sees all keys, of a whole text.
bool is_computed(const OpView& v, std::size_t q) {
  return v.op.inputs.size() == q + 3 && !v.op.attrs.has("window") && !v.op.attrs.has("parts");
}

/// Keys [T, Dqk] and values [T, Dv] of one head, and their gradients.
template <class C>
struct Workspace {
  std::shared_ptr<C[]> k, v, dk, dv, p, ds;
  Workspace(const Extents& e, bool backward) {
    k = aligned_array<C>(e.seq * e.qk_dim);
    v = aligned_array<C>(e.seq * e.v_dim);
    p = aligned_array<C>(e.seq);
    if (!backward) return;
    dk = aligned_array<C>(e.seq * e.qk_dim);
    dv = aligned_array<C>(e.seq * e.v_dim);
    ds = aligned_array<C>(e.seq);
  }
};

template <class C>
std::shared_ptr<std::vector<Workspace<C>>> workspaces(const Extents& e, int threads, bool backward) {
  auto made = std::make_shared<std::vector<Workspace<C>>>();
  for (int i = 0; i < threads; ++i) made->emplace_back(e, backward);
  return made;
}

/// Inputs q, kv, rotary, at `first` of an op's inputs.
template <class C>
struct Inputs {
  Extents e;
  std::size_t first;
  Operand<C> q, kv, rotary;
  Inputs(const OpView& v, std::size_t at)
      : e(v, at),
        first(at),
        q(in_operand<C>(v, at, e.qk_dim)),
        kv(in_operand<C>(v, at + 1, e.plain() + e.v_dim)),
        rotary(in_operand<C>(v, at + 2, e.rotary)) {}

  void gather(Index b, Index h, const KernelArgs& args, Workspace<C>& w) const {
    for (Index t = 0; t < e.seq; ++t) {
      const C* row = kv.read(args.in[first + 1], e.kv_at(b, t, h), e.plain() + e.v_dim);
      std::copy_n(row, e.plain(), w.k.get() + t * e.qk_dim);
      std::copy_n(row + e.plain(), e.v_dim, w.v.get() + t * e.v_dim);
      std::copy_n(rotary.read(args.in[first + 2], e.row(b, t) * e.rotary, e.rotary), e.rotary,
                  w.k.get() + t * e.qk_dim + e.plain());
    }
  }
  /// Products of query t with the keys that it sees.
  void products(const C* query, Index t, const Workspace<C>& w) const {
    for (Index j = 0; j <= t; ++j)
      w.p[j] = static_cast<C>(e.scale * dot(query, w.k.get() + j * e.qk_dim, e.qk_dim));
  }
};

}  // namespace

/// Inputs: q, kv, rotary. Outputs: y, lse.
Kernel make_latent_attention(const OpView& v) {
  if (!is_computed(v, 0)) return {};
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const Inputs<C> in(v, 0);
    const Extents e = in.e;
    return [=, y = out_operand<C>(v, 0, e.v_dim), lse = out_operand<C>(v, 1, 1),
            spaces = workspaces<C>(e, v.context->threads(), false)](const KernelArgs& args) {
      for_rows(e.batch * e.heads, [&](Index task) {
        const Index b = task / e.heads;
        const Index h = task % e.heads;
        Workspace<C>& w = (*spaces)[static_cast<std::size_t>(omp_get_thread_num())];
        in.gather(b, h, args, w);
        for (Index t = 0; t < e.seq; ++t) {
          in.products(in.q.read(args.in[0], e.q_at(b, t, h), e.qk_dim), t, w);
          auto p = array(w.p.get(), t + 1);
          const C greatest = p.maxCoeff();
          p = (p - greatest).exp();
          const double total = sum(w.p.get(), t + 1);
          lse.write(args.out[1], task * e.seq + t, 1,
                    [&](C* to) { *to = greatest + static_cast<C>(std::log(total)); });
          y.write(args.out[0], e.y_at(b, t, h), e.v_dim, [&](C* to) {
            array(to, e.v_dim).setZero();
            for (Index j = 0; j <= t; ++j)
              array(to, e.v_dim) += static_cast<C>(w.p[j] / total) * array(w.v.get() + j * e.v_dim, e.v_dim);
          });
        }
      });
    };
  });
}

/// Inputs: dy, y, lse, q, kv, rotary. Outputs: dq, dkv, drotary. Heads add to drotary one after the other.
Kernel make_latent_attention_backward(const OpView& v) {
  constexpr std::size_t kFirst = 3;
  if (!is_computed(v, kFirst)) return {};
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const Inputs<C> in(v, kFirst);
    const Extents e = in.e;
    const auto sums = aligned_array<C>(e.batch * e.seq * e.rotary);
    return [=, dy = in_operand<C>(v, 0, e.v_dim), y = in_operand<C>(v, 1, e.v_dim),
            lse = in_operand<C>(v, 2, 1), dq = out_operand<C>(v, 0, e.qk_dim),
            dkv = out_operand<C>(v, 1, e.plain() + e.v_dim), drotary = out_operand<C>(v, 2, e.rotary),
            spaces = workspaces<C>(e, v.context->threads(), true)](const KernelArgs& args) {
      std::fill_n(sums.get(), e.batch * e.seq * e.rotary, C(0));
      for_rows(e.batch, [&](Index b) {
        Workspace<C>& w = (*spaces)[static_cast<std::size_t>(omp_get_thread_num())];
        for (Index h = 0; h < e.heads; ++h) {
          in.gather(b, h, args, w);
          std::fill_n(w.dk.get(), e.seq * e.qk_dim, C(0));
          std::fill_n(w.dv.get(), e.seq * e.v_dim, C(0));
          for (Index t = 0; t < e.seq; ++t) {
            const C* query = in.q.read(args.in[kFirst], e.q_at(b, t, h), e.qk_dim);
            const C* own_dy = dy.read(args.in[0], e.y_at(b, t, h), e.v_dim);
            const double delta = dot(own_dy, y.read(args.in[1], e.y_at(b, t, h), e.v_dim), e.v_dim);
            const C total = *lse.read(args.in[2], (b * e.heads + h) * e.seq + t, 1);
            in.products(query, t, w);
            array(w.p.get(), t + 1) = (array(w.p.get(), t + 1) - total).exp();
            for (Index j = 0; j <= t; ++j) {
              const double dp = dot(own_dy, w.v.get() + j * e.v_dim, e.v_dim);
              w.ds[j] = static_cast<C>(e.scale * static_cast<double>(w.p[j]) * (dp - delta));
              array(w.dv.get() + j * e.v_dim, e.v_dim) += w.p[j] * array(own_dy, e.v_dim);
              array(w.dk.get() + j * e.qk_dim, e.qk_dim) += w.ds[j] * array(query, e.qk_dim);
            }
            dq.write(args.out[0], e.q_at(b, t, h), e.qk_dim, [&](C* to) {
              array(to, e.qk_dim).setZero();
              for (Index j = 0; j <= t; ++j)
                array(to, e.qk_dim) += w.ds[j] * array(w.k.get() + j * e.qk_dim, e.qk_dim);
            });
          }
          for (Index t = 0; t < e.seq; ++t) {
            const C* dk = w.dk.get() + t * e.qk_dim;
            dkv.write(args.out[1], e.kv_at(b, t, h), e.plain() + e.v_dim, [&](C* to) {
              std::copy_n(dk, e.plain(), to);
              std::copy_n(w.dv.get() + t * e.v_dim, e.v_dim, to + e.plain());
            });
            array(sums.get() + e.row(b, t) * e.rotary, e.rotary) += array(dk + e.plain(), e.rotary);
          }
        }
        for (Index t = 0; t < e.seq; ++t) {
          drotary.write(args.out[2], e.row(b, t) * e.rotary, e.rotary,
                        [&](C* to) { std::copy_n(sums.get() + e.row(b, t) * e.rotary, e.rotary, to); });
        }
      });
    };
  });
}

MakerRows latent_attention_rows() {
  namespace ops = program::ops;
  return {{&ops::kLatentAttention, make_latent_attention, "reference::latent_attention"},
          {&ops::kLatentAttentionBackward, make_latent_attention_backward,
           "reference::latent_attention_backward"}};
}

}  // namespace rooflm::backends::cpu::reference
