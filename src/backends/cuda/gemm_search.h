// Autotuning: finds the fastest cuBLASLt algorithm for one matmul.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "backends/cuda/gemm_algorithm.h"

namespace rooflm::backends::cuda {

/// cuBLASLt's proposals, best first by its heuristic; empty if it has none.
[[nodiscard]] std::vector<cublasLtMatmulAlgo_t> propose(const LtMatmul& matmul);

/// Whether this cuBLASLt supports the algorithm for the matmul, within its workspace.
[[nodiscard]] bool is_possible(const LtMatmul& matmul, const cublasLtMatmulAlgo_t& algorithm);

/// Seconds per matmul with an algorithm, measured over `runs` runs; infinity if it does not run.
using TimeMatmul = std::function<double(const cublasLtMatmulAlgo_t& algorithm, int runs)>;

/// The fastest of cuBLASLt's proposals for the whole device and for fewer multiprocessors, whose tile counts
/// may suit the whole device better. For long matmuls it also tries random variations of the fastest ones
/// (tiles, clusters, variants) for about a second. `varies`: whether to try variations; they require operands
/// aligned to 16 bytes. `proposals` are propose(matmul), at least one.
[[nodiscard]] cublasLtMatmulAlgo_t find_fastest(const LtMatmul& matmul,
                                                const std::vector<cublasLtMatmulAlgo_t>& proposals,
                                                bool varies, const TimeMatmul& time);

}  // namespace rooflm::backends::cuda
