// Grouped matmuls of experts in fp8. For plans only: no backend has such kernels.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// Grouped matmuls of layers read fp8 copies of their rows and weights (TransformerEngine's GroupedLinear),
/// each cast once after it was written, by a scale of the tensor itself. They have one layout: what other
/// kernels need of a second one is not planned.
void fp8_experts(program::Program& step);

}  // namespace rooflm::passes
