// flash_attention: y = softmax(q k^T / sqrt(D)) v per head on packed projections qkv [B, T, (H + 2K) D], and
// its gradient. A few query rows at a time against all keys they see: never a T x T matrix. Query heads of
// one key/value head are one task, so its gradients have one writer.
#include <cmath>
#include <memory>
#include <vector>

#include "backends/cpu/reference/arrays.h"
#include "backends/cpu/reference/operand.h"
#include "backends/cpu/reference/products.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {
namespace {

using Index = std::int64_t;
/// Query rows that are worked on together.
constexpr Index kRows = 32;

struct Extents {
  Index batch, seq, heads, kv_heads, dim;
  explicit Extents(const OpView& v, const core::Shape& qkv)
      : batch(qkv[0]),
        seq(qkv[1]),
        heads(v.integer("heads")),
        kv_heads(v.integer("kv_heads")),
        dim(v.integer("head_dim")) {}
  [[nodiscard]] Index group() const { return heads / kv_heads; }
  [[nodiscard]] Index width() const { return (heads + 2 * kv_heads) * dim; }
  /// Offset in qkv of position t of head h, counting query, then key, then value heads.
  [[nodiscard]] Index qkv_at(Index b, Index t, Index h) const { return (b * seq + t) * width() + h * dim; }
  /// Offset in y.
  [[nodiscard]] Index y_at(Index b, Index t, Index h) const { return ((b * seq + t) * heads + h) * dim; }
};

/// One thread's matrices, row-major, allocated when the kernel is made.
template <class C>
struct Workspace {
  std::shared_ptr<C[]> k, v, dk, dv;      // [T, D]
  std::shared_ptr<C[]> q, y, dy, dq;      // [kRows, D]
  std::shared_ptr<C[]> scores, d_scores;  // kRows x keys seen
  Workspace(const Extents& e, bool backward) {
    for (auto* whole : {&k, &v}) *whole = aligned_array<C>(e.seq * e.dim);
    for (auto* rows : {&q, &y}) *rows = aligned_array<C>(kRows * e.dim);
    scores = aligned_array<C>(kRows * e.seq);
    if (!backward) return;
    for (auto* whole : {&dk, &dv}) *whole = aligned_array<C>(e.seq * e.dim);
    for (auto* rows : {&dy, &dq}) *rows = aligned_array<C>(kRows * e.dim);
    d_scores = aligned_array<C>(kRows * e.seq);
  }
};

template <class C>
using Workspaces = std::shared_ptr<std::vector<Workspace<C>>>;

template <class C>
Workspaces<C> make_workspaces(const Extents& e, int threads, bool backward) {
  auto workspaces = std::make_shared<std::vector<Workspace<C>>>();
  for (int i = 0; i < threads; ++i) workspaces->emplace_back(e, backward);
  return workspaces;
}

/// Rows t, t + 1, .. of one head: `at(i)` is the offset of row i.
template <class C, class At>
void gather(const Operand<C>& from, const void* base, Index rows, Index dim, At&& at, C* to) {
  for (Index i = 0; i < rows; ++i) std::copy_n(from.read(base, at(i), dim), dim, to + i * dim);
}
template <class C, class At>
void scatter(const C* from, Index rows, Index dim, At&& at, const Operand<C>& to, void* base) {
  for (Index i = 0; i < rows; ++i) {
    to.write(base, at(i), dim, [&](C* row) { std::copy_n(from + i * dim, dim, row); });
  }
}

/// Calls body(b, kv head, workspace) for all of them, in parallel.
template <class C, class Body>
void for_kv_heads(const Extents& e, const Workspaces<C>& workspaces, Body&& body) {
  for_rows(e.batch * e.kv_heads, [&](Index task) {
    body(task / e.kv_heads, task % e.kv_heads, (*workspaces)[static_cast<std::size_t>(omp_get_thread_num())]);
  });
}

template <class C>
struct Forward {
  Extents e;
  C scale;
  Operand<C> qkv, y, lse;

  /// y and lse of query rows [t, t + rows) of head h.
  void block(Index b, Index h, Index t, Index rows, Workspace<C>& w, const KernelArgs& args) const {
    const Index keys = t + rows;
    gather(
        qkv, args.in[0], rows, e.dim, [&](Index i) { return e.qkv_at(b, t + i, h); }, w.q.get());
    C* s = w.scores.get();
    multiply<C>(rows, keys, e.dim, {w.q.get(), e.dim}, {w.k.get(), e.dim, true}, {s, keys});
    for (Index i = 0; i < rows; ++i) {
      C* row = s + i * keys;
      const Index seen = t + i + 1;
      const C greatest = array(row, seen).maxCoeff();
      array(row, seen) = (scale * (array(row, seen) - greatest)).exp();
      const double total = sum(row, seen);
      array(row, seen) *= static_cast<C>(1 / total);
      std::fill(row + seen, row + keys, C(0));
      lse.write(args.out[1], (b * e.heads + h) * e.seq + t + i, 1,
                [&](C* to) { *to = scale * greatest + static_cast<C>(std::log(total)); });
    }
    multiply<C>(rows, e.dim, keys, {s, keys}, {w.v.get(), e.dim}, {w.y.get(), e.dim});
    scatter(
        w.y.get(), rows, e.dim, [&](Index i) { return e.y_at(b, t + i, h); }, y, args.out[0]);
  }
};

template <class C>
struct Backward {
  Extents e;
  C scale;
  Operand<C> dy, qkv, y, lse, dqkv;

  /// dq of query rows [t, t + rows) of head h, and their part of dk and dv:
  /// p = exp(scale q k^T - lse), dv += p^T dy, dp = dy v^T, ds = scale p (dp - rowsum(dy y)), dq = ds k,
  /// dk += ds^T q.
  void block(Index b, Index h, Index t, Index rows, Workspace<C>& w, const KernelArgs& args) const {
    const auto y_at = [&](Index i) { return e.y_at(b, t + i, h); };
    const auto q_at = [&](Index i) { return e.qkv_at(b, t + i, h); };
    const Index keys = t + rows;
    gather(dy, args.in[0], rows, e.dim, y_at, w.dy.get());
    gather(qkv, args.in[1], rows, e.dim, q_at, w.q.get());
    gather(y, args.in[2], rows, e.dim, y_at, w.y.get());
    C* p = w.scores.get();
    C* ds = w.d_scores.get();
    const Matrix<const C> q{w.q.get(), e.dim};
    const Matrix<const C> own_dy{w.dy.get(), e.dim};
    multiply<C>(rows, keys, e.dim, q, {w.k.get(), e.dim, true}, {p, keys});
    multiply<C>(rows, keys, e.dim, own_dy, {w.v.get(), e.dim, true}, {ds, keys});
    for (Index i = 0; i < rows; ++i) {
      const Index seen = t + i + 1;
      const C total = *lse.read(args.in[3], (b * e.heads + h) * e.seq + t + i, 1);
      const C delta = static_cast<C>(dot(w.dy.get() + i * e.dim, w.y.get() + i * e.dim, e.dim));
      auto ps = array(p + i * keys, seen);
      auto dss = array(ds + i * keys, seen);
      ps = (scale * ps - total).exp();
      dss = scale * ps * (dss - delta);
      std::fill(p + i * keys + seen, p + (i + 1) * keys, C(0));
      std::fill(ds + i * keys + seen, ds + (i + 1) * keys, C(0));
    }
    multiply<C>(keys, e.dim, rows, {p, keys, true}, own_dy, {w.dv.get(), e.dim}, true);
    multiply<C>(rows, e.dim, keys, {ds, keys}, {w.k.get(), e.dim}, {w.dq.get(), e.dim});
    multiply<C>(keys, e.dim, rows, {ds, keys, true}, q, {w.dk.get(), e.dim}, true);
    scatter(w.dq.get(), rows, e.dim, q_at, dqkv, args.out[0]);
  }
};

/// Calls body(head, first row, rows) for all blocks of query rows of the key/value head.
template <class Body>
void for_query_blocks(const Extents& e, Index kv_head, Body&& body) {
  for (Index h = kv_head * e.group(); h < (kv_head + 1) * e.group(); ++h) {
    for (Index t = 0; t < e.seq; t += kRows) body(h, t, std::min(kRows, e.seq - t));
  }
}

/// Reads k and v of one head.
template <class C>
void gather_kv(const Extents& e, const Operand<C>& qkv, const void* base, Index b, Index kv_head,
               Workspace<C>& w) {
  const Index k_head = e.heads + kv_head;
  const Index v_head = k_head + e.kv_heads;
  gather(
      qkv, base, e.seq, e.dim, [&](Index t) { return e.qkv_at(b, t, k_head); }, w.k.get());
  gather(
      qkv, base, e.seq, e.dim, [&](Index t) { return e.qkv_at(b, t, v_head); }, w.v.get());
}

}  // namespace

Kernel make_flash_attention(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const Extents e(v, v.in(0).shape);
    const Forward<C> forward{e, static_cast<C>(1 / std::sqrt(static_cast<double>(e.dim))),
                             in_operand<C>(v, 0, e.dim), out_operand<C>(v, 0, e.dim),
                             out_operand<C>(v, 1, 1)};
    const auto workspaces = make_workspaces<C>(e, v.context->threads(), false);
    return [=](const KernelArgs& args) {
      for_kv_heads<C>(e, workspaces, [&](Index b, Index kv_head, Workspace<C>& w) {
        gather_kv(e, forward.qkv, args.in[0], b, kv_head, w);
        for_query_blocks(e, kv_head,
                         [&](Index h, Index t, Index rows) { forward.block(b, h, t, rows, w, args); });
      });
    };
  });
}

Kernel make_flash_attention_backward(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const Extents e(v, v.in(1).shape);
    const Backward<C> backward{e,
                               static_cast<C>(1 / std::sqrt(static_cast<double>(e.dim))),
                               in_operand<C>(v, 0, e.dim),
                               in_operand<C>(v, 1, e.dim),
                               in_operand<C>(v, 2, e.dim),
                               in_operand<C>(v, 3, 1),
                               out_operand<C>(v, 0, e.dim)};
    const auto workspaces = make_workspaces<C>(e, v.context->threads(), true);
    return [=](const KernelArgs& args) {
      for_kv_heads<C>(e, workspaces, [&](Index b, Index kv_head, Workspace<C>& w) {
        gather_kv(e, backward.qkv, args.in[1], b, kv_head, w);
        for (const auto& gradient : {w.dk, w.dv}) std::fill_n(gradient.get(), e.seq * e.dim, C(0));
        for_query_blocks(e, kv_head,
                         [&](Index h, Index t, Index rows) { backward.block(b, h, t, rows, w, args); });
        const Index k_head = e.heads + kv_head;
        const Index v_head = k_head + e.kv_heads;
        scatter(
            w.dk.get(), e.seq, e.dim, [&](Index t) { return e.qkv_at(b, t, k_head); }, backward.dqkv,
            args.out[0]);
        scatter(
            w.dv.get(), e.seq, e.dim, [&](Index t) { return e.qkv_at(b, t, v_head); }, backward.dqkv,
            args.out[0]);
      });
    };
  });
}

MakerRows attention_rows() {
  namespace ops = program::ops;
  return {
      {&ops::kFlashAttention, make_flash_attention, "reference::flash_attention"},
      {&ops::kFlashAttentionBackward, make_flash_attention_backward, "reference::flash_attention_backward"}};
}

}  // namespace rooflm::backends::cpu::reference
