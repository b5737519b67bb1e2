// Sums over the ops and tensors of a program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compile/passes/plan_memory.h"
#include "model/config.h"
#include "program/program.h"

namespace rooflm::perfmodel {

/// A program, the lifetimes and arena offsets of its tensors, and the model it is of. Borrows all.
struct PlannedProgram {
  const program::Program& program;
  const passes::MemoryPlan& plan;
  const model::ModelConfig& config;
};

/// Most bytes alive at once of the tensors that forward ops write for backward ops to read.
std::int64_t saved_for_backward_bytes(const PlannedProgram& planned);

/// What a group of ops costs together.
struct Totals {
  std::int64_t ops = 0;
  program::Cost cost{.launches = 0};
};

/// Of the phases that have ops, in their order.
std::vector<std::pair<program::Phase, Totals>> totals_by_phase(const program::Program& program);
/// Of the scopes, layers added up (core::Scope::any_layer), in the order in which they first appear. Setup
/// ops are left out.
std::vector<std::pair<std::string, Totals>> totals_by_block(const program::Program& program);
/// Of everything that one step runs: all but setup ops.
Totals step_totals(const program::Program& program);
/// The same from the sums of its phases, which saves a walk over the program.
Totals step_totals(const std::vector<std::pair<program::Phase, Totals>>& by_phase);

/// Bytes of the persistent tensors that have any, by role.
std::vector<std::pair<program::Role, std::int64_t>> persistent_by_role(const program::Program& program);

}  // namespace rooflm::perfmodel
