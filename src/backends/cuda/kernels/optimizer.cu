// The optimizer step: each block processes one piece of one tensor of the list.
#include <type_traits>

#include "backends/cuda/kernels/optimizer.h"
#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/reduce.cuh"
#include "backends/cuda/kernels/tensor_list.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kFours = 2;  ///< groups of four neighbours per thread; more loads in flight gain nothing
constexpr int kNormThreads = 512;
constexpr int kTotalThreads = 1024;
constexpr std::int64_t kNormPiece = 65536;
constexpr std::int64_t kUpdatePiece = std::int64_t{kThreads} * kFours * 4;

/// Squares are summed in fp32 within a pack, in double beyond it.
__global__ void __launch_bounds__(kNormThreads)
    square_sums(const __grid_constant__ TensorList<NormedTensor> list, double* sums) {
  const int index = list.find(blockIdx.x);
  const NormedTensor& tensor = list.tensors[index];
  const std::int64_t first = (blockIdx.x - list.first_block[index]) * kNormPiece;
  const std::int64_t end = min(first + kNormPiece, tensor.count);
  const bool aligned = reinterpret_cast<std::uintptr_t>(tensor.gradient) % sizeof(float4) == 0;
  double sum = 0;
  const auto add_all = [&]<class T>(const T* gradient) {
#pragma unroll 4
    for (std::int64_t i = first + threadIdx.x * kPack; i < end; i += kNormThreads * kPack) {
      const Pack g = load_pack(gradient, i, tensor.count, aligned);
      float square = 0;
#pragma unroll
      for (int k = 0; k < kPack; ++k) square += g[k] * g[k];
      sum += static_cast<double>(square);
    }
  };
  if (tensor.dtype == core::DType::bf16) {
    add_all(static_cast<const bf16*>(tensor.gradient));
  } else if (tensor.dtype == core::DType::f16) {
    add_all(static_cast<const fp16*>(tensor.gradient));
  } else {
    add_all(static_cast<const float*>(tensor.gradient));
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

/// Writes the sum, its root, or both.
__global__ void __launch_bounds__(kTotalThreads)
    total_of(std::int64_t count, const double* sums, double* square, float* norm) {
  double total = 0;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < count; i += kTotalThreads) total += sums[i];
  total = block_sum(total);
  if (threadIdx.x != 0) return;
  if (square != nullptr) *square = total;
  if (norm != nullptr) *norm = static_cast<float>(sqrt(total));
}

/// The factor of the gradients: clipping (NaN stays NaN) and the inverse loss scale.
__device__ inline float factor_of(const UpdateStep& step) {
  const float inverse_scale = step.scaled ? step.hyper[3] : 1.0F;
  if (step.norm == nullptr) return inverse_scale;
  const float ratio = step.max_norm / (*step.norm + 1e-6F);
  return ratio >= 1.0F ? inverse_scale : ratio * inverse_scale;
}

__device__ inline bool is_skipped(const UpdateStep& step) { return step.scaled && step.hyper[3] == 0.0F; }

// core::join_halves and core::split_in_halves; the last argument gives the dtype.

__device__ inline float join(unsigned upper, int lower, const bf16* /*dtype*/) {
  return __uint_as_float((upper << 16) + static_cast<unsigned>(lower));
}
__device__ inline float join(unsigned upper, int lower, const fp16* /*dtype*/) {
  const float rounded = __half2float(__ushort_as_half(static_cast<unsigned short>(upper)));
  const float whole = __uint_as_float(__float_as_uint(rounded) + static_cast<unsigned>(lower));
  return (upper & 0x7c00U) == 0 ? rounded + static_cast<float>(lower) * 0x1p-40F : whole;
}

struct Halves {
  unsigned upper, lower;  // 16 bits each
};

__device__ inline Halves split(float x, const bf16* /*dtype*/) {
  const unsigned bits = isnan(x) ? 0x7fc00000U : __float_as_uint(x);
  return {(bits + 0x8000U) >> 16, bits & 0xffffU};
}
__device__ inline Halves split(float x, const fp16* /*dtype*/) {
  const __half half = __float2half_rn(x);
  const float rounded = __half2float(half);
  const unsigned upper = __half_as_ushort(half);
  const unsigned exponent = upper & 0x7c00U;
  const float units = fminf(fmaxf(rintf((x - rounded) * 0x1p40F), -32767.0F), 32767.0F);
  unsigned lower = exponent == 0 ? static_cast<unsigned>(static_cast<int>(units))
                                 : __float_as_uint(x) - __float_as_uint(rounded);
  if (exponent == 0x7c00U) lower = 0;
  return {upper, lower & 0xffffU};
}

/// Joins two fp32 numbers from a word of upper and a word of lower halves, which are signed.
template <class T>
__device__ float2 join_pair(unsigned upper, unsigned lower, const T* dtype) {
  const auto signed_half = [](unsigned half) { return static_cast<int>(static_cast<short>(half)); };
  return {join(upper & 0xffffU, signed_half(lower & 0xffffU), dtype),
          join(upper >> 16, signed_half(lower >> 16), dtype)};
}

/// The word of two numbers' upper halves, and the word of their lower halves.
template <class T>
__device__ uint2 split_pair(float first, float second, const T* dtype) {
  const Halves a = split(first, dtype);
  const Halves b = split(second, dtype);
  return {a.upper | b.upper << 16, a.lower | b.lower << 16};
}

__device__ inline float4 as_floats(const uint4& words) {
  return {__uint_as_float(words.x), __uint_as_float(words.y), __uint_as_float(words.z),
          __uint_as_float(words.w)};
}

/// Calls body with a null pointer to the type of a 16-bit dtype: bf16 or fp16.
template <class Body>
__device__ auto with_half(core::DType dtype, const Body& body) {
  return dtype == core::DType::bf16 ? body(static_cast<const bf16*>(nullptr))
                                    : body(static_cast<const fp16*>(nullptr));
}

/// Four neighbours of a tensor, so a warp's accesses to fp32 arrays are contiguous. Values are converted
/// where they are used, so a thread's loads are in flight together.
struct Four {
  const UpdatedTensor* tensor;
  std::int64_t first;
  bool whole;  ///< all four exist and can be accessed at once

  __device__ Four(const UpdatedTensor& of, std::int64_t from) : tensor(&of), first(from) {
    const auto bits =
        reinterpret_cast<std::uintptr_t>(of.parameter) | reinterpret_cast<std::uintptr_t>(of.gradient) |
        reinterpret_cast<std::uintptr_t>(of.moment1) | reinterpret_cast<std::uintptr_t>(of.moment2) |
        reinterpret_cast<std::uintptr_t>(of.copy);
    whole = bits % sizeof(float4) == 0 && first + 4 <= of.count;
  }
  __device__ uint4 load(const float* from) const {
    if (whole) return *reinterpret_cast<const uint4*>(from + first);
    const auto word = [&](int i) {
      return first + i < tensor->count ? __float_as_uint(from[first + i]) : 0U;
    };
    return {word(0), word(1), word(2), word(3)};
  }
  __device__ uint2 load(const std::uint16_t* from) const {
    if (whole) return *reinterpret_cast<const uint2*>(from + first);
    const auto half = [&](int i) { return first + i < tensor->count ? unsigned{from[first + i]} : 0U; };
    return {half(0) | half(1) << 16, half(2) | half(3) << 16};
  }
  [[nodiscard]] __device__ bool is_halved() const { return tensor->halves != core::DType::f32; }
  /// Raw: fp32, or two words of upper and two of lower halves.
  __device__ uint4 load_parameter() const {
    if (!is_halved()) return load(static_cast<const float*>(tensor->parameter));
    const auto* halves = static_cast<const std::uint16_t*>(tensor->parameter);
    const uint2 upper = load(halves);
    const uint2 lower = load(halves + tensor->count);
    return {upper.x, upper.y, lower.x, lower.y};
  }
  __device__ float4 parameter_from(const uint4& loaded) const {
    if (!is_halved()) return as_floats(loaded);
    return with_half(tensor->halves, [&](const auto* type) -> float4 {
      const float2 a = join_pair(loaded.x, loaded.z, type);
      const float2 b = join_pair(loaded.y, loaded.w, type);
      return {a.x, a.y, b.x, b.y};
    });
  }
  [[nodiscard]] __device__ bool has_half_gradient() const {
    return tensor->gradient_dtype != core::DType::f32;
  }
  /// Raw: fp32, or two words of 16-bit numbers. `shift`: bytes from the rank's own gradient to another's.
  __device__ uint4 load_gradient(std::ptrdiff_t shift) const {
    const auto* gradient = static_cast<const char*>(tensor->gradient) + shift;
    if (!has_half_gradient()) return load(reinterpret_cast<const float*>(gradient));
    const uint2 words = load(reinterpret_cast<const std::uint16_t*>(gradient));
    return {words.x, words.y, 0, 0};
  }
  __device__ float4 gradient_from(const uint4& loaded) const {
    if (!has_half_gradient()) return as_floats(loaded);
    return with_half(tensor->gradient_dtype, [&](const auto* type) -> float4 {
      const float2 a = unpack_pair(loaded.x, type);
      const float2 b = unpack_pair(loaded.y, type);
      return {a.x, a.y, b.x, b.y};
    });
  }
  /// As the gradient's dtype holds them.
  __device__ float4 rounded_as_gradient(const float4& values) const {
    if (!has_half_gradient()) return values;
    return gradient_from(with_half(tensor->gradient_dtype, [&](const auto* type) -> uint4 {
      return {pack_pair(values.x, values.y, type), pack_pair(values.z, values.w, type), 0, 0};
    }));
  }
  __device__ void store(float* to, const float4& values) const {
    if (whole) {
      *reinterpret_cast<float4*>(to + first) = values;
      return;
    }
    const float each[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (first + i < tensor->count) to[first + i] = each[i];
    }
  }
  __device__ void store(std::uint16_t* to, const uint2& words) const {
    if (whole) {
      *reinterpret_cast<uint2*>(to + first) = words;
      return;
    }
    const unsigned each[4] = {words.x, words.x >> 16, words.y, words.y >> 16};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (first + i < tensor->count) to[first + i] = static_cast<std::uint16_t>(each[i]);
    }
  }
  __device__ void store_parameter(const float4& p, core::DType copy_dtype) const {
    if (is_halved()) {
      with_half(tensor->halves, [&](const auto* type) {
        const uint2 a = split_pair(p.x, p.y, type);
        const uint2 b = split_pair(p.z, p.w, type);
        auto* halves = static_cast<std::uint16_t*>(tensor->parameter);
        store(halves, uint2{a.x, b.x});
        store(halves + tensor->count, uint2{a.y, b.y});
      });
      return;
    }
    store(static_cast<float*>(tensor->parameter), p);
    if (tensor->copy == nullptr) return;
    with_half(copy_dtype, [&](const auto* type) {
      store(static_cast<std::uint16_t*>(tensor->copy),
            uint2{pack_pair(p.x, p.y, type), pack_pair(p.z, p.w, type)});
    });
  }
};

/// The tensor of a block, and the first element of this thread; its other elements follow at strides of
/// kThreads * 4.
struct Share {
  const UpdatedTensor* tensor;
  std::int64_t first;

  __device__ explicit Share(const TensorList<UpdatedTensor>& list) {
    const int index = list.find(blockIdx.x);
    tensor = &list.tensors[index];
    first = std::int64_t{blockIdx.x - list.first_block[index]} * kUpdatePiece + std::int64_t{threadIdx.x} * 4;
  }
  __device__ Four four(int i) const { return {*tensor, first + std::int64_t{i} * kThreads * 4}; }
};

/// The gradient of four neighbours on as many as kRanks ranks, loaded and not yet added up.
template <int kRanks>
struct RankGradients {
  uint4 raw[kRanks];

  __device__ void load(const Four& four, const PeerPlaces& peers) {
#pragma unroll
    for (int rank = 0; rank < kRanks; ++rank) {
      if (kRanks == 1) {
        raw[rank] = four.load_gradient(0);
      } else if (rank < peers.ranks) {
        raw[rank] = four.load_gradient(peers.shift[rank]);
      }
    }
  }
  __device__ float4 sum(const Four& four, const PeerPlaces& peers) const {
    float4 total = four.gradient_from(raw[0]);
#pragma unroll
    for (int rank = 1; rank < kRanks; ++rank) {
      if (rank >= peers.ranks) break;
      const float4 more = four.gradient_from(raw[rank]);
      total = {total.x + more.x, total.y + more.y, total.z + more.z, total.w + more.w};
    }
    return kRanks == 1 ? total : four.rounded_as_gradient(total);
  }
};

template <int kRanks>
__global__ void __launch_bounds__(kThreads) adamw(UpdateStep step, const __grid_constant__ PeerPlaces peers,
                                                  const __grid_constant__ TensorList<UpdatedTensor> list) {
  if (is_skipped(step)) return;
  const Share share(list);
  const float kept = 1.0F - step.hyper[0] * step.weight_decay;
  const float rate = step.hyper[0] / step.hyper[1];
  const float inverse2 = 1.0F / step.hyper[2];
  const float factor = factor_of(step);
  const auto update = [&](float& p, float gradient, float& m, float& v) {
    const float g = factor * gradient;
    m = step.beta1.old * m + step.beta1.fresh * g;
    v = step.beta2.old * v + step.beta2.fresh * (g * g);
    p = kept * p - rate * m / (sqrtf(inverse2 * v) + step.eps);
  };
  uint4 raw_p[kFours], raw_m[kFours], raw_v[kFours];
  RankGradients<kRanks> gradients[kFours];
#pragma unroll
  for (int i = 0; i < kFours; ++i) {
    const Four four = share.four(i);
    gradients[i].load(four, peers);
    raw_p[i] = four.load_parameter();
    raw_m[i] = four.load(four.tensor->moment1);
    raw_v[i] = four.load(four.tensor->moment2);
  }
#pragma unroll
  for (int i = 0; i < kFours; ++i) {
    const Four four = share.four(i);
    float4 p = four.parameter_from(raw_p[i]);
    const float4 gradient = gradients[i].sum(four, peers);
    float4 m = as_floats(raw_m[i]);
    float4 v = as_floats(raw_v[i]);
    update(p.x, gradient.x, m.x, v.x);
    update(p.y, gradient.y, m.y, v.y);
    update(p.z, gradient.z, m.z, v.z);
    update(p.w, gradient.w, m.w, v.w);
    four.store(four.tensor->moment1, m);
    four.store(four.tensor->moment2, v);
    four.store_parameter(p, step.copy_dtype);
  }
}

template <int kRanks>
__global__ void __launch_bounds__(kThreads) sgd(UpdateStep step, const __grid_constant__ PeerPlaces peers,
                                                const __grid_constant__ TensorList<UpdatedTensor> list) {
  if (is_skipped(step)) return;
  const Share share(list);
  const float kept = 1.0F - step.hyper[0] * step.weight_decay;
  const float rate = step.hyper[0] * factor_of(step);
#pragma unroll
  for (int i = 0; i < kFours; ++i) {
    const Four four = share.four(i);
    RankGradients<kRanks> gradients;
    gradients.load(four, peers);
    const uint4 raw_p = four.load_parameter();
    float4 p = four.parameter_from(raw_p);
    const float4 gradient = gradients.sum(four, peers);
    p = {kept * p.x - rate * gradient.x, kept * p.y - rate * gradient.y, kept * p.z - rate * gradient.z,
         kept * p.w - rate * gradient.w};
    four.store_parameter(p, step.copy_dtype);
  }
}

/// Calls body with the least number of ranks, as a constant, that a kernel is compiled for.
template <class Body>
void with_ranks(int ranks, const Body& body) {
  if (ranks <= 1) return body(std::integral_constant<int, 1>{});
  if (ranks <= 2) return body(std::integral_constant<int, 2>{});
  if (ranks <= 4) return body(std::integral_constant<int, 4>{});
  body(std::integral_constant<int, kMostPeers>{});
}

}  // namespace

void launch_square_sum(Stream stream, std::span<const NormedTensor> tensors, double* square, float* norm,
                       void* workspace) {
  auto* sums = static_cast<double*>(workspace);
  std::int64_t count = 0;
  for_lists<kNormPiece>(tensors, "global_norm",
                        [&](const TensorList<NormedTensor>& list, unsigned blocks, std::int64_t before) {
                          square_sums<<<blocks, kNormThreads, 0, stream>>>(list, sums + before);
                          count = before + blocks;
                        });
  total_of<<<1, kTotalThreads, 0, stream>>>(count, sums, square, norm);
  check_launch("global_norm");
}

void launch_root(Stream stream, std::int64_t count, const double* squares, float* norm) {
  total_of<<<1, kTotalThreads, 0, stream>>>(count, squares, nullptr, norm);
  check_launch("norm_of_squares");
}

std::size_t global_norm_workspace_bytes(std::span<const std::int64_t> counts) {
  std::int64_t pieces = 0;
  for (const std::int64_t count : counts) pieces += ceil_div(count, kNormPiece);
  return static_cast<std::size_t>(pieces) * sizeof(double);
}

std::int64_t global_norm_launches(std::span<const std::int64_t> counts) {
  return lists_of<NormedTensor>(counts) + 1;
}

std::int64_t update_launches(std::span<const std::int64_t> counts) { return lists_of<UpdatedTensor>(counts); }

void launch_adamw(Stream stream, const UpdateStep& step, std::span<const UpdatedTensor> tensors,
                  const PeerPlaces& peers) {
  with_ranks(peers.ranks, [&](auto ranks) {
    for_lists<kUpdatePiece>(tensors, "adamw",
                            [&](const TensorList<UpdatedTensor>& list, unsigned blocks, std::int64_t) {
                              adamw<ranks()><<<blocks, kThreads, 0, stream>>>(step, peers, list);
                            });
  });
}

void launch_sgd(Stream stream, const UpdateStep& step, std::span<const UpdatedTensor> tensors,
                const PeerPlaces& peers) {
  with_ranks(peers.ranks, [&](auto ranks) {
    for_lists<kUpdatePiece>(tensors, "sgd",
                            [&](const TensorList<UpdatedTensor>& list, unsigned blocks, std::int64_t) {
                              sgd<ranks()><<<blocks, kThreads, 0, stream>>>(step, peers, list);
                            });
  });
}

}  // namespace rooflm::backends::cuda
