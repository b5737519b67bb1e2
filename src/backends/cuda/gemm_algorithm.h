// Properties of a cuBLASLt algorithm.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rooflm::backends::cuda {

/// A matmul as cuBLASLt describes it.
struct LtMatmul {
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulPreference_t preference = nullptr;
  std::size_t workspace_bytes = 0;
};

/// Workspace bytes that the algorithm needs for the matmul; nullopt if cuBLASLt does not support the
/// combination.
[[nodiscard]] std::optional<std::size_t> workspace_of(const LtMatmul& matmul,
                                                      const cublasLtMatmulAlgo_t& algorithm);

/// The configuration of an algorithm. tile and stages are "auto" if cuBLASLt chooses at run time, and the
/// number of the enumerator if its name is unknown.
struct AlgorithmConfig {
  std::int32_t id = 0;
  std::string tile, stages;  ///< "128x256", "4" or "64x4" (elements of the inner extent x stages)
  std::int32_t split_k = 1;
};
[[nodiscard]] AlgorithmConfig config_of(const cublasLtMatmulAlgo_t& algorithm);

/// Names of cuBLASLt's enumerators without their prefix; "" for unknown values. The build reads them from
/// cublasLt.h (cmake/cublaslt_names.cmake).
[[nodiscard]] std::string_view tile_name(std::uint32_t id);
[[nodiscard]] std::string_view stages_name(std::uint32_t id);

}  // namespace rooflm::backends::cuda
