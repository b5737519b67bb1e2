// Which op the device has come to.
#include "backends/cuda/progress.h"

#include <utility>

#include "backends/cuda/check.h"

namespace rooflm::backends::cuda {

Progress::Progress() : mark_(make_pinned<std::uint32_t>(1)) {
  constexpr unsigned kVersion = 12000;  // of the function's form
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuStreamWriteValue32", &function, kVersion,
                                                             cudaEnableDefault, &found);
  if (error == cudaSuccess && found == cudaDriverEntryPointSuccess) {
    write_ = reinterpret_cast<WriteValue>(function);
  }
  static_cast<void>(cudaGetLastError());
}

std::uint32_t Progress::add(std::string op) {
  ops_.push_back(std::move(op));
  return static_cast<std::uint32_t>(ops_.size());
}

void Progress::begin(cudaStream_t stream, std::uint32_t op) const {
  if (write_ == nullptr) return;
  static_cast<void>(write_(stream, reinterpret_cast<std::uintptr_t>(mark_.get()), op, 0));
}

void Progress::clear() {
  if (mark_[0] != 0) mark_[0] = 0;
}

std::string Progress::current() const {
  const std::uint32_t op = *static_cast<const volatile std::uint32_t*>(mark_.get());
  return op == 0 || op > ops_.size() ? std::string() : ops_[op - 1];
}

}  // namespace rooflm::backends::cuda
