// Host-side helpers of launchers: dispatch on the element type, grid size, launch check.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>

#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"
#include "core/error.h"

namespace rooflm::backends::cuda {

using bf16 = __nv_bfloat16;
using fp16 = __half;

/// Throws std::runtime_error "launching WHAT: REASON" if the last launch failed.
inline void check_launch(const char* what) {
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    throw std::runtime_error(std::string("launching ") + what + ": " + cudaGetErrorString(error));
  }
}

/// Calls body(T{}) with the element type of `dtype`; core::Unavailable when there is no kernel for it.
template <class Body>
void with_element(core::DType dtype, const char* what, Body&& body) {
  if (dtype == core::DType::f32) return body(float{});
  if (dtype == core::DType::bf16) return body(bf16{});
  if (dtype == core::DType::f16) return body(fp16{});
  throw core::Unavailable(std::string(what) + " on cuda: no kernel for " + std::string(core::name_of(dtype)));
}

/// Whether all of these can be accessed 16 bytes at a time; null pointers count as aligned.
inline bool are_aligned(std::initializer_list<const void*> pointers) {
  std::uintptr_t bits = 0;
  for (const void* pointer : pointers) bits |= reinterpret_cast<std::uintptr_t>(pointer);
  return bits % 16 == 0;
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The number of blocks as a grid dimension; std::runtime_error if it exceeds the limit.
inline unsigned grid_size(std::int64_t blocks, const char* what) {
  constexpr std::int64_t kMost = 0x7fffffff;
  if (blocks > kMost) throw std::runtime_error(std::string("launching ") + what + ": too many blocks");
  return static_cast<unsigned>(blocks);
}

/// Lets a kernel use that much shared memory per block.
template <class Kernel>
void allow_shared(Kernel* kernel, int bytes, const char* what) {
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string("shared memory of ") + what + ": " + cudaGetErrorString(error));
  }
}

/// Shared memory that a block of the current device may have, in bytes.
inline int most_shared_bytes() {
  int device = 0;
  int bytes = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string("asking for shared memory: ") + cudaGetErrorString(error));
  }
  return bytes;
}

/// Number of multiprocessors of the current device.
inline int multiprocessors() {
  int device = 0;
  int count = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string("counting multiprocessors: ") + cudaGetErrorString(error));
  }
  return count;
}

}  // namespace rooflm::backends::cuda
