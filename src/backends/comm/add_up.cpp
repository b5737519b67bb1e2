// Sums over ranks in host memory.
#include "backends/comm/add_up.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/elements.h"

namespace rooflm::backends::comm {
namespace {

using core::DType;
using program::Part;

/// Elements summed at a time.
constexpr std::int64_t kPiece = 4096;

/// As add_up, with sums in C.
template <class C>
void add_up_in(const std::vector<const void*>& from, DType dtype, Part part, void* to, bool accumulate) {
  std::vector<C> sum(static_cast<std::size_t>(kPiece));
  std::vector<C> next(static_cast<std::size_t>(kPiece));
  for (std::int64_t first = part.begin; first < part.end; first += kPiece) {
    const std::int64_t count = std::min(kPiece, part.end - first);
    core::load_elements(dtype, from.front(), first, sum.data(), count);
    for (std::size_t rank = 1; rank < from.size(); ++rank) {
      core::load_elements(dtype, from[rank], first, next.data(), count);
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) sum[i] += next[i];
    }
    if (accumulate) {
      core::load_elements(dtype, to, first - part.begin, next.data(), count);
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) sum[i] = next[i] + sum[i];
    }
    core::store_elements(sum.data(), dtype, to, first - part.begin, count);
  }
}

}  // namespace

void add_up(const std::vector<const void*>& from, DType dtype, Part part, void* to, bool accumulate) {
  if (dtype == DType::f64) return add_up_in<double>(from, dtype, part, to, accumulate);
  add_up_in<float>(from, dtype, part, to, accumulate);
}

}  // namespace rooflm::backends::comm
