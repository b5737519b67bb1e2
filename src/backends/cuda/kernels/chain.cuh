// Kernels that follow each other closely: one starts while the one before it in its stream still runs, and
// waits for it where it first needs it ("programmatic dependent launch", compute capability 9.0). Until then
// it may read what no kernel of the stream writes, and nothing else.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "backends/cuda/kernels/chain.h"
#include "backends/cuda/kernels/stream.h"

namespace rooflm::backends::cuda {

/// The kernel after this one may start once all blocks have come here.
__device__ inline void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Returns when the kernels before this one have ended; what they wrote can be read, what they read can be
/// written. Each block of a kernel that is launched with launch_chained calls it before it touches what
/// others do.
__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Both, for kernels that have nothing to do before.
__device__ inline void follow_previous() {
  let_next_start();
  wait_for_previous();
}

/// Whether the GPUs that this file is compiled for can do it.
inline bool can_chain() {
#ifdef __CUDA_ARCH_LIST__
  constexpr int kArchitectures[] = {__CUDA_ARCH_LIST__};
  return kArchitectures[0] >= 900;
#else
  return false;
#endif
}

/// Whether launches of this thread may overlap (chain.h).
extern thread_local bool is_chained;

/// Of a multiprocessor's memory, in percent of what may be shared memory; the rest is where loads arrive.
inline constexpr unsigned kCarveout = 50;

/// Launches a kernel that calls wait_for_previous. Throws std::runtime_error "launching WHAT: REASON".
template <class... Parameters, class... Arguments>
void launch_chained(Stream stream, const char* what, void (*kernel)(Parameters...), dim3 blocks, int threads,
                    int shared_bytes, Arguments&&... arguments) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  // Kernels of other carveouts do not run beside each other on a multiprocessor.
  attributes[1].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
  attributes[1].val.sharedMemCarveout = kCarveout;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = is_chained && can_chain() ? 2 : 0;
  const cudaError_t error =
      cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(std::forward<Arguments>(arguments))...);
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("launching ") + what + ": " + cudaGetErrorString(error));
}

}  // namespace rooflm::backends::cuda
