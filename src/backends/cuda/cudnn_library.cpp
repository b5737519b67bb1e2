// cuDNN's functions, loaded at run time.
#include "backends/cuda/cudnn_library.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>

#include "core/error.h"
#include "core/system/shared_library.h"

namespace rooflm::backends::cuda {
namespace {

/// The oldest supported version. Earlier ones have known bugs in the attention gradient and lack device
/// properties.
constexpr std::size_t kOldest = 91100;
constexpr std::size_t kMajorUnit = 10000;
constexpr std::size_t kMinorUnit = 100;

}  // namespace

CudnnLibrary CudnnLibrary::load() {
  const core::SharedLibrary library("cuDNN", {fmt::format("libcudnn.so.{}", CUDNN_MAJOR)});
  CudnnLibrary found;
  library.need("cudnnGetVersion", found.version);
  library.need("cudnnGetErrorString", found.error_string);
  library.need("cudnnGetLastErrorString", found.last_error_string);
  library.need("cudnnCreate", found.create);
  library.need("cudnnDestroy", found.destroy);
  library.need("cudnnSetStream", found.set_stream);
  library.need("cudnnBackendCreateDescriptor", found.create_descriptor);
  library.need("cudnnBackendDestroyDescriptor", found.destroy_descriptor);
  library.need("cudnnBackendSetAttribute", found.set_attribute);
  library.need("cudnnBackendGetAttribute", found.get_attribute);
  library.need("cudnnBackendFinalize", found.finalize);
  library.need("cudnnBackendExecute", found.execute);
  if (found.version() < kOldest) {
    throw core::Unavailable(
        fmt::format("cuDNN {} is too old, 9.11 is the first that is used", found.version_text()));
  }
  return found;
}

std::string CudnnLibrary::version_text() const {
  const std::size_t number = version();
  return fmt::format("{}.{}.{}", number / kMajorUnit, number % kMajorUnit / kMinorUnit, number % kMinorUnit);
}

void CudnnLibrary::check(cudnnStatus_t status, std::string_view what) const {
  if (status == CUDNN_STATUS_SUCCESS) return;
  constexpr std::size_t kLongest = 512;
  std::array<char, kLongest> words{};
  last_error_string(words.data(), words.size());
  throw core::Unavailable(fmt::format("cuDNN: {}: {} {}", what, error_string(status), words.data()));
}

CudnnHandle::CudnnHandle(const CudnnLibrary& library, cudaStream_t stream) : library_(&library) {
  library.check(library.create(&handle_), "creating a handle");
  try {
    library.check(library.set_stream(handle_, stream), "choosing a stream");
  } catch (...) {
    static_cast<void>(library.destroy(handle_));
    throw;
  }
}

}  // namespace rooflm::backends::cuda
