// Many tensors in one launch: the list is a kernel argument; each block finds its tensor and piece in it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "backends/cuda/kernels/launch.cuh"

namespace rooflm::backends::cuda {

/// Kernel arguments are limited to 4096 bytes.
constexpr int kMostListBytes = 3800;

template <class Tensor>
constexpr int kListCapacity = kMostListBytes / static_cast<int>(sizeof(Tensor) + sizeof(unsigned));

/// Some tensors, and the first block of each; a block processes kPiece elements of one tensor.
template <class Tensor>
struct TensorList {
  Tensor tensors[kListCapacity<Tensor>];
  unsigned first_block[kListCapacity<Tensor> + 1];
  int count;

  /// The tensor of a block: the last one whose first block is not after it. Empty tensors are not in the
  /// list.
  [[nodiscard]] __device__ int find(unsigned block) const {
    int low = 0;
    int high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (first_block[middle] <= block ? low : high) = middle;
    }
    return low;
  }
};

/// Number of lists for tensors of these sizes.
template <class Tensor>
std::int64_t lists_of(std::span<const std::int64_t> counts) {
  const auto filled =
      std::count_if(counts.begin(), counts.end(), [](std::int64_t count) { return count > 0; });
  return ceil_div(filled, kListCapacity<Tensor>);
}

/// Calls launch(list, blocks, blocks before it) for each list; kPiece elements per block.
template <std::int64_t kPiece, class Tensor, class Launch>
void for_lists(std::span<const Tensor> tensors, const char* what, Launch&& launch) {
  TensorList<Tensor> list{};
  std::int64_t blocks = 0;
  std::int64_t before = 0;
  const auto flush = [&] {
    if (list.count == 0) return;
    list.first_block[list.count] = grid_size(blocks, what);
    launch(list, grid_size(blocks, what), before);
    check_launch(what);
    before += blocks;
    blocks = 0;
    list.count = 0;
  };
  for (const Tensor& tensor : tensors) {
    if (tensor.count == 0) continue;
    if (list.count == kListCapacity<Tensor>) flush();
    list.tensors[list.count] = tensor;
    list.first_block[list.count] = grid_size(blocks, what);
    ++list.count;
    blocks += ceil_div(tensor.count, kPiece);
  }
  flush();
}

}  // namespace rooflm::backends::cuda
