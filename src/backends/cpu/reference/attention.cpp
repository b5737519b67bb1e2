// flash_attention: y = softmax(q k^T / sqrt(D)) v per head on packed projections qkv [B, T, (H + 2K) D], with
// windows, caps, ALiBi and sinks (program/scores.h), and its gradient; attention_block: the same with keys
// and values of another rank (program/ops/ring.cpp). Processes a few query rows at a time against all keys
// that they see; never a T x T matrix. Query heads of one key/value head form one task, so its gradients have
// one writer.
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "backends/cpu/reference/arrays.h"
#include "backends/cpu/reference/multiply.h"
#include "backends/cpu/reference/operand.h"
#include "backends/cpu/reference/scores.h"
#include "program/ops.h"
#include "program/pieces.h"

namespace rooflm::backends::cpu::reference {
namespace {

using Index = std::int64_t;
/// Query rows processed at a time.
constexpr Index kRows = 32;

struct Extents {
  Index batch, seq, heads, kv_heads, dim;
  Index kv_width, key_begin, value_begin;  ///< in elements, of rows that contain keys and values
  program::SeenKeys seen;
  program::Scores rule;
  /// Keys and values are in the same rows as the queries.
  explicit Extents(const OpView& v, const core::Shape& qkv)
      : batch(qkv[0]),
        seq(qkv[1]),
        heads(v.integer("heads")),
        kv_heads(v.integer("kv_heads")),
        dim(v.integer("head_dim")),
        kv_width(width()),
        key_begin(heads * dim),
        value_begin((heads + kv_heads) * dim),
        seen{.keys = seq, .causal = true},
        rule(program::Scores::of(v.op.attrs)) {}
  /// For a block: keys and values come from another rank.
  static Extents of_block(const OpView& v, const core::Shape& qkv) {
    Extents e(v, qkv);
    e.kv_width = 2 * e.kv_heads * e.dim;
    e.key_begin = 0;
    e.value_begin = e.kv_heads * e.dim;
    e.seen = program::SeenKeys::of(v.integer("index"), v.integer("from"), e.seq);
    return e;
  }
  [[nodiscard]] Index group() const { return heads / kv_heads; }
  [[nodiscard]] Index width() const { return (heads + 2 * kv_heads) * dim; }
  /// Number of keys that query t sees.
  [[nodiscard]] Index keys_of(Index t) const { return seen.causal ? t + 1 : seen.keys; }
  /// The first of them.
  [[nodiscard]] Index first_key(Index t) const { return seen.causal ? rule.first_key(t) : 0; }
  /// Offset in qkv of position t of query head h.
  [[nodiscard]] Index q_at(Index b, Index t, Index h) const { return (b * seq + t) * width() + h * dim; }
  /// Offset of keys, and of values, of position t.
  [[nodiscard]] Index key_at(Index b, Index t, Index kv_head) const {
    return (b * seq + t) * kv_width + key_begin + kv_head * dim;
  }
  [[nodiscard]] Index value_at(Index b, Index t, Index kv_head) const {
    return (b * seq + t) * kv_width + value_begin + kv_head * dim;
  }
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

/// Reads rows t, t + 1, ... of one head; `at(i)` is the offset of row i.
template <class C, class At>
void gather(const Operand<C>& from, const void* base, Index rows, Index dim, At&& at, C* to) {
  for (Index i = 0; i < rows; ++i) std::copy_n(from.read(base, at(i), dim), dim, to + i * dim);
}
/// Writes rows; `accumulate` adds to elements of type C.
template <class C, class At>
void scatter(const C* from, Index rows, Index dim, At&& at, const Operand<C>& to, void* base,
             bool accumulate = false) {
  for (Index i = 0; i < rows; ++i) {
    to.write(base, at(i), dim, [&](C* row) {
      if (!accumulate) return (void)std::copy_n(from + i * dim, dim, row);
      for (Index k = 0; k < dim; ++k) row[k] += from[i * dim + k];
    });
  }
}

/// Calls body(b, kv head, workspace) for all batch elements and key/value heads, in parallel.
template <class C, class Body>
void for_kv_heads(const Extents& e, const Workspaces<C>& workspaces, Body&& body) {
  for_rows(e.batch * e.kv_heads, [&](Index task) {
    body(task / e.kv_heads, task % e.kv_heads, (*workspaces)[static_cast<std::size_t>(omp_get_thread_num())]);
  });
}

template <class C>
struct Forward {
  Extents e;
  ScoreRows<C> score;
  Operand<C> qkv, y, lse;
  Sinks<C> sinks;

  /// Computes y and lse of query rows [t, t + rows) of head h.
  void block(Index b, Index h, Index t, Index rows, Workspace<C>& w, const KernelArgs& args) const {
    const Index begin = e.first_key(t);
    const Index keys = e.keys_of(t + rows - 1) - begin;
    const C scale = score.factor();
    gather(
        qkv, args.in[0], rows, e.dim, [&](Index i) { return e.q_at(b, t + i, h); }, w.q.get());
    C* s = w.scores.get();
    multiply<C>(rows, keys, e.dim, {w.q.get(), e.dim}, {w.k.get() + begin * e.dim, e.dim, true}, {s, keys});
    for (Index i = 0; i < rows; ++i) {
      const Index hidden = e.first_key(t + i) - begin;
      C* row = s + i * keys + hidden;
      const Index seen = e.keys_of(t + i) - e.first_key(t + i);
      score.apply(h, t + i, begin + hidden, seen, row);
      C greatest = array(row, seen).maxCoeff();
      if (sinks) greatest = std::max(greatest, sinks.of_head(args, h) / scale);
      array(row, seen) = (scale * (array(row, seen) - greatest)).exp();
      double total = sum(row, seen);
      if (sinks) total += std::exp(static_cast<double>(sinks.of_head(args, h) - scale * greatest));
      array(row, seen) *= static_cast<C>(1 / total);
      std::fill(row - hidden, row, C(0));
      std::fill(row + seen, row - hidden + keys, C(0));
      lse.write(args.out[1], (b * e.heads + h) * e.seq + t + i, 1,
                [&](C* to) { *to = scale * greatest + static_cast<C>(std::log(total)); });
    }
    multiply<C>(rows, e.dim, keys, {s, keys}, {w.v.get() + begin * e.dim, e.dim}, {w.y.get(), e.dim});
    scatter(
        w.y.get(), rows, e.dim, [&](Index i) { return e.y_at(b, t + i, h); }, y, args.out[0]);
  }
};

/// The inputs, the indices of `y` and `lse` among them, and the results.
template <class C>
struct Backward {
  Extents e;
  ScoreRows<C> score;
  Operand<C> dy, qkv, y, lse, dq;
  std::size_t first_of_y = 2;  ///< index of input y; lse follows
  bool is_block = false;       ///< dq has rows like y and is accumulated into
  Sinks<C> sinks{};
  std::shared_ptr<double[]> d_sinks{};  ///< [B, H]

  /// dq of query rows [t, t + rows) of head h, and their contributions to dk and dv:
  /// p = exp(scale q k^T - lse), dv += p^T dy, dp = dy v^T, ds = scale p (dp - rowsum(dy y)), dq = ds k,
  /// dk += ds^T q. A sink's p = exp(sink - lse) gets no value: dp = 0.
  void block(Index b, Index h, Index t, Index rows, Workspace<C>& w, const KernelArgs& args) const {
    const auto y_at = [&](Index i) { return e.y_at(b, t + i, h); };
    const auto q_at = [&](Index i) { return e.q_at(b, t + i, h); };
    const Index begin = e.first_key(t);
    const Index keys = e.keys_of(t + rows - 1) - begin;
    const C scale = score.factor();
    gather(dy, args.in[0], rows, e.dim, y_at, w.dy.get());
    gather(qkv, args.in[1], rows, e.dim, q_at, w.q.get());
    gather(y, args.in[first_of_y], rows, e.dim, y_at, w.y.get());
    C* p = w.scores.get();
    C* ds = w.d_scores.get();
    const Matrix<const C> q{w.q.get(), e.dim};
    const Matrix<const C> own_dy{w.dy.get(), e.dim};
    multiply<C>(rows, keys, e.dim, q, {w.k.get() + begin * e.dim, e.dim, true}, {p, keys});
    multiply<C>(rows, keys, e.dim, own_dy, {w.v.get() + begin * e.dim, e.dim, true}, {ds, keys});
    for (Index i = 0; i < rows; ++i) {
      const Index hidden = e.first_key(t + i) - begin;
      const Index at = i * keys + hidden;
      const Index seen = e.keys_of(t + i) - e.first_key(t + i);
      const C total = *lse.read(args.in[first_of_y + 1], (b * e.heads + h) * e.seq + t + i, 1);
      const C delta = static_cast<C>(dot(w.dy.get() + i * e.dim, w.y.get() + i * e.dim, e.dim));
      if (sinks)
        d_sinks[b * e.heads + h] -= std::exp(static_cast<double>(sinks.of_head(args, h) - total)) * delta;
      auto ps = array(p + at, seen);
      auto dss = array(ds + at, seen);
      dss -= delta;
      score.apply_derivative(t + i, p + at, seen, ds + at);
      score.apply(h, t + i, begin + hidden, seen, p + at);
      ps = (scale * ps - total).exp();
      dss *= ps;
      for (C* row : {p + at, ds + at}) {
        std::fill(row - hidden, row, C(0));
        std::fill(row + seen, row - hidden + keys, C(0));
      }
    }
    multiply<C>(keys, e.dim, rows, {p, keys, true}, own_dy, {w.dv.get() + begin * e.dim, e.dim}, true);
    multiply<C>(rows, e.dim, keys, {ds, keys}, {w.k.get() + begin * e.dim, e.dim}, {w.dq.get(), e.dim});
    multiply<C>(keys, e.dim, rows, {ds, keys, true}, q, {w.dk.get() + begin * e.dim, e.dim}, true);
    if (is_block) return scatter(w.dq.get(), rows, e.dim, y_at, dq, args.out[0], true);
    scatter(w.dq.get(), rows, e.dim, q_at, dq, args.out[0]);
  }
};

/// Calls body(head, first row, rows) for all blocks of query rows of a key/value head.
template <class Body>
void for_query_blocks(const Extents& e, Index kv_head, Body&& body) {
  for (Index h = kv_head * e.group(); h < (kv_head + 1) * e.group(); ++h) {
    for (Index t = e.seen.first_query; t < e.seq; t += kRows) body(h, t, std::min(kRows, e.seq - t));
  }
}

/// Reads the visible k and v of one head.
template <class C>
void gather_kv(const Extents& e, const Operand<C>& from, const void* base, Index b, Index kv_head,
               Workspace<C>& w) {
  gather(
      from, base, e.seen.keys, e.dim, [&](Index t) { return e.key_at(b, t, kv_head); }, w.k.get());
  gather(
      from, base, e.seen.keys, e.dim, [&](Index t) { return e.value_at(b, t, kv_head); }, w.v.get());
}

template <class C>
ScoreRows<C> scores_of(const Extents& e) {
  return {.rule = e.rule, .heads = e.heads};
}

/// `kv`: the layout of input `kv_input`, which contains keys and values.
template <class C>
Kernel forward_kernel(const OpView& v, const Extents& e, std::size_t kv_input) {
  const Forward<C> forward{e,
                           scores_of<C>(e),
                           in_operand<C>(v, 0, e.dim),
                           out_operand<C>(v, 0, e.dim),
                           out_operand<C>(v, 1, 1),
                           Sinks<C>::of(v, kv_input + 1)};
  const auto workspaces = make_workspaces<C>(e, v.context->threads(), false);
  return [=, kv = in_operand<C>(v, kv_input, e.dim)](const KernelArgs& args) {
    for_kv_heads<C>(e, workspaces, [&](Index b, Index kv_head, Workspace<C>& w) {
      gather_kv(e, kv, args.in[kv_input], b, kv_head, w);
      for_query_blocks(e, kv_head,
                       [&](Index h, Index t, Index rows) { forward.block(b, h, t, rows, w, args); });
    });
  };
}

/// Gradients of keys and values go to output `kv_output`.
template <class C>
Kernel backward_kernel(const OpView& v, const Backward<C>& backward, std::size_t kv_input,
                       std::size_t kv_output) {
  const Extents& e = backward.e;
  const auto workspaces = make_workspaces<C>(e, v.context->threads(), true);
  return [=, e = e, kv = in_operand<C>(v, kv_input, e.dim), dkv = out_operand<C>(v, kv_output, e.dim),
          accumulates = v.accumulates(),
          d_sinks_dtype = backward.sinks ? v.out(1).dtype : kComputed<C>](const KernelArgs& args) {
    if (backward.sinks) std::fill_n(backward.d_sinks.get(), e.batch * e.heads, 0.0);
    for_kv_heads<C>(e, workspaces, [&](Index b, Index kv_head, Workspace<C>& w) {
      gather_kv(e, kv, args.in[kv_input], b, kv_head, w);
      const Index keys = e.seen.keys;
      for (const auto& gradient : {w.dk, w.dv}) std::fill_n(gradient.get(), keys * e.dim, C(0));
      for_query_blocks(e, kv_head,
                       [&](Index h, Index t, Index rows) { backward.block(b, h, t, rows, w, args); });
      scatter(
          w.dk.get(), keys, e.dim, [&](Index t) { return e.key_at(b, t, kv_head); }, dkv, args.out[kv_output],
          backward.is_block);
      scatter(
          w.dv.get(), keys, e.dim, [&](Index t) { return e.value_at(b, t, kv_head); }, dkv,
          args.out[kv_output], backward.is_block);
    });
    if (backward.sinks)
      write_sink_gradients(backward.d_sinks.get(), e.batch, e.heads, d_sinks_dtype, accumulates, args.out[1]);
  };
}

/// Runs `first`, then `second`.
Kernel after(std::function<void(const KernelArgs&)> first, Kernel second) {
  return [first = std::move(first), second = std::move(second.run)](const KernelArgs& args) {
    first(args);
    second(args);
  };
}

}  // namespace

Kernel make_flash_attention(const OpView& v) {
  return with_compute_type(
      v, [&]<class C>(C) -> Kernel { return forward_kernel<C>(v, Extents(v, v.in(0).shape), 0); });
}

/// Queries that see no key get y = 0 and lse = -inf.
Kernel make_attention_block(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    if (!program::beyond_plain(v.op).empty()) return {};
    const auto e = Extents::of_block(v, v.in(0).shape);
    const auto fill = [e, y = out_operand<C>(v, 0, e.heads * e.dim),
                       lse = out_operand<C>(v, 1, e.seq)](const KernelArgs& args) {
      for (Index b = 0; b < e.batch; ++b) {
        for (Index t = 0; t < e.seen.first_query; ++t)
          y.write(args.out[0], e.y_at(b, t, 0), e.heads * e.dim,
                  [&](C* row) { std::fill_n(row, e.heads * e.dim, C(0)); });
        for (Index h = 0; h < e.heads; ++h)
          lse.write(args.out[1], (b * e.heads + h) * e.seq, e.seen.first_query, [&](C* row) {
            std::fill_n(row, e.seen.first_query, -std::numeric_limits<C>::infinity());
          });
      }
    };
    return after(fill, forward_kernel<C>(v, e, 1));
  });
}

Kernel make_flash_attention_backward(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const Extents e(v, v.in(1).shape);
    const Backward<C> backward{.e = e,
                               .score = scores_of<C>(e),
                               .dy = in_operand<C>(v, 0, e.dim),
                               .qkv = in_operand<C>(v, 1, e.dim),
                               .y = in_operand<C>(v, 2, e.dim),
                               .lse = in_operand<C>(v, 3, 1),
                               .dq = out_operand<C>(v, 0, e.dim),
                               .sinks = Sinks<C>::of(v, 4),
                               .d_sinks = aligned_array<double>(e.batch * e.heads)};
    return backward_kernel<C>(v, backward, 1, 0);
  });
}

Kernel make_attention_block_backward(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    if (!v.outputs_are({0, 1}, kComputed<C>) || !program::beyond_plain(v.op).empty()) return {};
    const auto e = Extents::of_block(v, v.in(1).shape);
    const Backward<C> backward{.e = e,
                               .score = scores_of<C>(e),
                               .dy = in_operand<C>(v, 0, e.dim),
                               .qkv = in_operand<C>(v, 1, e.dim),
                               .y = in_operand<C>(v, 3, e.dim),
                               .lse = in_operand<C>(v, 4, 1),
                               .dq = out_operand<C>(v, 0, e.dim),
                               .first_of_y = 3,
                               .is_block = true};
    Kernel kernel = backward_kernel<C>(v, backward, 2, 1);
    if (v.has_in(5)) return kernel;
    return after(
        [bytes = std::array{v.out(0).bytes(), v.out(1).bytes()}](const KernelArgs& args) {
          for (std::size_t i = 0; i < bytes.size(); ++i)
            std::memset(args.out[i], 0, static_cast<std::size_t>(bytes[i]));
        },
        std::move(kernel));
  });
}

MakerRows attention_rows() {
  namespace ops = program::ops;
  return {
      {&ops::kFlashAttention, make_flash_attention, "reference::flash_attention"},
      {&ops::kFlashAttentionBackward, make_flash_attention_backward, "reference::flash_attention_backward"},
      {&ops::kAttentionBlock, make_attention_block, "reference::attention_block"},
      {&ops::kAttentionBlockBackward, make_attention_block_backward, "reference::attention_block_backward"}};
}

}  // namespace rooflm::backends::cpu::reference
