// Fills memory with a kernel: the equivalent of a memset in a stream, and faster than a memset node in a
// graph.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backends/cuda/kernels/stream.h"

namespace rooflm::backends::cuda {

/// Sets `bytes` bytes to repetitions of the four bytes of `pattern`, lowest byte first.
struct Fill {
  void* to = nullptr;
  std::size_t bytes = 0;
  std::uint32_t pattern = 0;
};

void launch_fill(Stream stream, const Fill& fill);

/// *to = value; `to` may be pinned host memory.
void launch_store(Stream stream, std::uint32_t* to, std::uint32_t value);

/// Adds a fill to a graph, after `dependencies`.
cudaError_t add_fill_node(cudaGraph_t graph, const cudaGraphNode_t* dependencies, std::size_t count,
                          const Fill& fill, cudaGraphNode_t* node);

}  // namespace rooflm::backends::cuda
