// Embeddings: one block per row. Positions and their gradient: one thread per pack.
#include <algorithm>

#include "backends/cuda/kernels/embedding.h"
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/token_places.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kThreads = 256;

/// Threads of a block with one row: at most one per pack.
int row_threads(std::int64_t cols) {
  constexpr std::int64_t kWhole = 32;
  return static_cast<int>(std::min<std::int64_t>(kThreads, ceil_div(ceil_div(cols, kPack), kWhole) * kWhole));
}

/// The position of a row in its text.
__device__ std::int64_t position_of(const EmbeddingShape& shape, const std::int32_t* first,
                                    std::int64_t row) {
  return place_of(shape.places, row % shape.seq) + (first == nullptr ? 0 : first[row / shape.seq]);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    embedding(EmbeddingShape shape, std::int64_t vocab, bool aligned, const std::int32_t* tokens,
              const T* wte, const T* wpe, const std::int32_t* first, T* x, std::int32_t* bad_id) {
  const std::int64_t row = blockIdx.x;
  const std::int64_t token = tokens[row];
  const bool exists = token >= 0 && token < vocab;
  if (!exists && bad_id != nullptr && threadIdx.x == 0) *bad_id = 1;
  const T* from = wte + token * shape.cols;
  const T* position = wpe == nullptr ? nullptr : wpe + position_of(shape, first, row) * shape.cols;
  for (std::int64_t col = threadIdx.x * kPack; col < shape.cols; col += blockDim.x * kPack) {
    Pack pack{};
    if (exists) pack = load_pack(from, col, shape.cols, aligned);
    if (position != nullptr) {
      const Pack add = load_pack(position, col, shape.cols, aligned);
#pragma unroll
      for (int i = 0; i < kPack; ++i) pack[i] += add[i];
    }
    store_pack(x + row * shape.cols, col, shape.cols, aligned, pack);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) add_positions(EmbeddingShape shape, bool aligned, const T* x,
                                                          const T* wpe, const std::int32_t* first, T* y) {
  const std::int64_t row = blockIdx.x;
  const T* position = wpe + position_of(shape, first, row) * shape.cols;
  for (std::int64_t col = threadIdx.x * kPack; col < shape.cols; col += blockDim.x * kPack) {
    Pack pack = load_pack(x + row * shape.cols, col, shape.cols, aligned);
    const Pack add = load_pack(position, col, shape.cols, aligned);
#pragma unroll
    for (int i = 0; i < kPack; ++i) pack[i] += add[i];
    store_pack(y + row * shape.cols, col, shape.cols, aligned, pack);
  }
}

/// Block (t, tile of columns).
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_positions_backward(EmbeddingShape shape, bool aligned, const T* dy, float* dwpe, bool accumulate) {
  const std::int64_t t = blockIdx.x;
  const std::int64_t col = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kPack;
  if (col >= shape.cols) return;
  float* to = dwpe + place_of(shape.places, t) * shape.cols;
  Pack total{};
  if (accumulate) total = load_pack(to, col, shape.cols, aligned);
  if (t < shape.seq) {
#pragma unroll 4
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      const Pack add = load_pack(dy + (b * shape.seq + t) * shape.cols, col, shape.cols, aligned);
#pragma unroll
      for (int i = 0; i < kPack; ++i) total[i] += add[i];
    }
  }
  store_pack(to, col, shape.cols, aligned, total);
}

}  // namespace

void launch_embedding(Stream stream, core::DType dtype, const EmbeddingShape& shape, std::int64_t vocab,
                      const std::int32_t* tokens, const void* wte, const void* wpe, const std::int32_t* first,
                      void* x, std::int32_t* bad_id) {
  const char* what = wpe == nullptr ? "embedding" : "embedding_positions";
  with_element(dtype, what, [&]<class T>(T) {
    const bool aligned = shape.cols % kPack == 0 && are_aligned({wte, wpe, x});
    embedding<<<grid_size(shape.rows(), what), row_threads(shape.cols), 0, stream>>>(
        shape, vocab, aligned, tokens, static_cast<const T*>(wte), static_cast<const T*>(wpe), first,
        static_cast<T*>(x), bad_id);
  });
  check_launch(what);
}

void launch_add_positions(Stream stream, core::DType dtype, const EmbeddingShape& shape, const void* x,
                          const void* wpe, const std::int32_t* first, void* y) {
  with_element(dtype, "add_positions", [&]<class T>(T) {
    const bool aligned = shape.cols % kPack == 0 && are_aligned({x, wpe, y});
    add_positions<<<grid_size(shape.rows(), "add_positions"), row_threads(shape.cols), 0, stream>>>(
        shape, aligned, static_cast<const T*>(x), static_cast<const T*>(wpe), first, static_cast<T*>(y));
  });
  check_launch("add_positions");
}

void launch_add_positions_backward(Stream stream, core::DType dtype, const EmbeddingShape& shape,
                                   std::int64_t positions, const void* dy, float* dwpe, bool accumulate) {
  const char* what = "add_positions_backward";
  const int threads = row_threads(shape.cols);
  if (shape.places.is_split() && !accumulate) {  // rows between the rank's own belong to other ranks
    const auto bytes = static_cast<std::size_t>(positions * shape.cols) * sizeof(float);
    if (cudaMemsetAsync(dwpe, 0, bytes, stream) != cudaSuccess) check_launch(what);
    accumulate = true;
  }
  const dim3 grid(grid_size(accumulate ? shape.seq : positions, what),
                  static_cast<unsigned>(ceil_div(shape.cols, std::int64_t{threads} * kPack)));
  with_element(dtype, what, [&]<class T>(T) {
    const bool aligned = shape.cols % kPack == 0 && are_aligned({dy, dwpe});
    add_positions_backward<<<grid, threads, 0, stream>>>(shape, aligned, static_cast<const T*>(dy), dwpe,
                                                         accumulate);
  });
  check_launch(what);
}

}  // namespace rooflm::backends::cuda
