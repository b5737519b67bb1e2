// A program as rows of a run record.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "compile/passes/plan_memory.h"
#include "program/program.h"
#include "record/rows.h"

namespace rooflm::trace {

/// All ops except setup ops. `kernels`: the kernel of each op (Engine::kernels); empty for a program that
/// does not run, whose kernels have no names. Launches come from the kernel if it knows them, otherwise from
/// the op's cost.
std::vector<record::Op> op_rows(const program::Program& program,
                                std::span<const backends::KernelInfo> kernels);

/// Tensors that some op touches, with their first and last op and their offset in the arena.
std::vector<record::Tensor> tensor_rows(const program::Program& program, const passes::MemoryPlan& plan,
                                        bool has_arena);

}  // namespace rooflm::trace
