// Elementwise kernels: eight elements per thread.
#include "backends/cuda/kernels/elementwise.cuh"
#include "backends/cuda/kernels/elementwise.h"
#include "backends/cuda/kernels/gelu.cuh"
#include "backends/cuda/kernels/swiglu.cuh"

namespace rooflm::backends::cuda {
namespace {

struct Add {
  __device__ float operator()(float x, float y) const { return x + y; }
};

struct Identity {
  __device__ float operator()(float x) const { return x; }
};

template <class T>
__global__ void __launch_bounds__(kElementThreads)
    sum_parts(std::int64_t count, int parts, bool aligned, const T* x, T* y, bool accumulate) {
  const std::int64_t at = own_pack() * kPack;
  if (at >= count) return;
  Pack sum = load_pack(x, at, count, aligned);
  for (int part = 1; part < parts; ++part) {
    const Pack next = load_pack(x + part * count, at, count, aligned);
#pragma unroll
    for (int i = 0; i < kPack; ++i) sum[i] += next[i];
  }
  if (accumulate) {
    const Pack before = load_pack(y, at, count, aligned);
#pragma unroll
    for (int i = 0; i < kPack; ++i) sum[i] = rounded<T>(sum[i]) + before[i];
  }
  store_pack(y, at, count, aligned, sum);
}

template <class T>
__global__ void __launch_bounds__(kElementThreads)
    swiglu(std::int64_t rows, std::int64_t width, bool aligned, const T* h, T* y) {
  follow_previous();
  const Place at(own_pack(), width);
  if (at.row >= rows) return;
  const T* row = h + at.row * 2 * width;
  const Pack gate = load_pack(row, at.col, width, aligned);
  const Pack up = load_pack(row + width, at.col, width, aligned);
  store_pack(y + at.row * width, at.col, width, aligned, swiglu_of<T>(gate, up));
}

template <class T>
__global__ void __launch_bounds__(kElementThreads)
    swiglu_backward(std::int64_t rows, std::int64_t width, bool aligned, const T* dy, const T* h, T* dh,
                    T* y) {
  const Place at(own_pack(), width);
  if (at.row >= rows) return;
  const T* row = h + at.row * 2 * width;
  const Pack d = load_pack(dy + at.row * width, at.col, width, aligned);
  const Pack gate = load_pack(row, at.col, width, aligned);
  const Pack up = load_pack(row + width, at.col, width, aligned);
  const Pack d_gate = swiglu_d_gate<T>(d, gate, up);
  const Pack d_up = swiglu_d_up<T>(d, gate);
  T* to = dh + at.row * 2 * width;
  store_pack(to, at.col, width, aligned, d_gate);
  store_pack(to + width, at.col, width, aligned, d_up);
  if (y != nullptr) store_pack(y + at.row * width, at.col, width, aligned, swiglu_of<T>(gate, up));
}

template <class T>
__global__ void __launch_bounds__(kElementThreads)
    bias_add(std::int64_t rows, std::int64_t cols, bool aligned, const T* x, const float* bias, T* y) {
  follow_previous();
  const Place at(own_pack(), cols);
  if (at.row >= rows) return;
  Pack result = load_pack(x + at.row * cols, at.col, cols, aligned);
  const Pack b = load_pack(bias, at.col, cols, aligned);
#pragma unroll
  for (int i = 0; i < kPack; ++i) result[i] += b[i];
  store_pack(y + at.row * cols, at.col, cols, aligned, result);
}

}  // namespace

void launch_add(Stream stream, core::DType dtype, std::int64_t count, const void* x, const void* y, void* z) {
  with_element(dtype, "add", [&]<class T>(T) {
    launch_map(stream, "add", count, Add{}, static_cast<T*>(z), static_cast<const T*>(x),
               static_cast<const T*>(y));
  });
}

void launch_sum_parts(Stream stream, core::DType dtype, std::int64_t count, int parts, const void* x, void* y,
                      bool accumulate) {
  if (count == 0) return;
  with_element(dtype, "sum_parts", [&]<class T>(T) {
    const bool aligned = count % kPack == 0 && are_aligned({x, y});
    sum_parts<<<row_blocks(1, count, "sum_parts"), kElementThreads, 0, stream>>>(
        count, parts, aligned, static_cast<const T*>(x), static_cast<T*>(y), accumulate);
  });
  check_launch("sum_parts");
}

void launch_cast(Stream stream, std::int64_t count, core::DType from, const void* x, core::DType to,
                 void* y) {
  with_element(from, "cast", [&]<class In>(In) {
    with_element(to, "cast", [&]<class Out>(Out) {
      launch_map(stream, "cast", count, Identity{}, static_cast<Out*>(y), static_cast<const In*>(x));
    });
  });
}

void launch_gelu(Stream stream, core::DType dtype, std::int64_t count, const void* x, void* y) {
  with_element(dtype, "gelu", [&]<class T>(T) {
    launch_map(stream, "gelu", count, Gelu<T>{}, static_cast<T*>(y), static_cast<const T*>(x));
  });
}

void launch_swiglu(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t width, const void* h,
                   void* y) {
  if (rows == 0) return;
  with_element(dtype, "swiglu", [&]<class T>(T) {
    const bool aligned = width % kPack == 0 && are_aligned({h, y});
    launch_chained(stream, "swiglu", swiglu<T>, dim3(row_blocks(rows, width, "swiglu")), kElementThreads, 0,
                   rows, width, aligned, static_cast<const T*>(h), static_cast<T*>(y));
  });
}

void launch_swiglu_backward(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t width,
                            const void* dy, const void* h, void* dh, void* y) {
  if (rows == 0) return;
  with_element(dtype, "swiglu_backward", [&]<class T>(T) {
    const bool aligned = width % kPack == 0 && are_aligned({dy, h, dh, y});
    swiglu_backward<<<row_blocks(rows, width, "swiglu_backward"), kElementThreads, 0, stream>>>(
        rows, width, aligned, static_cast<const T*>(dy), static_cast<const T*>(h), static_cast<T*>(dh),
        static_cast<T*>(y));
  });
  check_launch("swiglu_backward");
}

void launch_bias_add(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t cols, const void* x,
                     const float* bias, void* y) {
  if (rows == 0) return;
  with_element(dtype, "bias_add", [&]<class T>(T) {
    const bool aligned = cols % kPack == 0 && are_aligned({x, bias, y});
    launch_chained(stream, "bias_add", bias_add<T>, dim3(row_blocks(rows, cols, "bias_add")), kElementThreads,
                   0, rows, cols, aligned, static_cast<const T*>(x), bias, static_cast<T*>(y));
  });
}

}  // namespace rooflm::backends::cuda
