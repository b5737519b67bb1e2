// Memory of which NCCL's ranks reach each other's: windows.
#include "backends/cuda/collectives/nccl_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/units.h"

namespace rooflm::backends::cuda {

std::byte* NcclWindows::make_block(std::size_t bytes, bool is_reached) {
  void* data = nullptr;
  if (library_->mem_alloc(&data, bytes) != nccl::kSuccess) {
    throw core::OutOfMemory(fmt::format("NCCL has no {} of memory for collectives",
                                        core::format_bytes(static_cast<double>(bytes))),
                            static_cast<double>(bytes));
  }
  auto* first = static_cast<std::byte*>(data);
  std::vector<nccl::Window>& windows = windows_[first];
  for (nccl::Comm comm : comms_) {
    if (!is_reached) break;
    nccl::Window window = nullptr;
    if (library_->window_register(comm, data, bytes, &window, nccl::kWindowSymmetric) != nccl::kSuccess)
      window = nullptr;
    is_reached_ = is_reached_ && window != nullptr;
    windows.push_back(window);
  }
  return first;
}

void NcclWindows::free_block(std::byte* data) noexcept {
  const auto windows = windows_.find(data);
  for (std::size_t i = 0; i < std::min(comms_.size(), windows->second.size()); ++i) {
    if (windows->second[i] != nullptr)
      static_cast<void>(library_->window_deregister(comms_[i], windows->second[i]));
  }
  windows_.erase(windows);
  static_cast<void>(library_->mem_free(data));
}

}  // namespace rooflm::backends::cuda
