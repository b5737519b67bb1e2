// Rows of other tensor-parallel ranks are gathered again in the backward pass instead of kept. For plans
// only.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// Megatron-Core and TransformerEngine (LinearWithGradAccumulationAndAsyncCommunication.backward of
/// megatron/core/tensor_parallel/layers.py; _LayerNormLinear.backward of
/// transformer_engine/pytorch/module/layernorm_linear.py): of the rows that t sequence-parallel ranks gather
/// for a layer's matmul, each rank keeps its own. The backward pass gathers them again for the weight
/// gradient, while the matmul for the input gradient runs. So 1/t of the matmul's input is kept, for a third
/// collective. Runs on a differentiated step, after recompute, before dtypes are set.
void gather_again(program::Program& step);

}  // namespace rooflm::passes
