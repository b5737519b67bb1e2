// cuDNN's functions, loaded at run time: the same binary works without cuDNN.
#pragma once

#include <cuda_runtime_api.h>
#include <cudnn_graph.h>

#include <memory>
#include <string>
#include <string_view>

namespace rooflm::backends::cuda {

/// The functions that are used, from the cuDNN whose headers this was compiled with or a later one of the
/// same major version.
struct CudnnLibrary {
  decltype(&cudnnGetVersion) version = nullptr;
  decltype(&cudnnGetErrorString) error_string = nullptr;
  decltype(&cudnnGetLastErrorString) last_error_string = nullptr;
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor = nullptr;
  decltype(&cudnnBackendSetAttribute) set_attribute = nullptr;
  decltype(&cudnnBackendGetAttribute) get_attribute = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;

  /// Loads the library and never unloads it: it keeps driver state until the process ends. Throws
  /// core::Unavailable with the reason.
  static CudnnLibrary load();
  /// "9.14.0".
  [[nodiscard]] std::string version_text() const;
  /// Throws core::Unavailable "cuDNN: WHAT: its message" unless `status` is CUDNN_STATUS_SUCCESS.
  void check(cudnnStatus_t status, std::string_view what) const;
};

/// cuDNN on one stream of the current device. Owns the handle; not movable.
class CudnnHandle {
 public:
  CudnnHandle(const CudnnLibrary& library, cudaStream_t stream);
  CudnnHandle(const CudnnHandle&) = delete;
  CudnnHandle& operator=(const CudnnHandle&) = delete;
  ~CudnnHandle() { static_cast<void>(library_->destroy(handle_)); }
  [[nodiscard]] cudnnHandle_t get() const { return handle_; }

 private:
  const CudnnLibrary* library_;
  cudnnHandle_t handle_ = nullptr;
};

}  // namespace rooflm::backends::cuda
