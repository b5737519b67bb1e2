// Sums over ranks that map each other's memory: each block adds up one piece of one tensor.
#include <type_traits>

#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/peer_sum.h"
#include "backends/cuda/kernels/tensor_list.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPacks = 2;  ///< per thread, whose loads are in flight together
constexpr std::int64_t kPiece = std::int64_t{kThreads} * kPacks * kPack;

template <class T>
__device__ const T* at(const void* own, std::ptrdiff_t shift) {
  return reinterpret_cast<const T*>(static_cast<const char*>(own) + shift);
}

template <class T, int kRanks>
__global__ void __launch_bounds__(kThreads) peer_sum(const __grid_constant__ PeerPlaces peers, bool to_all,
                                                     const __grid_constant__ TensorList<SummedTensor> list) {
  const int index = list.find(blockIdx.x);
  const SummedTensor& tensor = list.tensors[index];
  const std::int64_t first =
      std::int64_t{blockIdx.x - list.first_block[index]} * kPiece + std::int64_t{threadIdx.x} * kPack;
  const auto bits =
      reinterpret_cast<std::uintptr_t>(tensor.from) | reinterpret_cast<std::uintptr_t>(tensor.to);
  const bool aligned = bits % sizeof(uint4) == 0;
  const auto each = [&](const auto& body) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const std::int64_t element = first + std::int64_t{i} * kThreads * kPack;
      if (element < tensor.count) body(i, element);
    }
  };
  Pack values[kPacks][kRanks];
  each([&](int i, std::int64_t element) {
#pragma unroll
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank < peers.ranks)
        values[i][rank] = load_pack(at<T>(tensor.from, peers.shift[rank]), element, tensor.count, aligned);
    }
  });
  each([&](int i, std::int64_t element) {
    Pack& sum = values[i][0];
#pragma unroll
    for (int rank = 1; rank < kRanks; ++rank) {
      if (rank >= peers.ranks) break;
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum[k] += values[i][rank][k];
    }
#pragma unroll
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank >= peers.ranks || (!to_all && peers.shift[rank] != 0)) continue;
      store_pack(const_cast<T*>(at<T>(tensor.to, peers.shift[rank])), element, tensor.count, aligned, sum);
    }
  });
}

}  // namespace

void launch_peer_sum(Stream stream, core::DType dtype, std::span<const SummedTensor> tensors,
                     const PeerPlaces& peers, bool to_all) {
  with_element(dtype, "peer_sum", [&]<class T>(T) {
    const auto launch = [&](auto ranks) {
      for_lists<kPiece>(tensors, "peer_sum",
                        [&](const TensorList<SummedTensor>& list, unsigned blocks, std::int64_t) {
                          peer_sum<T, ranks()><<<blocks, kThreads, 0, stream>>>(peers, to_all, list);
                        });
    };
    if (peers.ranks <= 2) return launch(std::integral_constant<int, 2>{});
    if (peers.ranks <= 4) return launch(std::integral_constant<int, 4>{});
    launch(std::integral_constant<int, kMostPeers>{});
  });
}

}  // namespace rooflm::backends::cuda
