// Rows of other tensor-parallel ranks that are fetched again instead of kept.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// Megatron-Core and TransformerEngine (LinearWithGradAccumulationAndAsyncCommunication.backward of
/// megatron/core/tensor_parallel/layers.py; _LayerNormLinear.backward of
/// transformer_engine/pytorch/module/layernorm_linear.py): of the rows that sequence-parallel ranks gather
/// for a layer's product, each keeps its own, and gathers all of them again for the gradient of the weight,
/// beside the product that makes the gradient of the input. So 1/t of what the product reads is kept, and a
/// third collective travels. Of a step that is differentiated, after recompute, before dtypes are set.
void gather_again(program::Program& step);

}  // namespace rooflm::passes
