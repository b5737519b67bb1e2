// Products that rooflm packs and other frameworks do one by one.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// Queries, keys and values, and gate and up, are products of their own, as nn.Linear modules of Llama models
/// are: narrower GEMMs, and gradients of their common input that are added up. Of a finished step with
/// SwiGLU, the last pass before lanes are set.
void separate_products(program::Program& step);

}  // namespace rooflm::passes
