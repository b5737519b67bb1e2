// The optimizer step: each block processes one piece of one tensor of the list.
#include <type_traits>

#include "backends/cuda/kernels/optimizer/optimizer.h"
#include "backends/cuda/kernels/optimizer/update.cuh"
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

/// A block's piece. Moments are of M, float or bf16: as many as the rule has, 1 or 2.
template <class Rule, int kRanks, class M>
__device__ void update(const UpdateStep& step, const PeerPlaces& peers,
                       const TensorList<UpdatedTensor>& list) {
  constexpr bool kHasSecond = Rule::kMoments == 2;
  if (is_skipped(step)) return;
  const Share share(list);
  const Rule rule(step);
  const unsigned salt = __float_as_uint(step.hyper[2]);
  uint4 raw_p[kFours], raw_m[kFours], raw_v[kFours];
  RankGradients<kRanks> gradients[kFours];
#pragma unroll
  for (int i = 0; i < kFours; ++i) {
    const Four four = share.four(i);
    gradients[i].load(four, peers);
    raw_p[i] = four.load_parameter();
    raw_m[i] = four.load_moment<M>(four.tensor->moment1);
    if constexpr (kHasSecond) raw_v[i] = four.load_moment<M>(four.tensor->moment2);
  }
#pragma unroll
  for (int i = 0; i < kFours; ++i) {
    const Four four = share.four(i);
    float4 p = four.parameter_from(raw_p[i]);
    float4 m = four.moment_from<M>(raw_m[i]);
    float4 v{};
    if constexpr (kHasSecond) v = four.moment_from<M>(raw_v[i]);
    for_four(rule, p, gradients[i].sum(four, peers), m, v);
    four.store_moment<M>(four.tensor->moment1, m, salt);
    if constexpr (kHasSecond) four.store_moment<M>(four.tensor->moment2, v, salt);
    four.store_parameter(p, step.copy_dtype);
  }
}

template <int kRanks, class M>
__global__ void __launch_bounds__(kThreads) adamw(UpdateStep step, const __grid_constant__ PeerPlaces peers,
                                                  const __grid_constant__ TensorList<UpdatedTensor> list) {
  update<AdamWRule, kRanks, M>(step, peers, list);
}

template <int kRanks>
__global__ void __launch_bounds__(kThreads) lion(UpdateStep step, const __grid_constant__ PeerPlaces peers,
                                                 const __grid_constant__ TensorList<UpdatedTensor> list) {
  update<LionRule, kRanks, float>(step, peers, list);
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
                              if (step.half_moments) {
                                adamw<1, bf16><<<blocks, kThreads, 0, stream>>>(step, peers, list);
                              } else {
                                adamw<ranks(), float><<<blocks, kThreads, 0, stream>>>(step, peers, list);
                              }
                            });
  });
}

void launch_lion(Stream stream, const UpdateStep& step, std::span<const UpdatedTensor> tensors,
                 const PeerPlaces& peers) {
  with_ranks(peers.ranks, [&](auto ranks) {
    for_lists<kUpdatePiece>(tensors, "lion",
                            [&](const TensorList<UpdatedTensor>& list, unsigned blocks, std::int64_t) {
                              lion<ranks()><<<blocks, kThreads, 0, stream>>>(step, peers, list);
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
