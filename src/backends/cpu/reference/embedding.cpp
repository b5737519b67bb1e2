// embedding: x[b, t, :] = wte[tokens[b, t], :] (+ wpe[t, :]); add_positions; their gradients.
#include <array>
#include <cstring>

#include "backends/cpu/reference/operand.h"
#include "backends/cpu/token_ids.h"
#include "program/ops.h"
#include "program/pieces.h"

namespace rooflm::backends::cpu::reference {
namespace {

const std::int32_t* ids(const void* tokens) { return static_cast<const std::int32_t*>(tokens); }

}  // namespace

Kernel make_embedding(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t rows = v.in(0).shape.numel();
    const std::int64_t vocab = v.in(1).shape[0];
    const std::int64_t cols = v.in(1).shape[1];
    return [=, wte = in_operand<C>(v, 1, cols), x = out_operand<C>(v, 0, cols)](const KernelArgs& args) {
      const std::int32_t* tokens = ids(args.in[0]);
      check_ids(tokens, rows, vocab, "token");
      for_rows(rows, [&](std::int64_t r) {
        const C* from = wte.read(args.in[1], tokens[r] * cols, cols);
        x.write(args.out[0], r * cols, cols, [&](C* to) { std::copy(from, from + cols, to); });
      });
    };
  });
}

/// Tokens in order, columns in parallel: the order of the sums does not depend on the thread count.
Kernel make_embedding_backward(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t rows = v.in(0).shape.numel();
    const std::int64_t vocab = v.out(0).shape[0];
    const std::int64_t cols = v.out(0).shape[1];
    const std::size_t row_bytes = static_cast<std::size_t>(cols) * sizeof(C);
    if (v.out(0).dtype != kComputed<C>) return {};
    return [=, accumulate = v.accumulates(), dx = in_operand<C>(v, 1, kColumns)](const KernelArgs& args) {
      const std::int32_t* tokens = ids(args.in[0]);
      check_ids(tokens, rows, vocab, "token");
      C* dwte = static_cast<C*>(args.out[0]);
      if (!accumulate) {
        for_rows(vocab, [&](std::int64_t r) { std::memset(dwte + r * cols, 0, row_bytes); });
      }
      for_columns(cols, [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t r = 0; r < rows; ++r) {
          const C* from = dx.read(args.in[1], r * cols + first, count);
          C* to = dwte + tokens[r] * cols + first;
#pragma omp simd
          for (std::int64_t i = 0; i < count; ++i) to[i] += from[i];
        }
      });
    };
  });
}

/// Rows of the table of positions before that of position 0.
std::int64_t offset_of(const OpView& v) { return v.op.attrs.has("offset") ? v.integer("offset") : 0; }

Kernel make_add_positions(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const core::Shape& shape = v.in(0).shape;
    const std::int64_t seq = shape[1];
    const std::int64_t cols = shape[2];
    const std::int64_t rows = shape[0] * seq;
    const auto pieces = program::Pieces::of(v.op.attrs);
    const std::int64_t positions = v.in(1).shape[0];
    const bool has_first = v.has_in(2);
    const std::int64_t offset = offset_of(v);
    return [=, x = in_operand<C>(v, 0, cols), wpe = in_operand<C>(v, 1, cols),
            y = out_operand<C>(v, 0, cols)](const KernelArgs& args) {
      const auto* first =
          has_first ? checked_first(args.in[2], rows / seq, seq, positions - offset) : nullptr;
      for_rows(rows, [&](std::int64_t r) {
        const C* xs = x.read(args.in[0], r * cols, cols);
        const std::int64_t at = pieces.position(r % seq, seq) + (first == nullptr ? 0 : first[r / seq]);
        const C* position = wpe.read(args.in[1], (offset + at) * cols, cols);
        y.write(args.out[0], r * cols, cols, [&](C* to) {
#pragma omp simd
          for (std::int64_t i = 0; i < cols; ++i) to[i] = xs[i] + position[i];
        });
      });
    };
  });
}

/// dwpe[t, :] (+)= sum over b of dy[b, t, :]; without accumulation all other rows become zero.
Kernel make_add_positions_backward(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const core::Shape& shape = v.in(0).shape;
    const std::int64_t batch = shape[0];
    const std::int64_t seq = shape[1];
    const std::int64_t cols = shape[2];
    const std::int64_t positions = v.out(0).shape[0];
    const auto pieces = program::Pieces::of(v.op.attrs);
    if (v.out(0).dtype != kComputed<C>) return {};
    return [=, offset = offset_of(v), accumulate = v.accumulates(),
            dy = in_operand<C>(v, 0, cols)](const KernelArgs& args) {
      auto* const all = static_cast<C*>(args.out[0]);
      if (!accumulate) for_rows(positions, [&](std::int64_t t) { std::fill_n(all + t * cols, cols, C(0)); });
      for_rows(seq, [&](std::int64_t t) {
        C* total = all + (offset + pieces.position(t, seq)) * cols;
        for (std::int64_t b = 0; b < batch; ++b) {
          const C* from = dy.read(args.in[0], (b * seq + t) * cols, cols);
#pragma omp simd
          for (std::int64_t i = 0; i < cols; ++i) total[i] += from[i];
        }
      });
    };
  });
}

MakerRows embedding_rows() {
  namespace ops = program::ops;
  return {{&ops::kEmbedding, make_embedding, "reference::embedding"},
          {&ops::kEmbeddingBackward, make_embedding_backward, "reference::embedding_backward"},
          {&ops::kAddPositions, make_add_positions, "reference::add_positions"},
          {&ops::kAddPositionsBackward, make_add_positions_backward, "reference::add_positions_backward"}};
}

}  // namespace rooflm::backends::cpu::reference
