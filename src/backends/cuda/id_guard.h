// Validates token ids, which are external input: kernels skip ids outside the vocabulary and report them
// here.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/cuda/handles.h"

namespace rooflm::backends::cuda {

class Context;

/// Ids that a kernel reads: their kind, count and upper bound.
struct CheckedIds {
  const char* what = "token";  ///< or "target"
  std::int64_t count = 0, limit = 0;
  bool negative_is_ignored = false;
  const std::int32_t* ids = nullptr;  ///< device memory of the last submission
};

/// A flag in pinned host memory that kernels set if an id is out of range. Checking it after waiting is free;
/// no extra kernel is launched.
class IdGuard {
 public:
  IdGuard() : flag_(make_pinned<std::int32_t>(1)) {}

  /// Registers ids that a kernel reads. The kernel sets `ids` when it submits, and must keep the returned
  /// pointer.
  std::shared_ptr<CheckedIds> add(const CheckedIds& ids);
  /// The flag's address, for kernels.
  [[nodiscard]] std::int32_t* flag() const { return flag_.get(); }
  /// Call when everything submitted has run. Throws core::InputError naming the first bad id, as on the CPU.
  void verify(const Context& context);

 private:
  PinnedArray<std::int32_t> flag_;  ///< a single element
  std::vector<std::weak_ptr<CheckedIds>> all_;
};

}  // namespace rooflm::backends::cuda
