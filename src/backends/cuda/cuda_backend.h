// NVIDIA GPUs as devices for engines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "backends/provider.h"

namespace rooflm::backends::cuda {

struct CudaOptions {
  /// Which cuBLASLt algorithm each matmul uses. Autotuned algorithms are faster, but another process may find
  /// another one, which rounds differently, unless it takes those that the first one stored in `gemm_cache`.
  GemmSearch gemm_search = GemmSearch::none;
  std::filesystem::path gemm_cache;  ///< folder of the autotune cache; empty: no cache
  std::string gemm_choices;          ///< GemmChoices::text of an earlier process; takes precedence
  /// The same bits every time. Otherwise the attention gradient may be summed in the order in which blocks
  /// finish, where that is faster.
  bool deterministic = true;
  /// Processes that share the GPU; each gets an equal share of its memory.
  int sharers = 1;
};

/// The GPU `index`. Kernels only submit. Memory comes from a pool of the backend, which keeps freed blocks,
/// as the allocators of frameworks do; the pool is destroyed with the backend. Throws core::Unavailable, with
/// the reason, if there is no such GPU or it cannot run this build.
std::unique_ptr<Backend> make_cuda_backend(int index, const CudaOptions& options);

/// Adds the collectives of a rank, through NCCL, to a backend made by make_cuda_backend (Provider::join).
/// Throws core::Unavailable if NCCL is missing, does not work or does not support the wish.
void join_ranks(Backend& backend, const std::shared_ptr<ranks::Transport>& transport,
                const program::Mesh& mesh, CollectiveWish wish);
/// "2.28.9". Throws core::Unavailable without NCCL.
std::string nccl_version();

/// Where the GEMM algorithms of a backend came from; empty for other devices.
GemmChoices gemm_choices(const Backend& backend);

/// Whether attention can use cuDNN here: its version, "9.19.0", or why not.
struct CudnnStatus {
  std::string version;
  std::string reason;
};
CudnnStatus query_cudnn();

}  // namespace rooflm::backends::cuda
