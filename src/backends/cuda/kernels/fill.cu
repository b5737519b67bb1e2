// Fills memory with a kernel.
#include <algorithm>

#include "backends/cuda/kernels/fill.h"
#include "backends/cuda/kernels/launch.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::size_t kWord = sizeof(uint4);
constexpr std::int64_t kWordsOfThread = 8;

/// The first block writes the bytes before the first and after the last 16-byte boundary one by one.
__global__ void __launch_bounds__(kThreads) fill_memory(Fill fill) {
  auto* bytes = static_cast<unsigned char*>(fill.to);
  const std::size_t skew = reinterpret_cast<std::uintptr_t>(bytes) % kWord;
  const std::size_t head = min(fill.bytes, skew == 0 ? std::size_t{0} : kWord - skew);
  const std::size_t words = (fill.bytes - head) / kWord;
  const std::size_t tail = head + words * kWord;
  const auto byte_at = [&](std::size_t i) {
    return static_cast<unsigned char>(fill.pattern >> (8 * (i % sizeof fill.pattern)));
  };
  const auto turn = static_cast<unsigned>(8 * (head % sizeof fill.pattern));
  const unsigned word = __funnelshift_r(fill.pattern, fill.pattern, turn);
  auto* to = reinterpret_cast<uint4*>(bytes + head);
  const std::size_t step = std::size_t{gridDim.x} * kThreads;
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < words; i += step) {
    to[i] = {word, word, word, word};
  }
  if (blockIdx.x > 0) return;
  if (threadIdx.x < head) bytes[threadIdx.x] = byte_at(threadIdx.x);
  if (tail + threadIdx.x < fill.bytes) bytes[tail + threadIdx.x] = byte_at(tail + threadIdx.x);
}

__global__ void store(std::uint32_t* to, std::uint32_t value) { *to = value; }

unsigned blocks_of(const Fill& fill) {
  const auto words = static_cast<std::int64_t>(fill.bytes / kWord);
  return static_cast<unsigned>(
      std::clamp<std::int64_t>(ceil_div(words, kWordsOfThread * kThreads), 1, 8 * multiprocessors()));
}

}  // namespace

void launch_fill(Stream stream, const Fill& fill) {
  if (fill.bytes == 0) return;
  fill_memory<<<blocks_of(fill), kThreads, 0, stream>>>(fill);
  check_launch("filling memory");
}

void launch_store(Stream stream, std::uint32_t* to, std::uint32_t value) {
  store<<<1, 1, 0, stream>>>(to, value);
  check_launch("storing a number");
}

cudaError_t add_fill_node(cudaGraph_t graph, const cudaGraphNode_t* dependencies, std::size_t count,
                          const Fill& fill, cudaGraphNode_t* node) {
  Fill argument = fill;
  void* arguments[] = {&argument};
  cudaKernelNodeParams params{};
  params.func = reinterpret_cast<void*>(fill_memory);
  params.gridDim = dim3(blocks_of(fill));
  params.blockDim = dim3(kThreads);
  params.kernelParams = arguments;
  return cudaGraphAddKernelNode(node, graph, dependencies, count, &params);
}

}  // namespace rooflm::backends::cuda
