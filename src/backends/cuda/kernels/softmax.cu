// Causal softmax: one warp per row. It reads the row twice; each lane overwrites only elements that it has
// read.
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/reduce.cuh"
#include "backends/cuda/kernels/softmax.h"

namespace rooflm::backends::cuda {
namespace {

constexpr int kRows = 4;  // rows per block
constexpr int kStep = kWarp * kPack;

/// The row of this warp.
struct Row {
  std::int64_t number, seen, first;
  __device__ explicit Row(std::int64_t seq)
      : number(std::int64_t{blockIdx.x} * kRows + threadIdx.y),
        seen(number % seq + 1),
        first(threadIdx.x * kPack) {}
};

template <class T>
__global__ void __launch_bounds__(kWarp* kRows)
    causal_softmax(std::int64_t rows, std::int64_t seq, float scale, bool aligned, const T* s, T* p) {
  const Row row(seq);
  if (row.number >= rows) return;
  const T* from = s + row.number * seq;
  LogSumExp total;
  for (std::int64_t j = row.first; j < row.seen; j += kStep) {
    const Pack x = load_pack(from, j, seq, aligned);
    LogSumExp part;
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      if (j + i < row.seen) part.greatest = fmaxf(part.greatest, scale * x[i]);
    }
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      if (j + i < row.seen) part.sum += __expf(scale * x[i] - part.greatest);
    }
    total.merge(part);
  }
  total = warp_merge(total);
  const float inverse = 1.0F / total.sum;
  for (std::int64_t j = row.first; j < seq; j += kStep) {
    Pack y{};
    if (j < row.seen) {
      const Pack x = load_pack(from, j, seq, aligned);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        if (j + i < row.seen) y[i] = __expf(scale * x[i] - total.greatest) * inverse;
      }
    }
    store_pack(p + row.number * seq, j, seq, aligned, y);
  }
}

template <class T>
__global__ void __launch_bounds__(kWarp* kRows)
    causal_softmax_backward(std::int64_t rows, std::int64_t seq, float scale, bool aligned, const T* dp,
                            const T* p, T* ds) {
  const Row row(seq);
  if (row.number >= rows) return;
  const T* dps = dp + row.number * seq;
  const T* ps = p + row.number * seq;
  float dot = 0;
  for (std::int64_t j = row.first; j < row.seen; j += kStep) {
    const Pack a = load_pack(dps, j, seq, aligned);
    const Pack b = load_pack(ps, j, seq, aligned);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      if (j + i < row.seen) dot += a[i] * b[i];
    }
  }
  dot = warp_sum(dot);
  for (std::int64_t j = row.first; j < seq; j += kStep) {
    Pack y{};
    if (j < row.seen) {
      const Pack a = load_pack(dps, j, seq, aligned);
      const Pack b = load_pack(ps, j, seq, aligned);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        if (j + i < row.seen) y[i] = scale * b[i] * (a[i] - dot);
      }
    }
    store_pack(ds + row.number * seq, j, seq, aligned, y);
  }
}

}  // namespace

void launch_causal_softmax(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t seq, float scale,
                           const void* s, void* p) {
  const char* what = "causal_softmax";
  with_element(dtype, what, [&]<class T>(T) {
    const bool aligned = seq % kPack == 0 && are_aligned({s, p});
    causal_softmax<<<grid_size(ceil_div(rows, kRows), what), dim3(kWarp, kRows), 0, stream>>>(
        rows, seq, scale, aligned, static_cast<const T*>(s), static_cast<T*>(p));
  });
  check_launch(what);
}

void launch_causal_softmax_backward(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t seq,
                                    float scale, const void* dp, const void* p, void* ds) {
  const char* what = "causal_softmax_backward";
  with_element(dtype, what, [&]<class T>(T) {
    const bool aligned = seq % kPack == 0 && are_aligned({dp, p, ds});
    causal_softmax_backward<<<grid_size(ceil_div(rows, kRows), what), dim3(kWarp, kRows), 0, stream>>>(
        rows, seq, scale, aligned, static_cast<const T*>(dp), static_cast<const T*>(p), static_cast<T*>(ds));
  });
  check_launch(what);
}

}  // namespace rooflm::backends::cuda
