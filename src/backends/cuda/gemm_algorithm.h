// What cuBLASLt says of one of its algorithms.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rooflm::backends::cuda {

/// A product as cuBLASLt describes it.
struct LtProduct {
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulPreference_t preference = nullptr;
  std::size_t workspace_bytes = 0;
};

/// Bytes of workspace that the algorithm takes for the product; nullopt when cuBLASLt does not have it for
/// that.
[[nodiscard]] std::optional<std::size_t> workspace_of(const LtProduct& product,
                                                      const cublasLtMatmulAlgo_t& algorithm);

/// How an algorithm is configured. tile and stages are "auto" where cuBLASLt chooses when it runs, and
/// numbers of its enumeration where this library knows no name for them.
struct AlgorithmConfig {
  std::int32_t id = 0;
  std::string tile, stages;  ///< "128x256", "4" or "64x4" (elements of the inner extent x stages)
  std::int32_t split_k = 1;
};
[[nodiscard]] AlgorithmConfig config_of(const cublasLtMatmulAlgo_t& algorithm);

/// Names of its enumerations without their prefix, "" for values that it does not have: the build reads them
/// from cublasLt.h (cmake/cublaslt_names.cmake).
[[nodiscard]] std::string_view tile_name(std::uint32_t id);
[[nodiscard]] std::string_view stages_name(std::uint32_t id);

}  // namespace rooflm::backends::cuda
