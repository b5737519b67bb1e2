// The ops of ring attention other than its blocks: take_keys_values, join_blocks, join_gradients
// (program/ops/ring.cpp).
#include <cmath>
#include <cstring>
#include <limits>

#include "backends/cpu/reference/operand.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {

/// Copies the end of each row.
Kernel make_take_keys_values(const OpView& v) {
  const std::int64_t element = static_cast<std::int64_t>(core::size_of(v.in(0).dtype));
  const std::int64_t width = v.in(0).shape[-1] * element;
  const std::int64_t taken = v.out(0).shape[-1] * element;
  return [=, rows = rows_of(v.in(0))](const KernelArgs& args) {
    const auto* from = static_cast<const std::byte*>(args.in[0]) + width - taken;
    auto* to = static_cast<std::byte*>(args.out[0]);
    for_rows(rows, [&](std::int64_t r) {
      std::memcpy(to + r * taken, from + r * width, static_cast<std::size_t>(taken));
    });
  };
}

/// Heads of y are contiguous within a row; those of lse follow one another.
Kernel make_join_blocks(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    if (v.in(1).dtype != kComputed<C> || !v.outputs_are({1}, kComputed<C>)) return {};
    const std::int64_t heads = v.in(1).shape[1];
    const std::int64_t seq = v.in(1).shape[2];
    const std::int64_t dim = v.in(0).shape[-1] / heads;
    return [=, rows = v.in(1).shape.numel(), y = in_operand<C>(v, 0, dim), more = in_operand<C>(v, 2, dim),
            joined = out_operand<C>(v, 0, dim)](const KernelArgs& args) {
      const auto* lse = static_cast<const C*>(args.in[1]);
      const auto* more_lse = static_cast<const C*>(args.in[3]);
      for_rows(rows, [&](std::int64_t r) {
        const std::int64_t b = r / (heads * seq);
        const std::int64_t at = ((b * seq + r % seq) * heads + r / seq % heads) * dim;
        const C greatest = std::max(lse[r], more_lse[r]);
        const bool is_seen = greatest > -std::numeric_limits<C>::infinity();
        const C first = is_seen ? std::exp(lse[r] - greatest) : C(0);
        const C second = is_seen ? std::exp(more_lse[r] - greatest) : C(0);
        const C share = is_seen ? 1 / (first + second) : C(0);
        const C* ys = y.read(args.in[0], at, dim);
        const C* mores = more.read(args.in[2], at, dim);
        joined.write(args.out[0], at, dim, [&](C* to) {
          for (std::int64_t i = 0; i < dim; ++i) to[i] = share * (first * ys[i] + second * mores[i]);
        });
        static_cast<C*>(args.out[1])[r] = is_seen ? greatest + std::log(first + second) : greatest;
      });
    };
  });
}

Kernel make_join_gradients(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t queries = v.in(1).shape[-1];
    const std::int64_t others = v.in(2).shape[-1];
    const std::int64_t width = queries + others;
    return [=, rows = rows_of(v.in(1)), dq = in_operand<C>(v, 1, queries), dkv = in_operand<C>(v, 2, others),
            to = out_operand<C>(v, 0, width)](const KernelArgs& args) {
      for_rows(rows, [&](std::int64_t r) {
        const C* first = dq.read(args.in[1], r * queries, queries);
        const C* second = dkv.read(args.in[2], r * others, others);
        to.write(args.out[0], r * width, width,
                 [&](C* row) { std::copy_n(second, others, std::copy_n(first, queries, row)); });
      });
    };
  });
}

MakerRows ring_rows() {
  namespace ops = program::ops;
  return {{&ops::kTakeKeysValues, make_take_keys_values, "reference::take_keys_values"},
          {&ops::kJoinBlocks, make_join_blocks, "reference::join_blocks"},
          {&ops::kJoinGradients, make_join_gradients, "reference::join_gradients"}};
}

}  // namespace rooflm::backends::cpu::reference
