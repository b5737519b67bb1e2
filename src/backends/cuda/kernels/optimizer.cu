// The optimizer step: each block takes one piece of one tensor of the list.
#include "backends/cuda/kernels/optimizer.h"
#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/reduce.cuh"
#include "backends/cuda/kernels/tensor_list.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kNormThreads = 512;
constexpr int kTotalThreads = 1024;
constexpr std::int64_t kNormPiece = 65536;
constexpr std::int64_t kUpdatePiece = std::int64_t{kThreads} * kPack;

/// Squares are added in fp32 within a pack, in double from there on.
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
  if (tensor.is_bf16) {
    add_all(static_cast<const bf16*>(tensor.gradient));
  } else {
    add_all(static_cast<const float*>(tensor.gradient));
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kTotalThreads)
    root_of_total(std::int64_t count, const double* sums, float* norm) {
  double total = 0;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < count; i += kTotalThreads) total += sums[i];
  total = block_sum(total);
  if (threadIdx.x == 0) *norm = static_cast<float>(sqrt(total));
}

/// What gradients are multiplied by: clipping, NaN for NaN, and the inverse of the loss scale.
__device__ inline float factor_of(const UpdateStep& step) {
  const float inverse_scale = step.scaled ? step.hyper[3] : 1.0F;
  if (step.norm == nullptr) return inverse_scale;
  const float ratio = step.max_norm / (*step.norm + 1e-6F);
  return ratio >= 1.0F ? inverse_scale : ratio * inverse_scale;
}

__device__ inline bool is_skipped(const UpdateStep& step) { return step.scaled && step.hyper[3] == 0.0F; }

/// Two words of fp32 numbers from the upper and the lower halves of two.
__device__ inline uint2 join(unsigned upper, unsigned lower) {
  const auto whole = [](unsigned high, unsigned low) {  // the lower half has a sign
    return (high << 16) + static_cast<unsigned>(static_cast<int>(static_cast<short>(low)));
  };
  return {whole(upper & 0xffffU, lower & 0xffffU), whole(upper >> 16, lower >> 16)};
}

/// What core::Halves does with a number, before it is cut: bits whose upper half is rounded.
__device__ inline unsigned bits_of_master(float x) { return isnan(x) ? 0x7fc00000U : __float_as_uint(x); }
__device__ inline unsigned upper_half(unsigned bits) { return (bits + 0x8000U) >> 16; }

/// A pack of a tensor of the list. Everything is used once a step: it leaves the caches first.
struct Piece {
  UpdatedTensor tensor;
  std::int64_t first;
  bool aligned;

  __device__ explicit Piece(const TensorList<UpdatedTensor>& list) {
    const int index = list.find(blockIdx.x);
    tensor = list.tensors[index];
    first = (std::int64_t{blockIdx.x - list.first_block[index]} * kThreads + threadIdx.x) * kPack;
    const auto bits =
        reinterpret_cast<std::uintptr_t>(tensor.parameter) |
        reinterpret_cast<std::uintptr_t>(tensor.gradient) | reinterpret_cast<std::uintptr_t>(tensor.moment1) |
        reinterpret_cast<std::uintptr_t>(tensor.moment2) | reinterpret_cast<std::uintptr_t>(tensor.copy);
    aligned = bits % sizeof(float4) == 0 && first + kPack <= tensor.count;
  }
  __device__ RawPack<float> load(const float* from) const {
    if (!aligned) return load_single(from, first, tensor.count);
    const auto* packs = reinterpret_cast<const uint4*>(from + first);
    return {{__ldcs(packs), __ldcs(packs + 1)}};
  }
  /// As it is stored: fp32, or the upper and the lower halves.
  __device__ RawPack<float> load_parameter() const {
    if (!tensor.is_halved) return load(static_cast<const float*>(tensor.parameter));
    const auto* upper = static_cast<const std::uint16_t*>(tensor.parameter) + first;
    return {{__ldcs(reinterpret_cast<const uint4*>(upper)),
             __ldcs(reinterpret_cast<const uint4*>(upper + tensor.count))}};
  }
  __device__ Pack unpack_parameter(const RawPack<float>& raw) const {
    if (!tensor.is_halved) return unpack(raw);
    const uint4& upper = raw.v[0];
    const uint4& lower = raw.v[1];
    const uint2 a = join(upper.x, lower.x);
    const uint2 b = join(upper.y, lower.y);
    const uint2 c = join(upper.z, lower.z);
    const uint2 d = join(upper.w, lower.w);
    return unpack(RawPack<float>{{{a.x, a.y, b.x, b.y}, {c.x, c.y, d.x, d.y}}});
  }
  /// As it is stored: fp32, or bf16 in the first half.
  __device__ RawPack<float> load_gradient() const {
    if (!tensor.has_bf16_gradient) return load(static_cast<const float*>(tensor.gradient));
    const auto* from = static_cast<const bf16*>(tensor.gradient);
    const uint4 pack = aligned ? __ldcs(reinterpret_cast<const uint4*>(from + first))
                               : load_single(from, first, tensor.count).v[0];
    return {{pack, {}}};
  }
  __device__ Pack unpack_gradient(const RawPack<float>& raw) const {
    return tensor.has_bf16_gradient ? unpack_words<bf16>(raw.v[0]) : unpack(raw);
  }
  __device__ void store(float* to, const Pack& pack) const {
    if (!aligned) return store_pack(to, first, tensor.count, false, pack);
    auto* packs = reinterpret_cast<float4*>(to + first);
    __stcs(packs, make_float4(pack[0], pack[1], pack[2], pack[3]));
    __stcs(packs + 1, make_float4(pack[4], pack[5], pack[6], pack[7]));
  }
  __device__ void store_halves(const Pack& pack) const {
    unsigned upper[kPack / 2];
    unsigned lower[kPack / 2];
#pragma unroll
    for (int i = 0; i < kPack / 2; ++i) {
      const unsigned a = bits_of_master(pack[2 * i]);
      const unsigned b = bits_of_master(pack[2 * i + 1]);
      upper[i] = upper_half(a) | upper_half(b) << 16;
      lower[i] = (a & 0xffffU) | b << 16;
    }
    auto* to = static_cast<std::uint16_t*>(tensor.parameter) + first;
    *reinterpret_cast<uint4*>(to) = {upper[0], upper[1], upper[2], upper[3]};  // products read these
    __stcs(reinterpret_cast<uint4*>(to + tensor.count), uint4{lower[0], lower[1], lower[2], lower[3]});
  }
  __device__ void store_parameter(const Pack& pack, core::DType copy_dtype) const {
    if (tensor.is_halved) return store_halves(pack);
    store(static_cast<float*>(tensor.parameter), pack);
    if (tensor.copy == nullptr) return;
    if (copy_dtype == core::DType::bf16) {
      store_pack(static_cast<bf16*>(tensor.copy), first, tensor.count, aligned, pack);
    } else {
      store_pack(static_cast<fp16*>(tensor.copy), first, tensor.count, aligned, pack);
    }
  }
};

__global__ void __launch_bounds__(kThreads)
    adamw(UpdateStep step, const __grid_constant__ TensorList<UpdatedTensor> list) {
  const Piece piece(list);
  if (piece.first >= piece.tensor.count || is_skipped(step)) return;
  const float kept = 1.0F - step.hyper[0] * step.weight_decay;
  const float rate = step.hyper[0] / step.hyper[1];
  const float inverse2 = 1.0F / step.hyper[2];
  const float factor = factor_of(step);
  const auto raw_p = piece.load_parameter();
  const auto raw_g = piece.load_gradient();
  const auto raw_m = piece.load(piece.tensor.moment1);
  const auto raw_v = piece.load(piece.tensor.moment2);
  Pack p = piece.unpack_parameter(raw_p);
  const Pack gradient = piece.unpack_gradient(raw_g);
  Pack m = unpack(raw_m);
  Pack v = unpack(raw_v);
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const float g = factor * gradient[i];
    m[i] = step.beta1 * m[i] + (1.0F - step.beta1) * g;
    v[i] = step.beta2 * v[i] + (1.0F - step.beta2) * (g * g);
    p[i] = kept * p[i] - rate * m[i] / (sqrtf(inverse2 * v[i]) + step.eps);
  }
  piece.store(piece.tensor.moment1, m);
  piece.store(piece.tensor.moment2, v);
  piece.store_parameter(p, step.copy_dtype);
}

__global__ void __launch_bounds__(kThreads)
    sgd(UpdateStep step, const __grid_constant__ TensorList<UpdatedTensor> list) {
  const Piece piece(list);
  if (piece.first >= piece.tensor.count || is_skipped(step)) return;
  const float kept = 1.0F - step.hyper[0] * step.weight_decay;
  const float rate = step.hyper[0] * factor_of(step);
  const auto raw_p = piece.load_parameter();
  const auto raw_g = piece.load_gradient();
  Pack p = piece.unpack_parameter(raw_p);
  const Pack gradient = piece.unpack_gradient(raw_g);
#pragma unroll
  for (int i = 0; i < kPack; ++i) p[i] = kept * p[i] - rate * gradient[i];
  piece.store_parameter(p, step.copy_dtype);
}

}  // namespace

void launch_global_norm(Stream stream, std::span<const NormedTensor> tensors, float* norm, void* workspace) {
  auto* sums = static_cast<double*>(workspace);
  std::int64_t count = 0;
  for_lists<kNormPiece>(tensors, "global_norm",
                        [&](const TensorList<NormedTensor>& list, unsigned blocks, std::int64_t before) {
                          square_sums<<<blocks, kNormThreads, 0, stream>>>(list, sums + before);
                          count = before + blocks;
                        });
  root_of_total<<<1, kTotalThreads, 0, stream>>>(count, sums, norm);
  check_launch("global_norm");
}

std::size_t global_norm_workspace_bytes(std::span<const std::int64_t> counts) {
  std::int64_t pieces = 0;
  for (const std::int64_t count : counts) pieces += ceil_div(count, kNormPiece);
  return static_cast<std::size_t>(pieces) * sizeof(double);
}

void launch_adamw(Stream stream, const UpdateStep& step, std::span<const UpdatedTensor> tensors) {
  for_lists<kUpdatePiece>(tensors, "adamw",
                          [&](const TensorList<UpdatedTensor>& list, unsigned blocks, std::int64_t) {
                            adamw<<<blocks, kThreads, 0, stream>>>(step, list);
                          });
}

void launch_sgd(Stream stream, const UpdateStep& step, std::span<const UpdatedTensor> tensors) {
  for_lists<kUpdatePiece>(tensors, "sgd",
                          [&](const TensorList<UpdatedTensor>& list, unsigned blocks, std::int64_t) {
                            sgd<<<blocks, kThreads, 0, stream>>>(step, list);
                          });
}

}  // namespace rooflm::backends::cuda
