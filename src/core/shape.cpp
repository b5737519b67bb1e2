// Element counts of shapes that are too large, or seem to be.
#include "core/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "core/error.h"

namespace rooflm::core {

std::int64_t Shape::numel_of_extremes() const {
  if (std::ranges::find(dims(), 0) != dims().end()) return 0;
  throw UsageError(fmt::format(
      "a tensor of {} has more than 2^50 elements, which is not supported: choose smaller sizes", str()));
}

void Shape::refuse_rank(std::size_t rank) {
  throw std::logic_error(fmt::format("a shape of {} dimensions, the most are {}", rank, kMostDims));
}

void Shape::refuse_dimension(int i) const {
  throw std::out_of_range(fmt::format("{} has no dimension {}", str(), i));
}

}  // namespace rooflm::core
