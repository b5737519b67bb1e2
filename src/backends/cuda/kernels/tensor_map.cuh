// Descriptions of tensors for the copies of tensor_copy.cuh, made on the host.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "backends/cuda/kernels/wgmma.cuh"

namespace rooflm::backends::cuda {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

inline EncodeTiled encode_tiled() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  constexpr int kVersion = 12000;
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kVersion,
                                                             cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) {
    throw std::runtime_error("the driver has no cuTensorMapEncodeTiled");
  }
  return reinterpret_cast<EncodeTiled>(function);
}

/// Boxes of `box_rows` rows of 64 columns of [batch, rows, columns], elements of 16 bits, swizzled as
/// wgmma.cuh says; zeros beyond the last row and column.
inline CUtensorMap map_boxes(const void* base, std::int64_t batch, std::int64_t rows, std::int64_t columns,
                             int box_rows) {
  static const EncodeTiled kEncode = encode_tiled();
  constexpr cuuint64_t kBytes = 2;
  CUtensorMap map{};
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows),
                               static_cast<cuuint64_t>(batch)};
  const cuuint64_t strides[2] = {sizes[0] * kBytes, sizes[0] * sizes[1] * kBytes};
  const cuuint32_t box[3] = {kPanelCols, static_cast<cuuint32_t>(box_rows), 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  const CUresult result =
      kEncode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(base), sizes, strides, box, steps,
              CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw std::runtime_error("cuTensorMapEncodeTiled: " + std::to_string(result));
  return map;
}

}  // namespace rooflm::backends::cuda
