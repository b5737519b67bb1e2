// Ops of a forward pass whose results are the same for every micro-batch.
#pragma once

#include <vector>

#include "program/program.h"

namespace rooflm::passes {

/// For each op of a program, whether it computes something of weights alone that no gradient goes through, as
/// DoRA's norms: all micro-batches share its outputs, and recomputing them saves next to no memory. Ops of
/// setup are such ops, too.
std::vector<bool> find_shared_ops(const program::Program& program);

}  // namespace rooflm::passes
