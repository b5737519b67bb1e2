// Token and position embeddings, forward and backward.
#include "backends/cpu/fast/embedding.h"

#include "backends/cpu/fast/elementwise.h"
#include "backends/cpu/fast/maker.h"
#include "backends/cpu/fast/parallel.h"
#include "backends/cpu/fast/vec_math.h"
#include "backends/cpu/resources.h"
#include "backends/cpu/token_ids.h"
#include "program/ops.h"

namespace rooflm::backends::cpu {

namespace {

// Table rows that are prefetched: their order is random, so the hardware cannot predict them.
constexpr std::int64_t kRowsAhead = 4;

template <class T>
void fetch_row(const T* row, std::int64_t cols) {
  const auto* bytes = reinterpret_cast<const char*>(row);
  for (std::size_t line = 0; line < static_cast<std::size_t>(cols) * sizeof(T); line += 64) {
    __builtin_prefetch(bytes + line);
  }
}

}  // namespace

template <Storage S>
void embedding_forward(const EmbeddingShape& shape, const std::int32_t* tokens, const S* table,
                       const S* positions, const std::int32_t* begin, S* y) {
  const std::int64_t cols = shape.cols;
  const std::int64_t seq = shape.seq;
  const bool streams = is_streamed(shape.batch * seq * cols * static_cast<std::int64_t>(sizeof(S)));
  parallel_for(shape.batch * seq, 4, [=](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      if (row + kRowsAhead < last) fetch_row(table + tokens[row + kRowsAhead] * cols, cols);
      const S* token = table + tokens[row] * cols;
      const std::int64_t at = row % seq + (begin == nullptr ? 0 : begin[row / seq]);
      const S* position = positions == nullptr ? nullptr : positions + at * cols;
      S* out = y + row * cols;
      for_bundles_to(out, streams, 0, cols, [=](auto j, auto group) ROOFLM_INLINE_LAMBDA {
        auto x = load_at(token + j, group);
        if (position != nullptr) x = x + load_at(position + j, group);
        store_at(out + j, x, group);
      });
    }
    if (streams) end_stream();
  });
}

template <Storage S>
void embedding_backward(const EmbeddingShape& shape, const std::int32_t* tokens, const S* dy, float* dtable) {
  // Threads split the columns: a token may occur often, and its rows must be added in order.
  const std::int64_t cols = shape.cols;
  const std::int64_t rows = shape.batch * shape.seq;
  parallel_for(cols, 4 * kLanes, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < rows; ++row) {
      if (row + kRowsAhead < rows) fetch_row(dtable + tokens[row + kRowsAhead] * cols + begin, end - begin);
      float* sum = dtable + tokens[row] * cols;
      const S* d = dy + row * cols;
      for_lanes(begin, end, [=](auto j, auto count) {
        store_at(sum + j, load_at(sum + j, count) + load_at(d + j, count), count);
      });
    }
  });
}

template <Storage S>
void position_embedding_backward(const EmbeddingShape& shape, const S* dy, float* dpositions,
                                 bool accumulate) {
  const std::int64_t row_size = shape.seq * shape.cols;
  const std::int64_t batch = shape.batch;
  parallel_for(row_size, 1024, [=](std::int64_t begin, std::int64_t end) {
    for_lanes(begin, end, [=](auto j, auto count) {
      Floats sum = load_at(dy + j, count);
      for (std::int64_t b = 1; b < batch; ++b) sum += load_at(dy + b * row_size + j, count);
      store_at(dpositions + j, accumulate ? load_at(dpositions + j, count) + sum : sum, count);
    });
  });
}

template void embedding_forward(const EmbeddingShape&, const std::int32_t*, const float*, const float*,
                                const std::int32_t*, float*);
template void embedding_forward(const EmbeddingShape&, const std::int32_t*, const core::Bf16*,
                                const core::Bf16*, const std::int32_t*, core::Bf16*);
template void embedding_backward(const EmbeddingShape&, const std::int32_t*, const float*, float*);
template void embedding_backward(const EmbeddingShape&, const std::int32_t*, const core::Bf16*, float*);
template void position_embedding_backward(const EmbeddingShape&, const float*, float*, bool);
template void position_embedding_backward(const EmbeddingShape&, const core::Bf16*, float*, bool);

}  // namespace rooflm::backends::cpu

namespace rooflm::backends::cpu::fast {
namespace {

const std::int32_t* ids(const void* data) { return static_cast<const std::int32_t*>(data); }

}  // namespace

/// embedding; and embedding_positions, with a third input, and a fourth when generation continues texts.
Kernel make_embedding(const OpView& v) {
  const DType dtype = v.in(1).dtype;
  // A rank with pieces of sequences, and a table with rows before position 0, run the plain ops.
  const bool is_plain = v.op.attrs.has("parts") || v.op.attrs.has("offset");
  if (is_plain || !v.inputs_are({2}, dtype) || !v.outputs_are({0}, dtype)) return {};
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    const EmbeddingShape shape{v.in(0).shape[0], v.in(0).shape[1], v.in(1).shape[1]};
    const std::int64_t vocab = v.in(1).shape[0];
    const bool has_positions = v.has_in(2);
    const bool has_first = v.has_in(3);
    const std::int64_t limit = has_positions ? v.in(2).shape[0] : 0;
    return [=](const KernelArgs& args) {
      check_ids(ids(args.in[0]), shape.batch * shape.seq, vocab, "token");
      const auto* first = has_first ? checked_first(args.in[3], shape.batch, shape.seq, limit) : nullptr;
      embedding_forward(shape, ids(args.in[0]), static_cast<const S*>(args.in[1]),
                        has_positions ? static_cast<const S*>(args.in[2]) : nullptr, first,
                        static_cast<S*>(args.out[0]));
    };
  });
}

Kernel make_embedding_backward(const OpView& v) {
  if (!v.outputs_are({0}, DType::f32)) return {};
  return with_storage(v.in(1).dtype, [&]<class S>(S) -> Kernel {
    const EmbeddingShape shape{v.in(0).shape[0], v.in(0).shape[1], v.out(0).shape[1]};
    const std::int64_t vocab = v.out(0).shape[0];
    return [=, accumulate = v.accumulates()](const KernelArgs& args) {
      check_ids(ids(args.in[0]), shape.batch * shape.seq, vocab, "token");
      auto* table = static_cast<float*>(args.out[0]);
      if (!accumulate) fill(vocab * shape.cols, 0.0F, table);
      embedding_backward(shape, ids(args.in[0]), static_cast<const S*>(args.in[1]), table);
    };
  });
}

Kernel make_add_positions_backward(const OpView& v) {
  if (!v.outputs_are({0}, DType::f32) || v.op.attrs.has("parts") || v.op.attrs.has("offset")) return {};
  return with_storage(v.in(0).dtype, [&]<class S>(S) -> Kernel {
    const core::Shape& dy = v.in(0).shape;
    const EmbeddingShape shape{dy[0], dy[1], dy[2]};
    const std::int64_t used = shape.seq * shape.cols;
    const std::int64_t unused = v.out(0).shape.numel() - used;
    return [=, accumulate = v.accumulates()](const KernelArgs& args) {
      auto* positions = static_cast<float*>(args.out[0]);
      position_embedding_backward(shape, static_cast<const S*>(args.in[0]), positions, accumulate);
      if (!accumulate) fill(unused, 0.0F, positions + used);
    };
  });
}

MakerRows embedding_rows() {
  namespace ops = program::ops;
  return {{&ops::kEmbedding, make_embedding, "embedding_forward"},
          {&ops::kEmbeddingPositions, make_embedding, "embedding_forward"},
          {&ops::kEmbeddingBackward, make_embedding_backward, "embedding_backward"},
          {&ops::kAddPositionsBackward, make_add_positions_backward, "position_embedding_backward"}};
}

}  // namespace rooflm::backends::cpu::fast
