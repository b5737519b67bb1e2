// Token and position embeddings, and their gradients.
//
// Tables and activations are fp32, bf16 or fp16, `dtype`; table gradients are fp32. tokens int32 [B, T].
// Launchers only submit. They throw core::Unavailable for another dtype and std::runtime_error if a launch
// fails. An id outside the table reads as a row of zeros, gets no gradient, and sets *bad_id in the forward
// kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/kernels/stream.h"
#include "backends/cuda/kernels/token_places.h"
#include "core/dtype.h"

namespace rooflm::backends::cuda {

struct EmbeddingShape {
  std::int64_t batch = 0, seq = 0, cols = 0;
  TokenPlaces places{};  ///< position of token t of [0, T), in its text or from first[b] on
  [[nodiscard]] std::int64_t rows() const { return batch * seq; }
};

/// x[b, t, :] = wte[tokens[b, t], :] (+ wpe[first[b] + place(t), :] unless wpe is null). wte [vocab, C]; wpe
/// [> first[b] + place(t), C]; first int32 [B], null: zeros. The sum is rounded once. *bad_id, unless null,
/// becomes 1 if an id is outside the table.
void launch_embedding(Stream stream, core::DType dtype, const EmbeddingShape& shape, std::int64_t vocab,
                      const std::int32_t* tokens, const void* wte, const void* wpe, const std::int32_t* first,
                      void* x, std::int32_t* bad_id = nullptr);

/// y[b, t, :] = x[b, t, :] + wpe[first[b] + place(t), :], `first` as above; y may be x.
void launch_add_positions(Stream stream, core::DType dtype, const EmbeddingShape& shape, const void* x,
                          const void* wpe, const std::int32_t* first, void* y);

/// dwte[tokens[b, t], :] (+)= dx[b, t, :], dwte fp32 [vocab, C]; without `accumulate` the whole table is
/// zeroed first. Rows of one token are summed in a fixed order. `workspace` has
/// embedding_backward_workspace_bytes bytes, aligned to 256.
void launch_embedding_backward(Stream stream, core::DType dtype, const EmbeddingShape& shape,
                               std::int64_t vocab, const std::int32_t* tokens, const void* dx, float* dwte,
                               bool accumulate, void* workspace);
[[nodiscard]] std::size_t embedding_backward_workspace_bytes(std::int64_t rows, std::int64_t vocab);

/// dwpe[place(t), :] (+)= sum over b of dy[b, t, :], dwpe fp32 [positions, C]; without `accumulate` all other
/// rows become zero.
void launch_add_positions_backward(Stream stream, core::DType dtype, const EmbeddingShape& shape,
                                   std::int64_t positions, const void* dy, float* dwpe, bool accumulate);

}  // namespace rooflm::backends::cuda
