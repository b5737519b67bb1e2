// What passes write where an index is expected and there is none.
#pragma once

#include <cstddef>
#include <limits>

namespace rooflm::passes {

/// Stands for the index of an op, or of what a pass found, that does not exist.
inline constexpr std::size_t kNoIndex = std::numeric_limits<std::size_t>::max();

}  // namespace rooflm::passes
