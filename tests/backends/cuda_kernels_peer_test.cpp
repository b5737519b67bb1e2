// CUDA kernels of ranks that map each other's memory. Here all ranks' memory lies in one array, a block for
// each.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/cuda/kernels/optimizer/optimizer.h"
#include "backends/cuda/kernels/peer_barrier.h"
#include "backends/cuda/kernels/peer_sum.h"
#include "tests/backends/cuda_testing.h"

namespace rooflm::tests {
namespace {

using namespace backends::cuda;  // NOLINT(google-build-using-namespace): the launchers are what is tested
using core::DType;
using Values = std::vector<double>;

/// Where all ranks' blocks of so many bytes are, seen from rank `own`.
PeerPlaces places_of(int ranks, int own, std::size_t bytes) {
  PeerPlaces places{.ranks = ranks};
  for (int rank = 0; rank < ranks; ++rank)
    places.shift[rank] = static_cast<std::ptrdiff_t>(rank - own) * static_cast<std::ptrdiff_t>(bytes);
  return places;
}

/// The sum over ranks of element i of their blocks of `count`.
double sum_of(DType dtype, const Values& all, int ranks, std::size_t count, std::size_t i) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank)
    sum += static_cast<float>(stored(dtype, all[static_cast<std::size_t>(rank) * count + i]));
  return stored(dtype, static_cast<double>(sum));
}

TEST_F(CudaKernels, SumsOverRanks) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int ranks : {2, 3, 5, 8}) {
      for (const bool to_all : {false, true}) {
        constexpr std::size_t kCount = 70016;
        constexpr std::int64_t kFirst = 48;
        constexpr std::int64_t kPart = 60005;  // of the elements from kFirst on; not a multiple of a pack
        const Values all = random_values(dtype, static_cast<std::int64_t>(ranks * kCount), 7);
        const DeviceArray memory(dtype, all);
        const std::size_t size = core::size_of(dtype);
        const int own = ranks - 1;
        auto* block = static_cast<std::byte*>(memory.data()) + own * kCount * size;
        void* from = block + kFirst * static_cast<std::int64_t>(size);
        const SummedTensor tensor{.count = kPart, .from = from, .to = from};
        launch_peer_sum(nullptr, dtype, {&tensor, 1}, places_of(ranks, own, kCount * size), to_all);
        const Values actual = memory.read();
        for (int rank = 0; rank < ranks; ++rank) {
          for (std::size_t i = 0; i < kCount; ++i) {
            const bool is_summed = (to_all || rank == own) && i >= kFirst && i < kFirst + kPart;
            const std::size_t at = static_cast<std::size_t>(rank) * kCount + i;
            const double expected = is_summed ? sum_of(dtype, all, ranks, kCount, i) : stored(dtype, all[at]);
            ASSERT_EQ(actual[at], expected) << ranks << " ranks, element " << i << " of rank " << rank;
          }
        }
      }
    }
  }
}

/// An update of the ranks' gradients has the bits of one of their sum.
TEST_F(CudaKernels, UpdatesSumOverRanks) {
  const DeviceArray hyper(DType::f32, Values{0.01, 0.19, 0.0975, 0});
  const UpdateStep step{.hyper = hyper.floats(),
                        .weight_decay = 0.1F,
                        .beta1 = core::MovingAverage(0.9),
                        .beta2 = core::MovingAverage(0.95),
                        .eps = 1e-8F};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const int ranks : {2, 3, 8}) {
      for (const bool adamw : {true, false}) {
        constexpr std::size_t kCount = 4104;
        const Values gradients = random_values(dtype, static_cast<std::int64_t>(ranks * kCount), 3);
        Values sums;
        for (std::size_t i = 0; i < kCount; ++i) sums.push_back(sum_of(dtype, gradients, ranks, kCount, i));
        const DeviceArray of_ranks(dtype, gradients);
        const DeviceArray summed(dtype, sums);
        Values weights[2];
        for (const bool over_ranks : {false, true}) {
          const DeviceArray p(DType::f32, random_values(DType::f32, kCount, 1));
          const DeviceArray m(DType::f32, Values(kCount, 0.5));
          const DeviceArray v(DType::f32, Values(kCount, 0.25));
          const UpdatedTensor tensor{.count = kCount,
                                     .parameter = p.data(),
                                     .gradient = over_ranks ? of_ranks.data() : summed.data(),
                                     .moment1 = m.floats(),
                                     .moment2 = v.floats(),
                                     .gradient_dtype = dtype};
          const PeerPlaces peers =
              over_ranks ? places_of(ranks, 0, kCount * core::size_of(dtype)) : PeerPlaces{};
          (adamw ? launch_adamw : launch_sgd)(nullptr, step, {&tensor, 1}, peers);
          weights[over_ranks ? 1 : 0] = p.read();
        }
        EXPECT_EQ(weights[0], weights[1]) << ranks << (adamw ? " ranks, adamw" : " ranks, sgd");
      }
    }
  }
}

/// Two ranks on two streams of one GPU, many times: what a rank writes before a barrier the other reads after
/// it.
TEST_F(CudaKernels, BarriersLetRanksReadWhatOthersWrote) {
  constexpr int kRounds = 200;
  constexpr std::size_t kBytes = 4 * kMostPeers * sizeof(unsigned);
  const DeviceBytes numbers(kBytes);
  check_cuda(cudaMemset(numbers.at(0), 0, kBytes), "zeroing");
  unsigned* stop = nullptr;
  check_cuda(cudaHostAlloc(reinterpret_cast<void**>(&stop), sizeof(unsigned), cudaHostAllocMapped),
             "pinning");
  *stop = 0;
  std::array<cudaStream_t, 2> streams{};
  const DeviceArray values(DType::f32, Values(2, 0));
  const DeviceArray seen(DType::f32, 2 * kRounds);
  for (cudaStream_t& stream : streams)
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  const DeviceArray sources(DType::f32, [] {
    Values all;
    for (int i = 0; i < kRounds; ++i) all.push_back(i);
    return all;
  }());
  for (int round = 0; round < kRounds; ++round) {
    for (int rank = 0; rank < 2; ++rank) {
      cudaStream_t stream = streams.at(static_cast<std::size_t>(rank));
      PeerBarrier barrier{.ranks = 2,
                          .index = rank,
                          .round = static_cast<unsigned*>(numbers.at(0)) + (2 + rank) * kMostPeers,
                          .stop = stop};
      for (int i = 0; i < 2; ++i)
        barrier.arrivals[i] = static_cast<unsigned*>(numbers.at(0)) + i * kMostPeers;
      const auto copy = [&](float* to, const float* from) {
        check_cuda(cudaMemcpyAsync(to, from, sizeof(float), cudaMemcpyDeviceToDevice, stream), "copying");
      };
      copy(values.floats() + rank, sources.floats() + round);
      launch_peer_barrier(stream, barrier);
      copy(seen.floats() + 2 * round + rank, values.floats() + (1 - rank));
      launch_peer_barrier(stream, barrier);
    }
  }
  check_cuda(cudaDeviceSynchronize(), "waiting");
  const Values actual = seen.read();
  for (int i = 0; i < 2 * kRounds; ++i) EXPECT_EQ(actual[static_cast<std::size_t>(i)], i / 2);
  // A rank that is alone waits for ever, until it is told to stop.
  PeerBarrier alone{
      .ranks = 2, .index = 0, .round = static_cast<unsigned*>(numbers.at(0)) + 2 * kMostPeers, .stop = stop};
  for (int i = 0; i < 2; ++i) alone.arrivals[i] = static_cast<unsigned*>(numbers.at(0)) + i * kMostPeers;
  launch_peer_barrier(streams[0], alone);
  EXPECT_EQ(cudaStreamQuery(streams[0]), cudaErrorNotReady);
  *stop = 1;
  EXPECT_EQ(cudaStreamSynchronize(streams[0]), cudaSuccess);
  for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
  cudaFreeHost(stop);
}

}  // namespace
}  // namespace rooflm::tests
