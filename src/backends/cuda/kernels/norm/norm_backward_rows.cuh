// What a thread of a norm's gradient holds: its places in a row, rows to come, and sums of columns.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "backends/cuda/kernels/mma.cuh"
#include "backends/cuda/kernels/norm/norm.h"
#include "backends/cuda/kernels/norm/norm_shape.cuh"
#include "backends/cuda/kernels/pack.cuh"

namespace rooflm::backends::cuda {

constexpr int kOperands = 3;  // dy, x and the gradient of the residual

/// The operands of a row: dy, x and the gradient of the residual.
enum Operand : int { kDy, kX, kRest };

constexpr int kHalf = kPack / 2;  // columns that are neighbours in any dtype

/// A thread's position in its row. A thread has 16 bytes of every `threads` of them, so that a warp reads and
/// writes whole lines: a pack of 16-bit elements, or one of the two halves of a pack in fp32.
template <class T>
struct RowPlace {
  int thread, threads;  // number of threads that share the row

  /// The first column of a half of pack k.
  __device__ std::int64_t col(int k, int half = 0) const {
    if constexpr (std::is_same_v<T, float>) return std::int64_t{thread + (2 * k + half) * threads} * kHalf;
    return std::int64_t{thread + k * threads} * kPack + half * kHalf;
  }
};

/// The columns of pack k in an fp32 row, which is aligned; zeros beyond its end.
template <class T>
__device__ Pack load_floats(const float* row, const RowPlace<T>& place, int k, std::int64_t cols) {
  Pack pack{};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t col = place.col(k, half);
    if (col >= cols) continue;
    const float4 four = *reinterpret_cast<const float4*>(row + col);
    pack[kHalf * half] = four.x;
    pack[kHalf * half + 1] = four.y;
    pack[kHalf * half + 2] = four.z;
    pack[kHalf * half + 3] = four.w;
  }
  return pack;
}

template <class T>
__device__ void store_floats(float* row, const RowPlace<T>& place, int k, std::int64_t cols,
                             const Pack& pack) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t col = place.col(k, half);
    const int i = kHalf * half;
    if (col < cols)
      *reinterpret_cast<float4*>(row + col) = make_float4(pack[i], pack[i + 1], pack[i + 2], pack[i + 3]);
  }
}

/// The thread's packs of rows to come, each thread's own: no thread waits for another.
template <class T, int kPacks>
class Rows {
 public:
  __device__ Rows(const NormBackward& a, RowPlace<T> place, int stages)
      : a_(&a), place_(place), stages_(stages) {}

  /// Starts copying a row to the stage that is free. Beyond the last row nothing is read.
  __device__ void fetch(std::int64_t row) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        const bool exists = row < a_->rows && place_.col(k, w) < a_->cols;
        const std::int64_t at = exists ? row * a_->cols + place_.col(k, w) : 0;
        copy_16(word(into_, kDy, k, w), static_cast<const T*>(a_->dy) + at, exists);
        copy_16(word(into_, kX, k, w), static_cast<const T*>(a_->x) + at, exists);
        if (a_->d_residual != nullptr)
          copy_16(word(into_, kRest, k, w), static_cast<const T*>(a_->d_residual) + at, exists);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    into_ = into_ + 1 == stages_ ? 0 : into_ + 1;
  }
  /// Waits for the oldest row.
  __device__ void wait() {
    switch (stages_) {
      case 1:
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        break;
      case 2:
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        break;
      case 3:
        asm volatile("cp.async.wait_group 2;" ::: "memory");
        break;
      default:
        asm volatile("cp.async.wait_group 3;" ::: "memory");
    }
  }
  /// Of the oldest row; zeros beyond its end.
  __device__ Pack get(Operand operand, int k, std::int64_t /*row*/) const {
    RawPack<T> raw;
#pragma unroll
    for (int w = 0; w < kWords; ++w) raw.v[w] = *word(from_, operand, k, w);
    return unpack(raw);
  }
  /// The oldest row is done.
  __device__ void pop() { from_ = from_ + 1 == stages_ ? 0 : from_ + 1; }

 private:
  static constexpr int kWords = static_cast<int>(sizeof(RawPack<T>) / sizeof(uint4));

  __device__ uint4* word(int stage, int operand, int k, int w) const {
    extern __shared__ uint4 stages[];
    const int which = ((stage * kOperands + operand) * kPacks + k) * kWords + w;
    return stages + which * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
  }

  const NormBackward* a_;
  RowPlace<T> place_;
  int stages_, into_ = 0, from_ = 0;
};

/// Rows that are not aligned are read when they are needed.
template <int kPacks>
class Rows<Unaligned, kPacks> {
 public:
  __device__ Rows(const NormBackward& a, RowPlace<Unaligned> place, int /*stages*/) : a_(&a), place_(place) {}
  __device__ void fetch(std::int64_t /*row*/) {}
  __device__ void wait() {}
  __device__ Pack get(Operand operand, int k, std::int64_t row) const {
    const void* rows = operand == kDy ? a_->dy : operand == kX ? a_->x : a_->d_residual;
    return load_any(a_->dtype, rows, row * a_->cols, place_.col(k), a_->cols);
  }
  __device__ void pop() {}

 private:
  const NormBackward* a_;
  RowPlace<Unaligned> place_;
};

/// Sums of a thread's columns over its rows, in shared memory: registers are short.
template <int kPacks>
class ColumnSums {
 public:
  __device__ explicit ColumnSums(void* begin) : own_(static_cast<float4*>(begin) + threadIdx.x) {}
  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < 2 * kPacks; ++i) at(i) = make_float4(0, 0, 0, 0);
  }
  __device__ void add(int k, const Pack& pack) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float4& sum = at(2 * k + half);
      const int i = kHalf * half;
      const float4 old = sum;
      sum = make_float4(old.x + pack[i], old.y + pack[i + 1], old.z + pack[i + 2], old.w + pack[i + 3]);
    }
  }
  __device__ Pack get(int k) const {
    const float4 a = at(2 * k);
    const float4 b = at(2 * k + 1);
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
  }

 private:
  __device__ float4& at(int i) const { return own_[i * static_cast<int>(blockDim.x)]; }
  float4* own_;
};

}  // namespace rooflm::backends::cuda
