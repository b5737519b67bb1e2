// Tracks which op the device runs, for the error message when a kernel fails.
#include "backends/cuda/progress.h"

#include <utility>

#include "backends/cuda/driver_function.h"
#include "backends/cuda/kernels/fill.h"

namespace rooflm::backends::cuda {
namespace {

/// Flag of marks in recordings.
constexpr std::uint32_t kNear = 0x80000000U;

}  // namespace

Progress::Progress()
    : mark_(make_pinned<std::uint32_t>(1)), write_(driver_function<WriteValue>("cuStreamWriteValue32")) {}

std::uint32_t Progress::add(std::string op) {
  ops_.push_back(std::move(op));
  return static_cast<std::uint32_t>(ops_.size());
}

void Progress::begin(cudaStream_t stream, std::uint32_t op) const {
  if (write_ == nullptr) return;
  static_cast<void>(write_(stream, reinterpret_cast<std::uintptr_t>(mark_.get()), op, 0));
}

void Progress::pass(cudaStream_t stream, std::uint32_t op) const {
  launch_store(stream, mark_.get(), op | kNear);
}

void Progress::clear() {
  if (mark_[0] != 0) mark_[0] = 0;
}

Progress::Place Progress::current() const {
  const std::uint32_t mark = *static_cast<const volatile std::uint32_t*>(mark_.get());
  const std::uint32_t op = mark & ~kNear;
  if (op == 0 || op > ops_.size()) return {};
  return {.op = ops_[op - 1], .is_near = (mark & kNear) != 0};
}

}  // namespace rooflm::backends::cuda
