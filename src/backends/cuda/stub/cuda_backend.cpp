// Stub for builds without a CUDA compiler.
#include "backends/cuda/cuda_backend.h"

#include <fmt/format.h>

#include "core/error.h"

namespace rooflm::backends::cuda {

std::unique_ptr<Backend> make_cuda_backend(int index, const CudaOptions& /*options*/) {
  throw core::Unavailable(fmt::format("cuda:{} is not available here: rooflm was built without CUDA: {}",
                                      index, ROOFLM_CUDA_REASON));
}

void join_ranks(Backend& /*backend*/, const std::shared_ptr<ranks::Transport>& /*transport*/,
                const program::Mesh& /*mesh*/, CollectiveWish /*wish*/) {
  throw core::Unavailable("built without CUDA");
}

std::string nccl_version() { throw core::Unavailable("built without CUDA"); }

GemmChoices gemm_choices(const Backend& /*backend*/) { return {}; }

CudnnStatus query_cudnn() { return {.version = {}, .reason = "built without CUDA"}; }

}  // namespace rooflm::backends::cuda
