// NVIDIA GPUs as a device for engines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "backends/provider.h"

namespace rooflm::backends::cuda {

struct CudaOptions {
  /// Which cuBLASLt algorithm each matmul takes. A search is faster at run time, but another process may find
  /// another algorithm, which rounds differently, unless it takes what the first one kept in `gemm_cache`.
  GemmSearch gemm_search = GemmSearch::none;
  std::filesystem::path gemm_cache;  ///< a folder; empty: nothing is kept
  std::string gemm_choices;          ///< GemmChoices::text of an earlier process, which win
  /// The same bits every time. Without it the gradient of attention is summed in whatever order its blocks
  /// finish, where that is faster.
  bool deterministic = true;
  /// Processes that share the GPU: each has as much of its memory.
  int sharers = 1;
};

/// The GPU `index` with one stream. Kernels only submit. Allocations come from a pool of the backend that
/// keeps what is released, as the allocators of frameworks do; the pool goes with the backend. Throws
/// core::Unavailable with the reason when there is no such GPU, or none that runs this build.
std::unique_ptr<Backend> make_cuda_backend(int index, const CudaOptions& options);

/// Gives a backend that make_cuda_backend made the collectives of its rank, through NCCL (Provider::join).
/// Throws core::Unavailable where NCCL is not here or does not work, or cannot do what is wished for.
void join_ranks(Backend& backend, const std::shared_ptr<ranks::Transport>& transport,
                const program::Mesh& mesh, CollectiveWish wish);
/// "2.28.9". Throws core::Unavailable where NCCL is not here.
std::string nccl_version();

/// How the GEMM algorithms of a backend were found; none for other devices.
GemmChoices gemm_choices(const Backend& backend);

/// Whether attention can use cuDNN here: its version, "9.19.0", or why not.
struct CudnnStatus {
  std::string version;
  std::string reason;
};
CudnnStatus query_cudnn();

}  // namespace rooflm::backends::cuda
