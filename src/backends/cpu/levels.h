// The kernel tables of this build: the same sources, compiled for several kinds of processors.
#pragma once

#include <span>
#include <string_view>

#include "backends/cpu/resources.h"

namespace rooflm::backends::cpu {

/// Kernels for processors that have some instructions.
struct Level {
  std::string_view name;  ///< "avx512_bf16", "x86-64-v3"; "native": whatever the compiling machine has
  unsigned needs;         ///< dnnl_cpu_isa_t, whose values are sets of bits; 0: as much as the binary itself
  MakerRows (*fast)();
  MakerRows (*reference)();
};

/// All levels of this build, the best first; the last needs nothing. Written by CMakeLists.txt.
std::span<const Level> levels();

/// The first of `levels` that a processor with `isa` (dnnl_cpu_isa_t) runs. The last must need nothing.
const Level& best_of(std::span<const Level> levels, unsigned isa);

/// The level whose kernels run here. oneDNN is asked what processor and system have, so that ours and its
/// kernels go by the same answer, and by the same switch: ONEDNN_MAX_CPU_ISA=AVX2 in the environment.
const Level& level();

}  // namespace rooflm::backends::cpu
