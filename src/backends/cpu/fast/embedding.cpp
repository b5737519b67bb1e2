// Token and position embeddings, forward and backward.
#include "backends/cpu/fast/embedding.h"

#include "backends/cpu/fast/parallel.h"
#include "backends/cpu/fast/vec.h"

namespace rooflm::backends::cpu {

template <Storage S>
void embedding_forward(const EmbeddingShape& shape, const std::int32_t* tokens, const S* table,
                       const S* positions, S* y) {
  const std::int64_t cols = shape.cols;
  const std::int64_t seq = shape.seq;
  parallel_for(shape.batch * seq, 4, [=](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      const S* token = table + tokens[row] * cols;
      const S* position = positions == nullptr ? nullptr : positions + row % seq * cols;
      S* out = y + row * cols;
      for_lanes(0, cols, [=](auto j, auto count) {
        F32x16 x = load_at(token + j, count);
        if (position != nullptr) x += load_at(position + j, count);
        store_at(out + j, x, count);
      });
    }
  });
}

template <Storage S>
void embedding_backward(const EmbeddingShape& shape, const std::int32_t* tokens, const S* dy, float* dtable) {
  // Threads share out the columns: the same token may come often, and its rows are then added in order.
  const std::int64_t cols = shape.cols;
  const std::int64_t rows = shape.batch * shape.seq;
  parallel_for(cols, 4 * kLanes, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < rows; ++row) {
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
      F32x16 sum = load_at(dy + j, count);
      for (std::int64_t b = 1; b < batch; ++b) sum += load_at(dy + b * row_size + j, count);
      store_at(dpositions + j, accumulate ? load_at(dpositions + j, count) + sum : sum, count);
    });
  });
}

template void embedding_forward(const EmbeddingShape&, const std::int32_t*, const float*, const float*,
                                float*);
template void embedding_forward(const EmbeddingShape&, const std::int32_t*, const core::Bf16*,
                                const core::Bf16*, core::Bf16*);
template void embedding_backward(const EmbeddingShape&, const std::int32_t*, const float*, float*);
template void embedding_backward(const EmbeddingShape&, const std::int32_t*, const core::Bf16*, float*);
template void position_embedding_backward(const EmbeddingShape&, const float*, float*, bool);
template void position_embedding_backward(const EmbeddingShape&, const core::Bf16*, float*, bool);

}  // namespace rooflm::backends::cpu
