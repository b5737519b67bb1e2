// The report of a program: its ops, their cost by block and phase, and the memory they need.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "cli/table.h"
#include "perfmodel/program_totals.h"

namespace rooflm::cli {

using perfmodel::PlannedProgram;

/// Of all tables.
std::vector<Column> columns_of_programs();
/// One row per op whose scope begins with `scope` ("" for all): index, op, scope, phase, shapes, dtype,
/// matmul_flop, elementwise_flop, bytes_read, bytes_written, launches, first, last, offset, recomputed,
/// kernel, library, variant, workspace_bytes. `kernels`: what runs each op; empty where that is not known.
using Kernels = std::span<const backends::KernelInfo>;
Table op_table(const PlannedProgram& planned, std::string_view scope, Kernels kernels);
/// One row per scope, layers added up: ops, FLOPs, bytes, FLOP per byte; in the order of the forward pass.
Table block_table(const PlannedProgram& planned);
/// One row per phase, and the step: all but setup.
Table phase_table(const PlannedProgram& planned);
/// One row per part of the memory, in bytes.
Table memory_table(const PlannedProgram& planned);

/// One row per convention (model/flop_conventions.h): FLOPs per token of training, forward, and training with
/// frozen weights.
Table flop_table(const model::ModelConfig& config, std::int64_t seq);
/// One row per block of the model: its parameters, padding included.
Table parameter_table(const model::ModelConfig& config);

/// {"ops": [...], "totals": {...}}: totals hold the step's FLOPs and bytes (without setup ops), `by_phase`,
/// `by_block` and `memory`, and the model's `params`, `active_params`, `padding`, `params_by_block` and, for
/// texts of `seq` tokens, `flop_per_token`. With `totals_only` there are no ops. `write` is given the text in
/// pieces: that of a large program does not fit memory beside it.
void program_json(const PlannedProgram& planned, std::int64_t seq, std::string_view scope, bool totals_only,
                  Kernels kernels, const std::function<void(std::string_view)>& write);

}  // namespace rooflm::cli
