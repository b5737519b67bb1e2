// The elements of shapes that are too large, or seem to be.
#include "core/shape.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace rooflm::core {

std::int64_t Shape::numel_of_extremes() const {
  if (std::ranges::find(dims_, 0) != dims_.end()) return 0;
  throw UsageError(fmt::format(
      "a tensor of {} has more than 2^50 elements, which is not supported: choose smaller sizes", str()));
}

}  // namespace rooflm::core
