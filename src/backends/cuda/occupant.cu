// Some multiprocessors of a device, held while something else is measured on the others.
#include <chrono>

#include "backends/cuda/check.h"
#include "backends/cuda/occupant.h"

namespace rooflm::backends::cuda {
namespace {

constexpr int kThreads = 32;
constexpr long long kMostNs = 2'000'000'000;
constexpr std::chrono::seconds kMostWait{1};

/// Until it is told, or after two seconds.
__global__ void hold(volatile std::uint32_t* flags) {
  if (threadIdx.x > 0) return;
  flags[1 + blockIdx.x] = 1;
  const auto now = [] {
    long long ns = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
  };
  for (const long long begin = now(); flags[0] == 0 && now() - begin < kMostNs;) {
  }
}

/// As much shared memory as a block can have, so that no other fits beside it.
int most_shared_bytes() {
  int device = 0;
  int bytes = 0;
  check(cudaGetDevice(&device), "holding multiprocessors");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "holding multiprocessors");
  return bytes;
}

}  // namespace

Occupant::Occupant(int blocks) : blocks_(blocks) {
  if (blocks == 0) return;
  stream_ = make_stream(Priority::high);
  flags_ = make_pinned<std::uint32_t>(static_cast<std::size_t>(1 + blocks));
  check(cudaFuncSetAttribute(hold, cudaFuncAttributeMaxDynamicSharedMemorySize, most_shared_bytes()),
        "holding multiprocessors");
}

Occupant::~Occupant() {
  if (!runs_) return;
  *static_cast<volatile std::uint32_t*>(flags_.get()) = 1;
  static_cast<void>(cudaStreamSynchronize(stream_.get()));
}

void Occupant::start() {
  if (blocks_ == 0 || runs_) return;
  volatile std::uint32_t* flags = flags_.get();
  for (int i = 0; i <= blocks_; ++i) flags[i] = 0;
  hold<<<blocks_, kThreads, most_shared_bytes(), stream_.get()>>>(flags);
  check(cudaGetLastError(), "holding multiprocessors");
  runs_ = true;
  const auto end = std::chrono::steady_clock::now() + kMostWait;
  const auto all_began = [&] {
    for (int i = 1; i <= blocks_; ++i) {
      if (flags[i] == 0) return false;
    }
    return true;
  };
  while (!all_began() && std::chrono::steady_clock::now() < end) {
  }
}

void Occupant::stop() {
  if (!runs_) return;
  *static_cast<volatile std::uint32_t*>(flags_.get()) = 1;
  check(cudaStreamSynchronize(stream_.get()), "holding multiprocessors");
  runs_ = false;
}

}  // namespace rooflm::backends::cuda
