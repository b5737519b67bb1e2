// NVIDIA GPUs as a device for engines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "backends/backend.h"

namespace rooflm::backends::cuda {

struct CudaOptions {
  /// Times the most promising algorithms of each product and takes the fastest, instead of the first that
  /// cuBLASLt proposes. Faster, but another process may choose differently and round differently, unless the
  /// choice is kept in a file of `product_cache`.
  bool tune_products = false;
  std::filesystem::path product_cache;  ///< a folder; empty: nothing is kept
  /// The same bits every time. Without it the gradient of attention is summed in whatever order its blocks
  /// finish, where that is faster.
  bool deterministic = true;
};

/// The GPU `index` with one stream. Kernels only submit. Allocations come from a pool of the backend that
/// keeps what is released, as the allocators of frameworks do; the pool goes with the backend. Throws
/// core::Unavailable with the reason when there is no such GPU, or none that runs this build.
std::unique_ptr<Backend> make_cuda_backend(int index, const CudaOptions& options);

/// Whether attention can use cuDNN here: its version, "9.19.0", or why not.
struct CudnnStatus {
  std::string version;
  std::string reason;
};
CudnnStatus query_cudnn();

}  // namespace rooflm::backends::cuda
