// Keys and values in blocks: paged_attention, pick_rows (program/ops/paged_cache.cpp).
#include <cmath>
#include <memory>

#include "backends/cpu/paged_table.h"
#include "backends/cpu/reference/arrays.h"
#include "backends/cpu/reference/operand.h"
#include "backends/cpu/reference/scores.h"
#include "backends/cpu/token_ids.h"
#include "program/paged_ops.h"

namespace rooflm::backends::cpu::reference {
namespace {

using Row = std::int64_t;

template <class C>
struct Paged {
  Row rows, heads, kv_heads, dim;
  PagedTable table;
  Operand<C> qkv, y, k, v;
  ScoreRows<C> score;
  Sinks<C> sinks;
  std::shared_ptr<C[]> scores;  // [threads, P rounded up]

  [[nodiscard]] Row qkv_at(Row n, Row head) const { return (n * (heads + 2 * kv_heads) + head) * dim; }

  void append(const KernelArgs& args, const std::int32_t* blocks, Row n, Row head, Row position) const {
    const Row to = table.place(blocks, n, position, kv_heads, head) * dim;
    const C* key = qkv.read(args.in[0], qkv_at(n, heads + head), dim);
    k.write(args.out[1], to, dim, [&](C* row) { std::copy_n(key, dim, row); });
    const C* value = qkv.read(args.in[0], qkv_at(n, heads + kv_heads + head), dim);
    v.write(args.out[2], to, dim, [&](C* row) { std::copy_n(value, dim, row); });
  }

  void attend(const KernelArgs& args, const std::int32_t* blocks, Row n, Row h, Row position) const {
    const Row first = score.rule.first_key(position);
    const Row keys = position + 1 - first;
    const Row head = h / (heads / kv_heads);
    const auto at = [&](Row t) { return table.place(blocks, n, first + t, kv_heads, head) * dim; };
    C* p = scores.get() + omp_get_thread_num() * ((table.positions() + 15) / 16 * 16);
    const C* q = qkv.read(args.in[0], qkv_at(n, h), dim);
    for (Row t = 0; t < keys; ++t) p[t] = static_cast<C>(dot(q, k.read(args.out[1], at(t), dim), dim));
    score.apply(h, position, first, keys, p);
    const C scale = score.factor();
    C greatest = array(p, keys).maxCoeff();
    if (sinks) greatest = std::max(greatest, sinks.of_head(args, h) / scale);
    array(p, keys) = (scale * (array(p, keys) - greatest)).exp();
    double total = sum(p, keys);
    if (sinks) total += std::exp(static_cast<double>(sinks.of_head(args, h) - scale * greatest));
    array(p, keys) *= static_cast<C>(1 / total);
    y.write(args.out[0], (n * heads + h) * dim, dim, [&](C* to) {
      std::fill_n(to, dim, C(0));
      for (Row t = 0; t < keys; ++t) array(to, dim) += p[t] * array(v.read(args.out[2], at(t), dim), dim);
    });
  }
};

}  // namespace

/// Inputs: qkv, first, blocks, k, v [, sinks]. Outputs: y, k, v.
Kernel make_paged_attention(const OpView& view) {
  return with_compute_type(view, [&]<class C>(C) -> Kernel {
    const PagedTable table = paged_table(view);
    const Row dim = view.integer("head_dim");
    const Row stride = (table.positions() + 15) / 16 * 16;
    const Paged<C> paged{.rows = view.in(0).shape[0],
                         .heads = view.integer("heads"),
                         .kv_heads = view.integer("kv_heads"),
                         .dim = dim,
                         .table = table,
                         .qkv = in_operand<C>(view, 0, dim),
                         .y = out_operand<C>(view, 0, dim),
                         .k = out_operand<C>(view, 1, dim),
                         .v = out_operand<C>(view, 2, dim),
                         .score = {program::Scores::of(view.op.attrs), view.integer("heads")},
                         .sinks = Sinks<C>::of(view, 5),
                         .scores = aligned_array<C>(view.context->threads() * stride)};
    return [paged](const KernelArgs& args) {
      const std::int32_t* first = checked_first(args.in[1], paged.rows, 1, paged.table.positions());
      const std::int32_t* blocks = paged.table.checked(args.in[2], first, paged.rows);
      for_rows(paged.rows * paged.kv_heads, [&](Row task) {
        const Row n = task / paged.kv_heads;
        paged.append(args, blocks, n, task % paged.kv_heads, first[n]);
      });
      for_rows(paged.rows * paged.heads, [&](Row task) {
        const Row n = task / paged.heads;
        paged.attend(args, blocks, n, task % paged.heads, first[n]);
      });
    };
  });
}

/// Inputs: x, rows.
Kernel make_pick_rows(const OpView& view) {
  return with_compute_type(view, [&]<class C>(C) -> Kernel {
    const Row rows = view.in(0).shape[0];
    const Row cols = view.in(0).shape[2];
    const Row picked = view.out(0).shape[0];
    return
        [=, from = in_operand<C>(view, 0, cols), to = out_operand<C>(view, 0, cols)](const KernelArgs& args) {
          const std::int32_t* numbers = checked_first(args.in[1], picked, 1, rows);
          for_rows(picked, [&](Row r) {
            const C* row = from.read(args.in[0], numbers[r] * cols, cols);
            to.write(args.out[0], r * cols, cols, [&](C* values) { std::copy_n(row, cols, values); });
          });
        };
  });
}

MakerRows paged_cache_rows() {
  namespace ops = program::ops;
  return {{&ops::kPagedAttention, make_paged_attention, "reference::paged_attention"},
          {&ops::kPickRows, make_pick_rows, "reference::pick_rows"}};
}

}  // namespace rooflm::backends::cpu::reference
