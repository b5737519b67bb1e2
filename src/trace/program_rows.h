// A program as rows of a run record.
#pragma once

#include <string>
#include <vector>

#include "compile/passes/plan_memory.h"
#include "program/program.h"
#include "record/rows.h"

namespace rooflm::trace {

/// All ops but setup ones. `kernels`: the table that ran them, "fused" or "eager"; the name of a kernel is
/// that table, the op, its dtype and, for products, its extents: "fused::matmul_bf16_256x2304x768".
std::vector<record::Op> op_rows(const program::Program& program, const std::string& kernels);

/// Tensors that some op touches, with the ops between which they are alive and their place in the arena.
std::vector<record::Tensor> tensor_rows(const program::Program& program, const passes::MemoryPlan& plan,
                                        bool has_arena);

}  // namespace rooflm::trace
