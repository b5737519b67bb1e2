// Weights that no step changes as codes and scales.
#pragma once

#include "core/weight_format.h"
#include "program/program.h"

namespace rooflm::passes {

/// Stores the matrices of layers that matmuls alone read in `format`. Copies in the compute dtype go: a
/// matmul reads codes. Adapters stay as they are. Run it on a step whose dtypes are set, before weights are
/// narrowed. Throws core::UsageError for a matrix whose rows the format cannot hold, and where there is none.
void pack_weights(program::Program& program, core::WeightFormat format);

/// Whether a weight of that name and shape is one of the matrices that have formats.
bool has_format(const program::Tensor& weight);

}  // namespace rooflm::passes
