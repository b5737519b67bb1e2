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

/// All ops but setup ones. `kernels`: what runs each op of the program (Engine::kernels); empty for a program
/// that is not run, whose kernels have no names. Launches are those of the kernel where it knows them, else
/// those that a plain backend needs.
std::vector<record::Op> op_rows(const program::Program& program,
                                std::span<const backends::KernelInfo> kernels);

/// Tensors that some op touches, with the ops between which they are alive and their place in the arena.
std::vector<record::Tensor> tensor_rows(const program::Program& program, const passes::MemoryPlan& plan,
                                        bool has_arena);

}  // namespace rooflm::trace
