// Filling memory by a kernel: what a memset is in a stream, and cheaper than one in a graph.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backends/cuda/kernels/stream.h"

namespace rooflm::backends::cuda {

/// Sets `bytes` bytes to repetitions of the four bytes of `pattern`, beginning with its lowest at `to`.
struct Fill {
  void* to = nullptr;
  std::size_t bytes = 0;
  std::uint32_t pattern = 0;
};

void launch_fill(Stream stream, const Fill& fill);

/// *to = value, also in the host's memory.
void launch_store(Stream stream, std::uint32_t* to, std::uint32_t value);

/// Adds a fill to a graph, after `dependencies`.
cudaError_t add_fill_node(cudaGraph_t graph, const cudaGraphNode_t* dependencies, std::size_t count,
                          const Fill& fill, cudaGraphNode_t* node);

}  // namespace rooflm::backends::cuda
