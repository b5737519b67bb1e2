// Token ids come from outside: kernels leave out those that no table has a row for, and say so here.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/cuda/handles.h"

namespace rooflm::backends::cuda {

class Context;

/// Ids that a kernel reads: of which kind, how many, and below what they have to be.
struct CheckedIds {
  const char* what = "token";  ///< or "target"
  std::int64_t count = 0, limit = 0;
  bool negative_is_ignored = false;
  const std::int32_t* ids = nullptr;  ///< device memory, of the last submission
};

/// One number in the host's memory that kernels set when an id is out of range. Looking at it after waiting
/// costs nothing, and nothing is launched for it.
class IdGuard {
 public:
  IdGuard() : flag_(make_pinned<std::int32_t>(1)) {}

  /// What a kernel reads. It fills in `ids` when it submits, and must keep what it got.
  std::shared_ptr<CheckedIds> add(const CheckedIds& ids);
  /// For the kernels.
  [[nodiscard]] std::int32_t* flag() const { return flag_.get(); }
  /// To be called when everything submitted has run: throws core::InputError naming the first bad id, as the
  /// processor does.
  void verify(const Context& context);

 private:
  PinnedArray<std::int32_t> flag_;  ///< a single one
  std::vector<std::weak_ptr<CheckedIds>> all_;
};

}  // namespace rooflm::backends::cuda
