// Cross entropy: a block per row, which reads it once forward and once backward.
#include <algorithm>

#include "backends/cuda/kernels/cross_entropy.h"
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/loss_scale.cuh"
#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/reduce.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kMeanThreads = 1024;

/// Adds the first `count` of eight.
__device__ inline void add_pack(LogSumExp& total, const Pack& pack, std::int64_t count = kPack) {
  LogSumExp part;
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    if (i < count) part.greatest = fmaxf(part.greatest, pack[i]);
  }
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    if (i < count) part.sum += __expf(pack[i] - part.greatest);
  }
  total.merge(part);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    cross_entropy(LossShape shape, bool aligned, const T* logits, const std::int32_t* targets, float* losses,
                  float* lse, std::int32_t* bad_id) {
  const std::int64_t row = blockIdx.x;
  const T* x = logits + row * shape.cols;
  LogSumExp total;
  std::int64_t v = threadIdx.x * kPack;
  if (aligned) {
    constexpr int kFetched = 4;  // loads that are under way at once
    constexpr std::int64_t kStep = kThreads * kPack;
    for (; v + (kFetched - 1) * kStep + kPack <= shape.valid; v += kFetched * kStep) {
      RawPack<T> raw[kFetched];
#pragma unroll
      for (int i = 0; i < kFetched; ++i) raw[i] = load_raw(x + v + i * kStep);
#pragma unroll
      for (int i = 0; i < kFetched; ++i) add_pack(total, unpack(raw[i]));
    }
  }
  for (; v < shape.valid; v += kThreads * kPack) {
    add_pack(total, load_pack(x, v, shape.valid, aligned), shape.valid - v);
  }
  total = block_merge(total);
  if (threadIdx.x > 0) return;
  const std::int32_t target = targets[row];
  const float log_sum = total.value();
  lse[row] = log_sum;
  if (target < 0) {
    losses[row] = 0;
  } else {
    const bool exists = target < shape.valid;
    losses[row] = exists ? log_sum - to_float(x[target]) : __int_as_float(0x7fffffff);
    if (!exists && bad_id != nullptr) *bad_id = 1;
  }
}

/// The gradient of eight logits from `first` on, of a row that takes part.
__device__ inline Pack gradient(Pack pack, std::int64_t first, std::int64_t valid, std::int64_t target,
                                float log_sum, float scale) {
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const float d = scale * __expf(pack[i] - log_sum);
    pack[i] = first + i < valid ? (first + i == target ? d - scale : d) : 0.0F;
  }
  return pack;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_backward(LossShape shape, bool aligned, const T* logits, const std::int32_t* targets,
                           const float* lse, float grad_scale, const float* loss_scale, T* dlogits) {
  const float scale = grad_scale * scale_of(loss_scale);
  const std::int64_t row = blockIdx.x;
  const std::int64_t target = targets[row];
  const std::int64_t valid = target < 0 ? 0 : shape.valid;  // of a row without a target nothing takes part
  const float log_sum = lse[row];
  const T* x = logits + row * shape.cols;
  T* to = dlogits + row * shape.cols;
  std::int64_t v = threadIdx.x * kPack;
  if (aligned) {
    constexpr std::int64_t kStep = kThreads * kPack;
    for (; v + kStep + kPack <= shape.cols; v += 2 * kStep) {  // x may be dlogits: both loads come first
      const Pack a = load_whole(x + v);
      const Pack b = load_whole(x + v + kStep);
      store_whole(to + v, gradient(a, v, valid, target, log_sum, scale));
      store_whole(to + v + kStep, gradient(b, v + kStep, valid, target, log_sum, scale));
    }
  }
  for (; v < shape.cols; v += kThreads * kPack) {
    const Pack pack = load_pack(x, v, shape.cols, aligned);
    store_pack(to, v, shape.cols, aligned, gradient(pack, v, valid, target, log_sum, scale));
  }
}

__global__ void __launch_bounds__(kMeanThreads)
    mean(std::int64_t count, const float* losses, double weight, bool accumulate, float* loss) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kMeanThreads) sum += static_cast<double>(losses[i]);
  sum = block_sum(sum);
  if (threadIdx.x > 0) return;
  const double before = accumulate ? static_cast<double>(*loss) : 0.0;
  *loss = static_cast<float>(before + weight * sum);
}

}  // namespace

void launch_cross_entropy(Stream stream, core::DType dtype, const LossShape& shape, const void* logits,
                          const std::int32_t* targets, float* losses, float* lse, std::int32_t* bad_id) {
  if (shape.rows == 0) return;
  with_element(dtype, "cross_entropy", [&]<class T>(T) {
    const bool aligned = shape.cols % kPack == 0 && are_aligned({logits});
    cross_entropy<<<grid_size(shape.rows, "cross_entropy"), kThreads, 0, stream>>>(
        shape, aligned, static_cast<const T*>(logits), targets, losses, lse, bad_id);
  });
  check_launch("cross_entropy");
}

void launch_cross_entropy_backward(Stream stream, core::DType dtype, const LossShape& shape,
                                   const void* logits, const std::int32_t* targets, const float* lse,
                                   float grad_scale, void* dlogits, const float* loss_scale) {
  if (shape.rows == 0) return;
  with_element(dtype, "cross_entropy_backward", [&]<class T>(T) {
    const bool aligned = shape.cols % kPack == 0 && are_aligned({logits, dlogits});
    cross_entropy_backward<<<grid_size(shape.rows, "cross_entropy_backward"), kThreads, 0, stream>>>(
        shape, aligned, static_cast<const T*>(logits), targets, lse, grad_scale, loss_scale,
        static_cast<T*>(dlogits));
  });
  check_launch("cross_entropy_backward");
}

void launch_mean(Stream stream, std::int64_t count, const float* losses, double weight, bool accumulate,
                 float* loss) {
  mean<<<1, kMeanThreads, 0, stream>>>(count, losses, weight, accumulate, loss);
  check_launch("mean");
}

}  // namespace rooflm::backends::cuda
