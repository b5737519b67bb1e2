// Choosing among cuBLASLt's algorithms for one product.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "backends/cuda/gemm_algorithm.h"

namespace rooflm::backends::cuda {

/// What cuBLASLt proposes, the first first; empty when it has nothing.
[[nodiscard]] std::vector<cublasLtMatmulAlgo_t> propose(const LtProduct& product);

/// Whether this cuBLASLt has the algorithm for the product, in its workspace.
[[nodiscard]] bool is_possible(const LtProduct& product, const cublasLtMatmulAlgo_t& algorithm);

/// Seconds of one product with an algorithm, from that many runs; infinity when it does not run.
using TimeProduct = std::function<double(const cublasLtMatmulAlgo_t& algorithm, int runs)>;

/// The fastest of what cuBLASLt proposes for the device and for parts of it, whose numbers of tiles may fit
/// the whole better; for long products also of random changes of the fastest ones: other tiles, clusters and
/// variants, as many as a second has room for. `varies`: whether to try those, which presumes operands
/// aligned to 16 bytes. `proposals` are propose(product), at least one.
[[nodiscard]] cublasLtMatmulAlgo_t find_fastest(const LtProduct& product,
                                                const std::vector<cublasLtMatmulAlgo_t>& proposals,
                                                bool varies, const TimeProduct& time);

}  // namespace rooflm::backends::cuda
