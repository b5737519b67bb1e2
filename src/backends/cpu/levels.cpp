// Selects the kernel table for this CPU.
#include "backends/cpu/levels.h"

#include <algorithm>
#include <oneapi/dnnl/dnnl.hpp>

namespace rooflm::backends::cpu {

const Level& best_of(std::span<const Level> levels, unsigned isa) {
  return *std::ranges::find_if(levels, [isa](const Level& level) { return (level.needs & ~isa) == 0; });
}

const Level& level() {
  static const Level& best = best_of(levels(), static_cast<unsigned>(dnnl::get_effective_cpu_isa()));
  return best;
}

}  // namespace rooflm::backends::cpu
