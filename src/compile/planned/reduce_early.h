// Tensor-parallel reductions that run beside the gradient of the weight.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// Megatron-LM since 2022 and TransformerEngine (LinearWithGradAccumulationAndAsyncCommunication.backward of
/// megatron/core/tensor_parallel/layers.py; bulk overlap of TransformerEngine's userbuffers): the gradient of
/// a layer's input is summed over tensor-parallel ranks as soon as its product is done, beside the product
/// that makes the gradient of the weight. Without this pass the sum comes where the backward pass reaches the
/// forward pass's gathering, behind both products. Of a finished step, before overlap_collectives.
void reduce_early(program::Program& step);

}  // namespace rooflm::passes
