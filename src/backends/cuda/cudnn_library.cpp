// cuDNN's functions, found when the program runs.
#include "backends/cuda/cudnn_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstddef>

#include "core/error.h"

namespace rooflm::backends::cuda {
namespace {

/// Earlier ones have known faults in the gradient of attention, and know no device properties.
constexpr std::size_t kOldest = 91100;
constexpr std::size_t kMajorUnit = 10000;
constexpr std::size_t kMinorUnit = 100;

template <class Function>
void find(void* library, const char* name, Function& function) {
  void* address = dlsym(library, name);
  if (address == nullptr) throw core::Unavailable(fmt::format("cuDNN has no {}", name));
  function = reinterpret_cast<Function>(address);
}

}  // namespace

CudnnLibrary CudnnLibrary::load() {
  const std::string file = fmt::format("libcudnn.so.{}", CUDNN_MAJOR);
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) throw core::Unavailable(fmt::format("cuDNN is not here: {}", dlerror()));
  CudnnLibrary found;
  find(library, "cudnnGetVersion", found.version);
  find(library, "cudnnGetErrorString", found.error_string);
  find(library, "cudnnGetLastErrorString", found.last_error_string);
  find(library, "cudnnCreate", found.create);
  find(library, "cudnnDestroy", found.destroy);
  find(library, "cudnnSetStream", found.set_stream);
  find(library, "cudnnBackendCreateDescriptor", found.create_descriptor);
  find(library, "cudnnBackendDestroyDescriptor", found.destroy_descriptor);
  find(library, "cudnnBackendSetAttribute", found.set_attribute);
  find(library, "cudnnBackendGetAttribute", found.get_attribute);
  find(library, "cudnnBackendFinalize", found.finalize);
  find(library, "cudnnBackendExecute", found.execute);
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
