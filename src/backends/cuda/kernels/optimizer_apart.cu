// AdamW on a few multiprocessors, while products have the others: bulk copies keep three chunks of every
// array under way for each multiprocessor, so that it moves what its port to the L2 cache can.
#include <algorithm>
#include <iterator>
#include <vector>

#include "backends/cuda/kernels/adamw.cuh"
#include "backends/cuda/kernels/bulk_copy.cuh"
#include "backends/cuda/kernels/optimizer.h"
#include "backends/cuda/kernels/tensor_list.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kNumbers = 4;  // of a thread at a time
constexpr int kChunk = 2 * kThreads * kNumbers;
constexpr int kStages = 4;
constexpr const char* kWhat = "adamw";

/// A chunk of a tensor in shared memory, updated where it lies.
struct Stage {
  std::uint16_t upper[kChunk], lower[kChunk], gradient[kChunk];
  float moment1[kChunk], moment2[kChunk];
};
constexpr std::size_t kSharedBytes = kStages * sizeof(Stage);

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

/// Where a chunk lies in global memory.
struct Place {
  std::uint16_t *upper, *lower;
  const std::uint16_t* gradient;
  float *moment1, *moment2;
  unsigned count;

  __device__ Place(const TensorList<UpdatedTensor>& list, unsigned chunk) {
    const int index = list.find(chunk);
    const UpdatedTensor& tensor = list.tensors[index];
    const std::int64_t first = std::int64_t{chunk - list.first_block[index]} * kChunk;
    upper = static_cast<std::uint16_t*>(tensor.parameter) + first;
    lower = upper + tensor.count;
    gradient = static_cast<const std::uint16_t*>(tensor.gradient) + first;
    moment1 = tensor.moment1 + first;
    moment2 = tensor.moment2 + first;
    count = static_cast<unsigned>(
        min(static_cast<long long>(tensor.count - first), static_cast<long long>(kChunk)));
  }
  __device__ void fetch(Stage& stage, Arrivals& arrivals) const {
    const unsigned halves = count * sizeof(std::uint16_t);
    const unsigned floats = count * sizeof(float);
    arrivals.expect(3 * halves + 2 * floats);
    arrivals.fetch(stage.upper, upper, halves);
    arrivals.fetch(stage.lower, lower, halves);
    arrivals.fetch(stage.gradient, gradient, halves);
    arrivals.fetch(stage.moment1, moment1, floats);
    arrivals.fetch(stage.moment2, moment2, floats);
  }
  __device__ void store(const Stage& stage) const {
    const unsigned halves = count * sizeof(std::uint16_t);
    const unsigned floats = count * sizeof(float);
    bulk_store(upper, stage.upper, halves);
    bulk_store(lower, stage.lower, halves);
    bulk_store(moment1, stage.moment1, floats);
    bulk_store(moment2, stage.moment2, floats);
    close_stores();
  }
};

/// Four neighbouring numbers of a stage.
__device__ inline void update_four(const AdamW& adamw, Stage& stage, int first) {
  auto& upper = *reinterpret_cast<uint2*>(stage.upper + first);
  auto& lower = *reinterpret_cast<uint2*>(stage.lower + first);
  const uint2 gradient = *reinterpret_cast<const uint2*>(stage.gradient + first);
  auto& m = *reinterpret_cast<float4*>(stage.moment1 + first);
  auto& v = *reinterpret_cast<float4*>(stage.moment2 + first);
  float2 a = join_halves(upper.x, lower.x);
  float2 b = join_halves(upper.y, lower.y);
  const float2 ga = unpack_pair(gradient.x, static_cast<const __nv_bfloat16*>(nullptr));
  const float2 gb = unpack_pair(gradient.y, static_cast<const __nv_bfloat16*>(nullptr));
  float4 new_m = m;
  float4 new_v = v;
  adamw.update(a.x, ga.x, new_m.x, new_v.x);
  adamw.update(a.y, ga.y, new_m.y, new_v.y);
  adamw.update(b.x, gb.x, new_m.z, new_v.z);
  adamw.update(b.y, gb.y, new_m.w, new_v.w);
  m = new_m;
  v = new_v;
  const uint2 first_two = split_halves(a.x, a.y);
  const uint2 last_two = split_halves(b.x, b.y);
  upper = {first_two.x, last_two.x};
  lower = {first_two.y, last_two.y};
}

#endif

/// Chunks blockIdx.x, blockIdx.x + gridDim.x, .. in turn. The first thread orders all copies: those of a
/// chunk kStages later when the stores of the chunk before have left their stage.
__global__ void __launch_bounds__(kThreads, 1)
    update_adamw_apart(UpdateStep step, const __grid_constant__ TensorList<UpdatedTensor> list,
                       unsigned chunks) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Arrivals arrivals[kStages];
  auto* stages = reinterpret_cast<Stage*>(memory);
  if (is_skipped(step)) return;
  const bool orders = threadIdx.x == 0;
  const auto fetch = [&](unsigned turn) {
    const std::int64_t chunk = blockIdx.x + std::int64_t{turn} * gridDim.x;
    if (chunk < chunks)
      Place(list, static_cast<unsigned>(chunk)).fetch(stages[turn % kStages], arrivals[turn % kStages]);
  };
  if (orders) {
    for (Arrivals& each : arrivals) each.init();
    Arrivals::publish();
  }
  __syncthreads();
  if (orders) {
    for (unsigned turn = 0; turn < kStages; ++turn) fetch(turn);
  }
  const AdamW adamw(step);
  unsigned turn = 0;
  for (std::int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x, ++turn) {
    const Place place(list, static_cast<unsigned>(chunk));
    Stage& stage = stages[turn % kStages];
    arrivals[turn % kStages].wait(turn / kStages);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int first = (half * kThreads + static_cast<int>(threadIdx.x)) * kNumbers;
      if (first < static_cast<int>(place.count)) update_four(adamw, stage, first);
    }
    publish_to_bulk_stores();
    __syncthreads();
    if (!orders) continue;
    place.store(stage);
    wait_for_reads<1>();  // the stage of the chunk before is free
    if (turn > 0) fetch(turn - 1 + kStages);
  }
  if (orders) wait_for_stores();
#else
  (void)step, (void)list, (void)chunks;
#endif
}

bool fits(const UpdatedTensor& tensor) {
  return tensor.is_halved && tensor.has_bf16_gradient && tensor.copy == nullptr &&
         tensor.count % kPack == 0 &&
         are_aligned({tensor.parameter, tensor.gradient, tensor.moment1, tensor.moment2});
}

/// Whether this device and this build have what the kernel needs; asks for its shared memory.
bool is_possible() {
  int device = 0;
  int major = 0;
  cudaFuncAttributes attributes{};
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess || major < 9 ||
      cudaFuncGetAttributes(&attributes, update_adamw_apart) != cudaSuccess ||
      attributes.binaryVersion < 90) {
    return false;
  }
  return cudaFuncSetAttribute(update_adamw_apart, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(kSharedBytes)) == cudaSuccess;
}

}  // namespace

void launch_adamw_apart(Stream stream, const UpdateStep& step, std::span<const UpdatedTensor> tensors,
                        int blocks) {
  if (!is_possible()) {
    static_cast<void>(cudaGetLastError());
    return launch_adamw(stream, step, tensors);
  }
  std::vector<UpdatedTensor> own;
  std::vector<UpdatedTensor> others;
  std::partition_copy(tensors.begin(), tensors.end(), std::back_inserter(own), std::back_inserter(others),
                      fits);
  launch_adamw(stream, step, others);
  for_lists<kChunk>(std::span<const UpdatedTensor>(own), kWhat,
                    [&](const TensorList<UpdatedTensor>& list, unsigned chunks, std::int64_t) {
                      const unsigned used = std::min(chunks, static_cast<unsigned>(blocks));
                      update_adamw_apart<<<used, kThreads, kSharedBytes, stream>>>(step, list, chunks);
                    });
}

}  // namespace rooflm::backends::cuda
