// The optimizer step: each block takes one piece of one tensor of the list.
#include "backends/cuda/kernels/adamw.cuh"
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
    const float2 a = join_halves(upper.x, lower.x);
    const float2 b = join_halves(upper.y, lower.y);
    const float2 c = join_halves(upper.z, lower.z);
    const float2 d = join_halves(upper.w, lower.w);
    return {{a.x, a.y, b.x, b.y, c.x, c.y, d.x, d.y}};
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
    const uint2 a = split_halves(pack[0], pack[1]);
    const uint2 b = split_halves(pack[2], pack[3]);
    const uint2 c = split_halves(pack[4], pack[5]);
    const uint2 d = split_halves(pack[6], pack[7]);
    auto* to = static_cast<std::uint16_t*>(tensor.parameter) + first;
    *reinterpret_cast<uint4*>(to) = {a.x, b.x, c.x, d.x};  // products read these
    __stcs(reinterpret_cast<uint4*>(to + tensor.count), uint4{a.y, b.y, c.y, d.y});
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
    update_adamw(UpdateStep step, const __grid_constant__ TensorList<UpdatedTensor> list) {
  const Piece piece(list);
  if (piece.first >= piece.tensor.count || is_skipped(step)) return;
  const AdamW adamw(step);
  const auto raw_p = piece.load_parameter();
  const auto raw_g = piece.load_gradient();
  const auto raw_m = piece.load(piece.tensor.moment1);
  const auto raw_v = piece.load(piece.tensor.moment2);
  Pack p = piece.unpack_parameter(raw_p);
  const Pack gradient = piece.unpack_gradient(raw_g);
  Pack m = unpack(raw_m);
  Pack v = unpack(raw_v);
#pragma unroll
  for (int i = 0; i < kPack; ++i) adamw.update(p[i], gradient[i], m[i], v[i]);
  piece.store(piece.tensor.moment1, m);
  piece.store(piece.tensor.moment2, v);
  piece.store_parameter(p, step.copy_dtype);
}

__global__ void __launch_bounds__(kThreads)
    update_sgd(UpdateStep step, const __grid_constant__ TensorList<UpdatedTensor> list) {
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
                            update_adamw<<<blocks, kThreads, 0, stream>>>(step, list);
                          });
}

void launch_sgd(Stream stream, const UpdateStep& step, std::span<const UpdatedTensor> tensors) {
  for_lists<kUpdatePiece>(tensors, "sgd",
                          [&](const TensorList<UpdatedTensor>& list, unsigned blocks, std::int64_t) {
                            update_sgd<<<blocks, kThreads, 0, stream>>>(step, list);
                          });
}

}  // namespace rooflm::backends::cuda
