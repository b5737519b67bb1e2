// Cross entropy: one block per row, which reads the row once forward and once backward.
#include <algorithm>
#include <type_traits>

#include "backends/cuda/kernels/cross_entropy.h"
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/loss_scale.cuh"
#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/reduce.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kMeanThreads = 1024;
/// Rows that take more than half of the shared memory leave room for one block on a multiprocessor. It has
/// twice the threads, so that as many loads are in flight.
constexpr int kLongThreads = 1024;
/// Packs of a long row that a thread keeps in registers if shared memory is too small for it: 80 KB of a row
/// in 16 bits.
constexpr int kHeldPacks = 5;

template <class T>
constexpr bool has_long_rows = sizeof(T) == 2;  // more bytes in flight than registers of 1024 threads hold

/// The shared memory that a block may keep a row in.
std::size_t most_kept_bytes() {
  constexpr std::size_t kOthers = 1024;  // that the kernel and the device need besides
  int device = 0;
  int most = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) != cudaSuccess) {
    return 0;
  }
  return static_cast<std::size_t>(most) - kOthers;
}

/// Calls body with the number of threads of a row as a type: std::integral_constant. The same for all
/// kernels, so that sums have the same bits.
template <class T, class Body>
void with_threads(std::int64_t cols, Body&& body) {
  if constexpr (has_long_rows<T>) {
    if (static_cast<std::size_t>(cols) * sizeof(T) > most_kept_bytes() / 2)
      return body(std::integral_constant<int, kLongThreads>{});
  }
  body(std::integral_constant<int, kThreads>{});
}

/// x -> exp(x - shift). Of logits of 16 bits by one multiply-add before the exponential, whose rounding error
/// is that of the shift; in fp32 the difference comes first.
template <class T>
class Exponential {
 public:
  __device__ explicit Exponential(float shift) : shift_(kIsNarrow ? shift * kLog2OfE : shift) {}
  __device__ float operator()(float x) const {
    if constexpr (!kIsNarrow) return __expf(x - shift_);
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(__fmaf_rn(x, kLog2OfE, -shift_)));
    return result;
  }

 private:
  static constexpr bool kIsNarrow = sizeof(T) == 2;
  static constexpr float kLog2OfE = 1.4426950408889634F;
  float shift_;
};

/// Adds the first `count` of eight elements.
template <class T, class Index = int>
__device__ void add_pack(LogSumExp& total, const Pack& pack, Index count = kPack) {
  LogSumExp part;
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    if (i < count) part.greatest = fmaxf(part.greatest, pack[i]);
  }
  const Exponential<T> exponential(part.greatest);
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    if (i < count) part.sum += exponential(pack[i]);
  }
  total.merge(part);
}

/// The logit of a row's target; 0 if it has none.
template <class T>
__device__ float logit_of(const T* x, std::int32_t target, std::int64_t valid) {
  return target >= 0 && target < valid ? to_float(x[target]) : 0.0F;
}

/// The loss of a row. `bad_id` may be null.
__device__ inline float loss_of(float logit, std::int32_t target, std::int64_t valid, float log_sum,
                                std::int32_t* bad_id) {
  if (target < 0) return 0.0F;
  if (target < valid) return log_sum - logit;
  if (bad_id != nullptr) *bad_id = 1;
  return __int_as_float(0x7fffffff);
}

template <class T, int kThreadsOf>
__global__ void __launch_bounds__(kThreadsOf)
    cross_entropy(LossShape shape, bool aligned, const T* logits, const std::int32_t* targets, float* losses,
                  float* lse, std::int32_t* bad_id) {
  const std::int64_t row = blockIdx.x;
  const T* x = logits + row * shape.cols;
  LogSumExp total;
  std::int64_t v = threadIdx.x * kPack;
  if (aligned) {
    constexpr int kFetched = 4;  // loads in flight
    constexpr std::int64_t kStep = kThreadsOf * kPack;
    for (; v + (kFetched - 1) * kStep + kPack <= shape.valid; v += kFetched * kStep) {
      RawPack<T> raw[kFetched];
#pragma unroll
      for (int i = 0; i < kFetched; ++i) raw[i] = load_raw(x + v + i * kStep);
#pragma unroll
      for (int i = 0; i < kFetched; ++i) add_pack<T>(total, unpack(raw[i]));
    }
  }
  for (; v < shape.valid; v += kThreadsOf * kPack) {
    add_pack<T>(total, load_pack(x, v, shape.valid, aligned), shape.valid - v);
  }
  total = block_merge(total);
  if (threadIdx.x > 0) return;
  const float log_sum = total.value();
  lse[row] = log_sum;
  const std::int32_t target = targets[row];
  losses[row] = loss_of(logit_of(x, target, shape.valid), target, shape.valid, log_sum, bad_id);
}

/// The gradient of eight logits from `first` on, in a row that has a target.
template <class T, class Index>
__device__ Pack gradient(Pack pack, Index first, Index valid, Index target, float log_sum, float scale) {
  const bool whole = first + kPack <= valid;
  const Exponential<T> exponential(log_sum);
#pragma unroll
  for (int i = 0; i < kPack; ++i) pack[i] = scale * exponential(pack[i]);
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
      store_whole(to + v, gradient<T>(a, v, valid, target, log_sum, scale));
      store_whole(to + v + kStep, gradient<T>(b, v + kStep, valid, target, log_sum, scale));
    }
  }
  for (; v < shape.cols; v += kThreads * kPack) {
    const Pack pack = load_pack(x, v, shape.cols, aligned);
    store_pack(to, v, shape.cols, aligned, gradient<T>(pack, v, valid, target, log_sum, scale));
  }
}

/// Adds the elements of a pack from column `at` on that count.
template <class T>
__device__ void add_valid(LogSumExp& total, const RawPack<T>& raw, int at, int valid) {
  if (at + kPack <= valid) {
    add_pack<T>(total, unpack(raw));
  } else if (at < valid) {
    add_pack<T>(total, unpack(raw), valid - at);
  }
}

/// The computations of both launches, in the same order, with the row kept between them: its first
/// `kept_cols` in shared memory, the rest in registers, kHeld packs of each thread.
template <class T, int kThreadsOf, int kHeld>
__global__ void __launch_bounds__(kThreadsOf)
    cross_entropy_with_gradient(LossShape shape, int kept_cols, const T* logits, const std::int32_t* targets,
                                float grad_scale, const float* loss_scale, float* losses, float* lse,
                                T* dlogits, std::int32_t* bad_id) {
  const float scale = grad_scale * scale_of(loss_scale);
  constexpr int kStep = kThreadsOf * kPack;
  constexpr int kFetched = kHeld == 0 ? 4 : 3;  // loads in flight, beside those that stay in registers
  extern __shared__ uint4 kept[];
  const std::int64_t row = blockIdx.x;
  const T* x = logits + row * shape.cols;
  T* row_kept = reinterpret_cast<T*>(kept);
  const std::int32_t target = targets[row];
  const float logit = threadIdx.x == 0 ? logit_of(x, target, shape.valid) : 0.0F;
  const auto cols = static_cast<int>(shape.cols);  // a row that is kept has some 100,000
  const auto all_valid = static_cast<int>(shape.valid);
  const int first = static_cast<int>(threadIdx.x) * kPack;
  const int kept_valid = kHeld == 0 ? all_valid : kept_cols;
  RawPack<T> held[kHeld == 0 ? 1 : kHeld];
  if constexpr (kHeld > 0) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int at = kept_cols + first + i * kStep;
      if (at < all_valid) held[i] = load_raw(x + at);
    }
  }
  LogSumExp total;
  for (int v = first; v < kept_valid; v += kFetched * kStep) {
    RawPack<T> raw[kFetched];
#pragma unroll
    for (int i = 0; i < kFetched; ++i) {
      if (v + i * kStep < kept_valid) raw[i] = load_raw(x + v + i * kStep);
    }
#pragma unroll
    for (int i = 0; i < kFetched; ++i) {
      const int at = v + i * kStep;
      if (at >= kept_valid) break;
      *reinterpret_cast<RawPack<T>*>(row_kept + at) = raw[i];
      add_valid(total, raw[i], at, all_valid);
    }
  }
  if constexpr (kHeld > 0) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) add_valid(total, held[i], kept_cols + first + i * kStep, all_valid);
  }
  total = block_merge(total);  // no thread reads what another has kept
  const float log_sum = total.value();
  if (threadIdx.x == 0) {
    lse[row] = log_sum;
    losses[row] = loss_of(logit, target, shape.valid, log_sum, bad_id);
  }
  const int valid = target < 0 ? 0 : all_valid;
  T* to = dlogits + row * shape.cols;
  const int kept_to = kHeld == 0 ? cols : kept_cols;
  for (int v = first; v < kept_to; v += kStep) {
    const Pack pack = v < valid ? load_whole(row_kept + v) : Pack{};
    store_whole(to + v, gradient<T>(pack, v, valid, target, log_sum, scale));
  }
  if constexpr (kHeld > 0) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int v = kept_cols + first + i * kStep;
      if (v >= cols) break;
      const Pack pack = v < valid ? unpack(held[i]) : Pack{};
      store_whole(to + v, gradient<T>(pack, v, valid, target, log_sum, scale));
    }
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

/// How a block keeps a row of aligned logits.
struct KeptRow {
  bool fits = false;
  std::int64_t cols = 0;  ///< in shared memory
  bool is_held = false;   ///< the rest in registers
};

template <class T>
KeptRow kept_row(const LossShape& shape) {
  if (shape.cols % kPack != 0) return {};
  const std::size_t most = most_kept_bytes();
  if (static_cast<std::size_t>(shape.cols) * sizeof(T) <= most) return {.fits = true, .cols = shape.cols};
  if constexpr (has_long_rows<T>) {
    constexpr std::int64_t kStep = kLongThreads * kPack;  // each thread has its packs in the order of columns
    const std::int64_t cols = static_cast<std::int64_t>(most / sizeof(T)) / kStep * kStep;
    if (shape.cols <= cols + kHeldPacks * kStep) return {.fits = true, .cols = cols, .is_held = true};
  }
  return {};
}

/// Requests the shared memory; returns whether the device grants it.
template <class T, int kThreadsOf, int kHeld>
bool reserve(std::size_t bytes) {
  return cudaFuncSetAttribute(cross_entropy_with_gradient<T, kThreadsOf, kHeld>,
                              cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes)) == cudaSuccess;
}

}  // namespace

void launch_cross_entropy(Stream stream, core::DType dtype, const LossShape& shape, const void* logits,
                          const std::int32_t* targets, float* losses, float* lse, std::int32_t* bad_id) {
  if (shape.rows == 0) return;
  with_element(dtype, "cross_entropy", [&]<class T>(T) {
    const bool aligned = shape.cols % kPack == 0 && are_aligned({logits});
    with_threads<T>(shape.cols, [&](auto threads) {
      cross_entropy<T, threads()><<<grid_size(shape.rows, "cross_entropy"), threads(), 0, stream>>>(
          shape, aligned, static_cast<const T*>(logits), targets, losses, lse, bad_id);
    });
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
  with_element(dtype, "cross_entropy_with_gradient", [&]<class T>(T) { fits = kept_row<T>(shape).fits; });
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
    const KeptRow kept = kept_row<T>(shape);
    if (!kept.fits || !are_aligned({logits, dlogits})) return;
    const std::size_t bytes = static_cast<std::size_t>(kept.cols) * sizeof(T);
    const auto launch = [&](auto threads, auto held) {
      fits = reserve<T, threads(), held()>(bytes);
      if (!fits) return;
      cross_entropy_with_gradient<T, threads(), held()>
          <<<grid_size(shape.rows, kWhat), threads(), bytes, stream>>>(
              shape, static_cast<int>(kept.cols), static_cast<const T*>(logits), targets, grad_scale,
              loss_scale, losses, lse, static_cast<T*>(dlogits), bad_id);
    };
    if constexpr (has_long_rows<T>) {
      if (kept.is_held) {
        return launch(std::integral_constant<int, kLongThreads>{}, std::integral_constant<int, kHeldPacks>{});
      }
    }
    with_threads<T>(shape.cols, [&](auto threads) { launch(threads, std::integral_constant<int, 0>{}); });
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
