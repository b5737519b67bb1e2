// How forward norms distribute a row over a block: each thread holds up to kPacks packs of it.
#pragma once

#include <algorithm>
#include <string>
#include <type_traits>

#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/norm/norm.h"
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

/// 1 / sqrt(x). More precise than rsqrtf, whose error is up to two ulp.
__device__ inline float inverse_root(float x) { return 1.0F / sqrtf(x); }

/// (x - mean) * rstd, the same bits in forward and backward kernels.
__device__ inline float normalised(float x, float mean, float rstd) { return __fmul_rn(x - mean, rstd); }

/// xhat * weight + bias, the same bits in forward and backward kernels.
__device__ inline float scaled(float xhat, float weight, float bias) { return __fmaf_rn(xhat, weight, bias); }

/// Tag for rows that are not aligned; the element type is then known at run time.
struct Unaligned {};

/// As load_pack and store_pack for unaligned rows, beginning at element `row`. One function for all dtypes,
/// since such rows are rare.
__device__ __noinline__ inline Pack load_any(core::DType dtype, const void* from, std::int64_t row,
                                             std::int64_t first, std::int64_t count) {
  Pack pack;
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const std::int64_t at = row + first + i;
    float x = 0;
    if (first + i >= count) {
      x = 0;
    } else if (dtype == core::DType::f32) {
      x = static_cast<const float*>(from)[at];
    } else if (dtype == core::DType::bf16) {
      x = to_float(static_cast<const bf16*>(from)[at]);
    } else {
      x = to_float(static_cast<const fp16*>(from)[at]);
    }
    pack[i] = x;
  }
  return pack;
}

__device__ __noinline__ inline void store_any(core::DType dtype, void* to, std::int64_t row,
                                              std::int64_t first, std::int64_t count, const Pack& pack) {
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const std::int64_t at = row + first + i;
    if (first + i >= count) return;
    if (dtype == core::DType::f32) {
      static_cast<float*>(to)[at] = pack[i];
    } else if (dtype == core::DType::bf16) {
      static_cast<bf16*>(to)[at] = from_float<bf16>(pack[i]);
    } else {
      static_cast<fp16*>(to)[at] = from_float<fp16>(pack[i]);
    }
  }
}

/// A thread's part of a row.
template <int kPacks>
struct RowPart {
  Pack pack[kPacks];

  __device__ static std::int64_t first(int k) {
    return (std::int64_t{threadIdx.x} + std::int64_t{k} * blockDim.x) * kPack;
  }
  /// The row begins at element `row`. T: Unaligned, or the type of `dtype`.
  template <class T>
  __device__ void load(core::DType dtype, const void* from, std::int64_t row, std::int64_t cols) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if constexpr (std::is_same_v<T, Unaligned>) {
        pack[k] = load_any(dtype, from, row, first(k), cols);
      } else {
        RawPack<T> raw{};
        if (first(k) < cols) raw = load_raw(static_cast<const T*>(from) + row + first(k));
        pack[k] = unpack(raw);
      }
    }
  }
  /// An fp32 array of `cols`, or if it is null that number.
  template <class T>
  __device__ void load_or(const float* from, float otherwise, std::int64_t cols) {
    if (from != nullptr) return load<T>(core::DType::f32, from, 0, cols);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) pack[k][i] = otherwise;
    }
  }
  template <class T>
  __device__ void store(core::DType dtype, void* to, std::int64_t row, std::int64_t cols) const {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if constexpr (std::is_same_v<T, Unaligned>) {
        store_any(dtype, to, row, first(k), cols, pack[k]);
      } else {
        if (first(k) < cols) store_whole(static_cast<T*>(to) + row + first(k), pack[k]);
      }
    }
  }
  /// Calls f(index of the element in the thread's part, its column).
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
