// Cross entropy: one block per row, which reads the row once forward and once backward.
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

/// Adds the first `count` of eight elements.
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

/// The loss of a row whose logits are `x`. `bad_id` may be null.
template <class T>
__device__ float loss_of(const T* x, std::int32_t target, std::int64_t valid, float log_sum,
                         std::int32_t* bad_id) {
  if (target < 0) return 0.0F;
  if (target < valid) return log_sum - to_float(x[target]);
  if (bad_id != nullptr) *bad_id = 1;
  return __int_as_float(0x7fffffff);
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
    constexpr int kFetched = 4;  // loads in flight
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
  const float log_sum = total.value();
  lse[row] = log_sum;
  losses[row] = loss_of(x, targets[row], shape.valid, log_sum, bad_id);
}

/// The gradient of eight logits from `first` on, in a row that has a target.
__device__ inline Pack gradient(Pack pack, std::int64_t first, std::int64_t valid, std::int64_t target,
                                float log_sum, float scale) {
  const bool whole = first + kPack <= valid;
#pragma unroll
  for (int i = 0; i < kPack; ++i) pack[i] = scale * __expf(pack[i] - log_sum);
  if (!whole) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) pack[i] = first + i < valid ? pack[i] : 0.0F;
  }
  if (target >= first && target < first + kPack && target < valid) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) pack[i] -= first + i == target ? scale : 0.0F;
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
  const std::int64_t valid = target < 0 ? 0 : shape.valid;  // a row without a target is skipped
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

/// The computations of both launches, in the same order, with the row kept in shared memory between them.
template <class T>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_with_gradient(LossShape shape, const T* logits, const std::int32_t* targets,
                                float grad_scale, const float* loss_scale, float* losses, float* lse,
                                T* dlogits, std::int32_t* bad_id) {
  const float scale = grad_scale * scale_of(loss_scale);
  constexpr std::int64_t kStep = kThreads * kPack;
  constexpr int kFetched = 4;  // loads in flight
  extern __shared__ uint4 kept[];
  const std::int64_t row = blockIdx.x;
  const T* x = logits + row * shape.cols;
  T* row_kept = reinterpret_cast<T*>(kept);
  LogSumExp total;
  for (std::int64_t v = threadIdx.x * kPack; v < shape.valid; v += kFetched * kStep) {
    RawPack<T> raw[kFetched];
#pragma unroll
    for (int i = 0; i < kFetched; ++i) {
      if (v + i * kStep < shape.valid) raw[i] = load_raw(x + v + i * kStep);
    }
#pragma unroll
    for (int i = 0; i < kFetched; ++i) {
      const std::int64_t at = v + i * kStep;
      if (at >= shape.valid) break;
      *reinterpret_cast<RawPack<T>*>(row_kept + at) = raw[i];
      if (at + kPack <= shape.valid) {
        add_pack(total, unpack(raw[i]));
      } else {
        add_pack(total, unpack(raw[i]), shape.valid - at);
      }
    }
  }
  total = block_merge(total);  // the barrier also makes the row visible to all threads
  const float log_sum = total.value();
  const std::int32_t target = targets[row];
  if (threadIdx.x == 0) {
    lse[row] = log_sum;
    losses[row] = loss_of(row_kept, target, shape.valid, log_sum, bad_id);
  }
  const std::int64_t valid = target < 0 ? 0 : shape.valid;
  T* to = dlogits + row * shape.cols;
  for (std::int64_t v = threadIdx.x * kPack; v < shape.cols; v += kStep) {
    const Pack pack = v < valid ? load_whole(row_kept + v) : Pack{};
    store_whole(to + v, gradient(pack, v, valid, target, log_sum, scale));
  }
}

/// Requests so much shared memory for a block; returns whether the device grants it.
template <class T>
bool reserve_row(std::size_t bytes) {
  constexpr std::size_t kOthers = 1024;  // shared memory that the kernel and the device need besides
  int device = 0;
  int most = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) != cudaSuccess ||
      bytes + kOthers > static_cast<std::size_t>(most)) {
    return false;
  }
  return cudaFuncSetAttribute(cross_entropy_with_gradient<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes)) == cudaSuccess;
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

/// Whether a row of logits fits in shared memory and can be read by vectors.
template <class T>
bool row_fits(const LossShape& shape) {
  return shape.cols % kPack == 0 && reserve_row<T>(static_cast<std::size_t>(shape.cols) * sizeof(T));
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

std::int64_t cross_entropy_with_gradient_launches(core::DType dtype, const LossShape& shape) {
  bool fits = false;
  with_element(dtype, "cross_entropy_with_gradient", [&]<class T>(T) { fits = row_fits<T>(shape); });
  return fits ? 1 : 2;
}

void launch_cross_entropy_with_gradient(Stream stream, core::DType dtype, const LossShape& shape,
                                        const void* logits, const std::int32_t* targets, float grad_scale,
                                        float* losses, float* lse, void* dlogits, const float* loss_scale,
                                        std::int32_t* bad_id) {
  constexpr const char* kWhat = "cross_entropy_with_gradient";
  if (shape.rows == 0) return;
  bool fits = false;
  with_element(dtype, kWhat, [&]<class T>(T) {
    const std::size_t bytes = static_cast<std::size_t>(shape.cols) * sizeof(T);
    fits = are_aligned({logits, dlogits}) && row_fits<T>(shape);
    if (!fits) return;
    cross_entropy_with_gradient<<<grid_size(shape.rows, kWhat), kThreads, bytes, stream>>>(
        shape, static_cast<const T*>(logits), targets, grad_scale, loss_scale, losses, lse,
        static_cast<T*>(dlogits), bad_id);
  });
  check_launch(kWhat);
  if (fits) return;
  launch_cross_entropy(stream, dtype, shape, logits, targets, losses, lse, bad_id);
  launch_cross_entropy_backward(stream, dtype, shape, logits, targets, lse, grad_scale, dlogits, loss_scale);
}

void launch_mean(Stream stream, std::int64_t count, const float* losses, double weight, bool accumulate,
                 float* loss) {
  mean<<<1, kMeanThreads, 0, stream>>>(count, losses, weight, accumulate, loss);
  check_launch("mean");
}

}  // namespace rooflm::backends::cuda
