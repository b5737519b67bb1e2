// cuBLASLt's functions, defined here instead of linked: the library is loaded when one is first called. It is
// 500 MB, and mapping it takes a quarter of a second that commands without a GPU should not pay. rooflm also
// runs without it.
#include <cublasLt.h>
#include <fmt/format.h>

#include <string>

#include "core/system/shared_library.h"

namespace {

/// Opened once: where the loader finds it, otherwise in the toolkit that rooflm was built with.
const rooflm::core::SharedLibrary& library() {
  static const rooflm::core::SharedLibrary opened = [] {
    const std::string file = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
    return rooflm::core::SharedLibrary("cuBLASLt", {file, std::string(ROOFLM_CUBLASLT_FOLDER) + "/" + file});
  }();
  return opened;
}

template <class Function>
Function* find(const char* name) {
  Function* function = nullptr;
  library().need(name, function);
  return function;
}

}  // namespace

// Defines the header's function `name` as a call of the library's.
#define FORWARD(result, name, parameters, arguments)           \
  result CUBLASWINAPI name parameters {                        \
    static auto* const function = find<decltype(name)>(#name); \
    return function arguments;                                 \
  }

// The header's parameter names use another style.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)
FORWARD(size_t, cublasLtGetVersion, (void), ())
FORWARD(const char*, cublasLtGetStatusString, (cublasStatus_t status), (status))
FORWARD(cublasStatus_t, cublasLtCreate, (cublasLtHandle_t * handle), (handle))
FORWARD(cublasStatus_t, cublasLtDestroy, (cublasLtHandle_t handle), (handle))
FORWARD(cublasStatus_t, cublasLtMatmul,
        (cublasLtHandle_t handle, cublasLtMatmulDesc_t matmul, const void* alpha, const void* a,
         cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
         const void* c, cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
         const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t bytes, cudaStream_t stream),
        (handle, matmul, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algorithm,
         workspace, bytes, stream))
FORWARD(cublasStatus_t, cublasLtMatmulDescCreate,
        (cublasLtMatmulDesc_t * matmul, cublasComputeType_t compute, cudaDataType_t scale),
        (matmul, compute, scale))
FORWARD(cublasStatus_t, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t matmul), (matmul))
FORWARD(cublasStatus_t, cublasLtMatmulDescSetAttribute,
        (cublasLtMatmulDesc_t matmul, cublasLtMatmulDescAttributes_t attribute, const void* value,
         size_t bytes),
        (matmul, attribute, value, bytes))
FORWARD(cublasStatus_t, cublasLtMatrixLayoutCreate,
        (cublasLtMatrixLayout_t * layout, cudaDataType type, uint64_t rows, uint64_t columns, int64_t stride),
        (layout, type, rows, columns, stride))
FORWARD(cublasStatus_t, cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t layout), (layout))
FORWARD(cublasStatus_t, cublasLtMatrixLayoutSetAttribute,
        (cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const void* value,
         size_t bytes),
        (layout, attribute, value, bytes))
FORWARD(cublasStatus_t, cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t * preference),
        (preference))
FORWARD(cublasStatus_t, cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t preference),
        (preference))
FORWARD(cublasStatus_t, cublasLtMatmulPreferenceSetAttribute,
        (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const void* value, size_t bytes),
        (preference, attribute, value, bytes))
FORWARD(cublasStatus_t, cublasLtMatmulAlgoGetHeuristic,
        (cublasLtHandle_t handle, cublasLtMatmulDesc_t matmul, cublasLtMatrixLayout_t a,
         cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
         cublasLtMatmulPreference_t preference, int wanted, cublasLtMatmulHeuristicResult_t* results,
         int* found),
        (handle, matmul, a, b, c, d, preference, wanted, results, found))
FORWARD(cublasStatus_t, cublasLtMatmulAlgoCheck,
        (cublasLtHandle_t handle, cublasLtMatmulDesc_t matmul, cublasLtMatrixLayout_t a,
         cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
         const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result),
        (handle, matmul, a, b, c, d, algorithm, result))
FORWARD(cublasStatus_t, cublasLtMatmulAlgoCapGetAttribute,
        (const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulAlgoCapAttributes_t attribute, void* value,
         size_t bytes, size_t* written),
        (algorithm, attribute, value, bytes, written))
FORWARD(cublasStatus_t, cublasLtMatmulAlgoConfigGetAttribute,
        (const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute, void* value,
         size_t bytes, size_t* written),
        (algorithm, attribute, value, bytes, written))
FORWARD(cublasStatus_t, cublasLtMatmulAlgoConfigSetAttribute,
        (cublasLtMatmulAlgo_t * algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute, const void* value,
         size_t bytes),
        (algorithm, attribute, value, bytes))
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
