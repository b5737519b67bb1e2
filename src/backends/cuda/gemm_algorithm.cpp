// Properties of a cuBLASLt algorithm.
#include "backends/cuda/gemm_algorithm.h"

#include <fmt/format.h>

namespace rooflm::backends::cuda {
namespace {

template <class T>
T config(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value{};
  std::size_t written = 0;
  const auto status =
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof value, &written);
  return status == CUBLAS_STATUS_SUCCESS ? value : T{};
}

std::string named(std::string_view name, std::uint32_t id) {
  if (id == 0) return "auto";
  return name.empty() ? fmt::format("#{}", id) : std::string(name);
}

}  // namespace

std::optional<std::size_t> workspace_of(const LtMatmul& matmul, const cublasLtMatmulAlgo_t& algorithm) {
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(matmul.handle, matmul.desc, matmul.a, matmul.b,
                                                        matmul.c, matmul.c, &algorithm, &result);
  if (status != CUBLAS_STATUS_SUCCESS) return std::nullopt;
  return result.workspaceSize;
}

AlgorithmConfig config_of(const cublasLtMatmulAlgo_t& algorithm) {
  const auto tile = config<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID);
  const auto stages = config<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID);
  return {.id = config<std::int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_ID),
          .tile = named(tile_name(tile), tile),
          .stages = named(stages_name(stages), stages),
          .split_k = config<std::int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM)};
}

}  // namespace rooflm::backends::cuda
