// RAII owners of CUDA and cuBLASLt objects. Move-only.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <type_traits>

namespace rooflm::backends::cuda {

/// Calls a C function of the runtime and ignores its status: a destructor has no use for it.
template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* object) const noexcept {
    static_cast<void>(destroy(object));
  }
};

/// Owns a `Pointer` handle of a C interface.
template <class Pointer, auto destroy>
using Handle = std::unique_ptr<std::remove_pointer_t<Pointer>, Destroy<destroy>>;

using StreamHandle = Handle<cudaStream_t, cudaStreamDestroy>;
using EventHandle = Handle<cudaEvent_t, cudaEventDestroy>;
using PoolHandle = Handle<cudaMemPool_t, cudaMemPoolDestroy>;
using GraphHandle = Handle<cudaGraph_t, cudaGraphDestroy>;
using GraphExecHandle = Handle<cudaGraphExec_t, cudaGraphExecDestroy>;
using LtHandle = Handle<cublasLtHandle_t, cublasLtDestroy>;
using LtDesc = Handle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using LtLayout = Handle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using LtPreference = Handle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

/// An event that records timestamps.
EventHandle make_event();

/// Pinned host memory that the device can read and write.
template <class T>
using PinnedArray = std::unique_ptr<T[], Destroy<cudaFreeHost>>;
/// Allocates `bytes` of pinned host memory. Throws core::Unavailable.
void* allocate_pinned(std::size_t bytes);
/// Initialised to zero.
template <class T>
PinnedArray<T> make_pinned(std::size_t count) {
  auto* data = static_cast<T*>(allocate_pinned(count * sizeof(T)));
  for (std::size_t i = 0; i < count; ++i) data[i] = T{};
  return PinnedArray<T>(data);
}

}  // namespace rooflm::backends::cuda
