// Separates matmuls that rooflm packs and other frameworks run one by one. For plans only.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// q, k and v, and gate and up, become separate matmuls, as the nn.Linear modules of Llama models are:
/// narrower GEMMs, and gradients of their common input that are summed. For a finished step with SwiGLU, the
/// last pass before lanes are set.
void separate_matmuls(program::Program& step);

}  // namespace rooflm::passes
