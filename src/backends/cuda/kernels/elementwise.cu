// Elementwise kernels: eight elements per thread.
#include "backends/cuda/kernels/elementwise.h"
#include "backends/cuda/kernels/gelu.cuh"
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/swiglu.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kThreads = 256;

struct Add {
  __device__ float operator()(float x, float y) const { return x + y; }
};

struct Identity {
  __device__ float operator()(float x) const { return x; }
};

/// out[i] = f(in[i] ...)
template <class F, class Out, class... In>
__global__ void __launch_bounds__(kThreads)
    map(std::int64_t count, bool aligned, F f, Out* out, const In*... in) {
  const std::int64_t first = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kPack;
  if (first >= count) return;
  const auto apply = [&](const auto&... packs) {
    Pack result;
#pragma unroll
    for (int i = 0; i < kPack; ++i) result[i] = f(packs[i]...);
    return result;
  };
  store_pack(out, first, count, aligned, apply(load_pack(in, first, count, aligned)...));
}

template <class F, class Out, class... In>
void launch_map(Stream stream, const char* what, std::int64_t count, F f, Out* out, const In*... in) {
  if (count == 0) return;
  const unsigned blocks = grid_size(ceil_div(count, std::int64_t{kThreads} * kPack), what);
  map<<<blocks, kThreads, 0, stream>>>(count, are_aligned({out, in...}), f, out, in...);
  check_launch(what);
}

/// Row and column of pack number i, with rows of `cols` elements.
struct Place {
  std::int64_t row, col;
  __device__ Place(std::int64_t pack, std::int64_t cols) {
    const std::int64_t per_row = (cols + kPack - 1) / kPack;
    constexpr std::int64_t kNarrow = 0xffffffff;
    row = pack <= kNarrow && per_row <= kNarrow  // 64-bit division is several times slower
              ? static_cast<unsigned>(pack) / static_cast<unsigned>(per_row)
              : pack / per_row;
    col = (pack - row * per_row) * kPack;
  }
};

__device__ inline std::int64_t own_pack() { return std::int64_t{blockIdx.x} * kThreads + threadIdx.x; }

template <class T>
__global__ void __launch_bounds__(kThreads)
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
__global__ void __launch_bounds__(kThreads)
    swiglu(std::int64_t rows, std::int64_t width, bool aligned, const T* h, T* y) {
  const Place at(own_pack(), width);
  if (at.row >= rows) return;
  const T* row = h + at.row * 2 * width;
  const Pack gate = load_pack(row, at.col, width, aligned);
  const Pack up = load_pack(row + width, at.col, width, aligned);
  store_pack(y + at.row * width, at.col, width, aligned, swiglu_of<T>(gate, up));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
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
__global__ void __launch_bounds__(kThreads)
    bias_add(std::int64_t rows, std::int64_t cols, bool aligned, const T* x, const float* bias, T* y) {
  const Place at(own_pack(), cols);
  if (at.row >= rows) return;
  Pack result = load_pack(x + at.row * cols, at.col, cols, aligned);
  const Pack b = load_pack(bias, at.col, cols, aligned);
#pragma unroll
  for (int i = 0; i < kPack; ++i) result[i] += b[i];
  store_pack(y + at.row * cols, at.col, cols, aligned, result);
}

unsigned row_blocks(std::int64_t rows, std::int64_t cols, const char* what) {
  return grid_size(ceil_div(rows * ceil_div(cols, kPack), kThreads), what);
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
    sum_parts<<<row_blocks(1, count, "sum_parts"), kThreads, 0, stream>>>(
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
    swiglu<<<row_blocks(rows, width, "swiglu"), kThreads, 0, stream>>>(
        rows, width, aligned, static_cast<const T*>(h), static_cast<T*>(y));
  });
  check_launch("swiglu");
}

void launch_swiglu_backward(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t width,
                            const void* dy, const void* h, void* dh, void* y) {
  if (rows == 0) return;
  with_element(dtype, "swiglu_backward", [&]<class T>(T) {
    const bool aligned = width % kPack == 0 && are_aligned({dy, h, dh, y});
    swiglu_backward<<<row_blocks(rows, width, "swiglu_backward"), kThreads, 0, stream>>>(
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
    bias_add<<<row_blocks(rows, cols, "bias_add"), kThreads, 0, stream>>>(
        rows, cols, aligned, static_cast<const T*>(x), bias, static_cast<T*>(y));
  });
  check_launch("bias_add");
}

}  // namespace rooflm::backends::cuda
