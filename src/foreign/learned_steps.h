// Modules of kernels in steps in which no module was marked. Private to the room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "foreign/module_ops.h"

namespace rooflm::foreign {

/// Work of a device, as the host asked for it.
struct Launch {
  std::uint64_t call_ns = 0;  ///< when the call began
  std::uint32_t thread = 0;   ///< that called
  std::uint32_t name = 0;     ///< of the kernel
};

struct LearnedOps {
  std::vector<std::optional<std::int64_t>> ops;  ///< of each launch, as ModuleOps numbers them
  std::size_t unlike = 0;  ///< launches whose place in their step no marked step has: of no module
};

/// The op of each launch, `launches` in the order of their calls. In steps whose modules are marked it is
/// that of the marks. A training step launches the same kernels in the same order as the one before: in a
/// step without marks, what is launched at some place of a phase is of the module that launched the same
/// kernel there in a marked step, the nearest one whose phase has the same kernels. Where none has, kernels
/// that the nearest one does not have are of the modules at work there, between kernels that both have: the
/// router of experts decides how many kernels of which kind they get.
LearnedOps learn_ops(ModuleOps& ops, std::span<const Launch> launches);

}  // namespace rooflm::foreign
