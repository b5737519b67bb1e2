// How norms forward lay a row over a block: one block per row, every thread up to kPacks packs of it.
#pragma once

#include <algorithm>
#include <string>
#include <type_traits>

#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/norm.h"
#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/reduce.cuh"

namespace rooflm::backends::cuda {

enum class Norm { layer, rms };

constexpr int kMostNormThreads = 512;

/// Threads of a block and packs per thread.
struct NormShape {
  int threads, packs;
  explicit NormShape(std::int64_t cols) : threads(kWarp), packs(1) {
    const std::int64_t all = ceil_div(cols, kPack);
    while (all > packs * std::int64_t{kMostNormThreads}) packs *= 2;
    threads = static_cast<int>(ceil_div(ceil_div(all, packs), kWarp) * kWarp);
  }
};

/// Throws core::Unavailable for rows that are too long.
inline void check_norm_cols(std::int64_t cols, const char* what) {
  if (cols > kMaxNormCols) {
    throw core::Unavailable(std::string(what) + " on cuda: rows of " + std::to_string(cols) +
                            " elements, the most is " + std::to_string(kMaxNormCols));
  }
}

/// Calls body with the number of packs per thread as a type: std::integral_constant.
template <class Body>
void with_packs(std::int64_t cols, const char* what, Body&& body) {
  check_norm_cols(cols, what);
  switch (NormShape(cols).packs) {
    case 1:
      return body(std::integral_constant<int, 1>{});
    case 2:
      return body(std::integral_constant<int, 2>{});
    default:
      return body(std::integral_constant<int, 4>{});
  }
}

/// A thread's part of a row.
template <int kPacks>
struct RowPart {
  Pack pack[kPacks];

  __device__ static std::int64_t first(int k) {
    return (std::int64_t{threadIdx.x} + std::int64_t{k} * blockDim.x) * kPack;
  }
  template <class T>
  __device__ void load(const T* row, std::int64_t cols, bool aligned) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) pack[k] = load_pack(row, first(k), cols, aligned);
  }
  template <class T>
  __device__ void store(T* row, std::int64_t cols, bool aligned) const {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) store_pack(row, first(k), cols, aligned, pack[k]);
  }
  /// f(element number in the thread's part, its column)
  template <class F>
  __device__ static void for_each(std::int64_t cols, F f) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        if (first(k) + i < cols) f(k, i);
      }
    }
  }
};

}  // namespace rooflm::backends::cuda
