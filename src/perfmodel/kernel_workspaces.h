// What rooflm's kernels hold on a GPU beside the tensors of a program.
#pragma once

#include "devices/device.h"
#include "program/program.h"

namespace rooflm::perfmodel {

/// Bytes that the CUDA backend holds for the kernels of a program (Backend::workspace_bytes): cuBLASLt's
/// workspaces, scratch memory and tables of RoPE, made in the order of the ops as the engine does. 0 on
/// processors. Left out: attention over a ring, what cuDNN asks for its own plans, and kernels that need less
/// than a norm's gradient.
[[nodiscard]] double kernel_workspace_bytes(const program::Program& program, const devices::Device& device,
                                            bool is_deterministic);

}  // namespace rooflm::perfmodel
