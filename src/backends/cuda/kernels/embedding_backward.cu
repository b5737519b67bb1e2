// Gradient of the token embedding. Tokens are sorted together with their rows, so each row of the table has
// one writer, which adds in a fixed order.
#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "backends/cuda/kernels/column_sums.cuh"
#include "backends/cuda/kernels/embedding.h"
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/reduce.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::size_t kAlignment = 256;
constexpr const char* kWhat = "embedding_backward";

std::size_t aligned_bytes(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

void check(cudaError_t error, const char* doing) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string(kWhat) + ": " + doing + ": " + cudaGetErrorString(error));
  }
}

/// Parts of the workspace: keys before and after sorting, rows before and after, and scratch for the sort.
struct Workspace {
  std::size_t array_bytes, sort_bytes = 0;
  int key_bits;

  Workspace(std::int64_t rows, std::int64_t vocab)
      : array_bytes(aligned_bytes(static_cast<std::size_t>(rows) * sizeof(std::uint32_t))),
        key_bits(std::bit_width(static_cast<std::uint64_t>(vocab))) {
    check(sort(nullptr, nullptr, rows), "sizing the sort");
  }
  [[nodiscard]] std::uint32_t* array(void* base, int i) const {
    return reinterpret_cast<std::uint32_t*>(static_cast<char*>(base) + i * array_bytes);
  }
  /// Sorts keys from array 0 to array 1, values from array 2 to array 3. With a null base it only sets
  /// sort_bytes.
  cudaError_t sort(Stream stream, void* base, std::int64_t rows) {
    void* scratch = base == nullptr ? nullptr : array(base, 4);
    return cub::DeviceRadixSort::SortPairs(scratch, sort_bytes, array(base, 0), array(base, 1),
                                           array(base, 2), array(base, 3), static_cast<int>(rows), 0,
                                           key_bits, stream);
  }
  [[nodiscard]] std::size_t bytes() const { return 4 * array_bytes + sort_bytes; }
};

/// Ids outside the table become `vocab` and sort to the end.
__global__ void __launch_bounds__(kThreads)
    number_rows(std::int64_t rows, std::int64_t vocab, const std::int32_t* tokens, std::uint32_t* keys,
                std::uint32_t* values) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= rows) return;
  const bool exists = tokens[i] >= 0 && tokens[i] < vocab;
  keys[i] = static_cast<std::uint32_t>(exists ? tokens[i] : vocab);
  values[i] = static_cast<std::uint32_t>(i);
}

/// Block (index in the sorted list, tile of columns): works only where the rows of a token begin.
template <class T>
__global__ void __launch_bounds__(kWarp* kSumLanes)
    add_rows(std::int64_t rows, std::int64_t cols, std::int64_t vocab, bool aligned,
             const std::uint32_t* keys, const std::uint32_t* values, const T* dx, float* dwte) {
  const std::int64_t begin = blockIdx.x;
  const std::uint32_t key = keys[begin];
  if (key >= vocab || (begin > 0 && keys[begin - 1] == key)) return;
  const std::int64_t col = std::int64_t{blockIdx.y} * kSumTile + threadIdx.x * kPack;
  Pack total{};
#pragma unroll 4
  for (std::int64_t i = begin + threadIdx.y; i < rows && keys[i] == key; i += kSumLanes) {
    const Pack pack = load_pack(dx + values[i] * cols, col, cols, aligned);
#pragma unroll
    for (int k = 0; k < kPack; ++k) total[k] += pack[k];
  }
  sum_lanes(total, blockIdx.y, cols, [=](std::int64_t c, float sum) { dwte[key * cols + c] += sum; });
}

}  // namespace

void launch_embedding_backward(Stream stream, core::DType dtype, const EmbeddingShape& shape,
                               std::int64_t vocab, const std::int32_t* tokens, const void* dx, float* dwte,
                               bool accumulate, void* workspace) {
  if (!accumulate) {
    const std::size_t bytes = static_cast<std::size_t>(vocab * shape.cols) * sizeof(float);
    check(cudaMemsetAsync(dwte, 0, bytes, stream), "zeroing the gradient");
  }
  const std::int64_t rows = shape.rows();
  if (rows == 0) return;
  Workspace w(rows, vocab);
  number_rows<<<grid_size(ceil_div(rows, kThreads), kWhat), kThreads, 0, stream>>>(
      rows, vocab, tokens, w.array(workspace, 0), w.array(workspace, 2));
  check_launch(kWhat);
  check(w.sort(stream, workspace, rows), "sorting tokens");
  with_element(dtype, kWhat, [&]<class T>(T) {
    const dim3 grid(grid_size(rows, kWhat), static_cast<unsigned>(ceil_div(shape.cols, kSumTile)));
    const bool aligned = shape.cols % kPack == 0 && are_aligned({dx});
    add_rows<<<grid, dim3(kWarp, kSumLanes), 0, stream>>>(rows, shape.cols, vocab, aligned,
                                                          w.array(workspace, 1), w.array(workspace, 3),
                                                          static_cast<const T*>(dx), dwte);
  });
  check_launch(kWhat);
}

std::size_t embedding_backward_workspace_bytes(std::int64_t rows, std::int64_t vocab) {
  return rows == 0 ? 0 : Workspace(rows, vocab).bytes();
}

}  // namespace rooflm::backends::cuda
