// What a program says about itself, as tables.
#include "cli/program_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "model/flop_conventions.h"

namespace rooflm::cli {
namespace {

using perfmodel::persistent_by_role;
using perfmodel::saved_for_backward_bytes;
using perfmodel::step_totals;
using perfmodel::Totals;
using perfmodel::totals_by_block;
using perfmodel::totals_by_phase;
using program::Op;
using program::Phase;
using program::Program;
using program::TensorId;

/// "256x768"
std::string dims(const core::Shape& shape) { return fmt::format("{}", fmt::join(shape.dims(), "x")); }

/// The first few operands of an op; a multi-tensor update has hundreds.
std::string shapes_of(const Program& program, const std::vector<TensorId>& ids) {
  constexpr std::size_t kMost = 3;
  std::vector<std::string> texts;
  std::size_t count = 0;
  for (const TensorId id : ids) {
    if (id == program::kNone) continue;
    if (count++ < kMost) texts.push_back(dims(program.shape(id)));
  }
  if (count > kMost) texts.push_back(fmt::format("... ({})", count));
  return fmt::format("{}", fmt::join(texts, " "));
}

/// dtype of the first output, then those of inputs that differ from it: "fp32 <- bf16".
std::string dtypes_of(const Program& program, const Op& op) {
  std::vector<std::string> names;
  const auto add = [&](TensorId id) {
    if (id == program::kNone) return;
    std::string name(core::name_of(program.tensor(id).dtype));
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
  };
  std::for_each(op.outputs.begin(), op.outputs.end(), add);
  std::for_each(op.inputs.begin(), op.inputs.end(), add);
  return fmt::format("{}", fmt::join(names, " "));
}

void set_cost(Row& row, const program::Cost& cost) {
  row.set("matmul_flop", cost.matmul_flop);
  row.set("elementwise_flop", cost.elementwise_flop);
  row.set("bytes_read", cost.bytes_read);
  row.set("bytes_written", cost.bytes_written);
  row.set("launches", cost.launches);
}

Row op_row(const PlannedProgram& planned, std::size_t index, Kernels kernels) {
  const auto& [program, plan, config] = planned;
  const Op& op = program.ops[index];
  Row row;
  constexpr std::size_t kCells = 24;
  row.reserve(kCells);
  row.set("index", static_cast<std::int64_t>(index));
  row.set("op", std::string(op.def->name));
  row.set("scope", op.scope);
  row.set("phase", std::string(program::name_of(op.phase)));
  row.set("lane", op.lane == program::Lane::compute ? Cell() : Cell(std::string(program::name_of(op.lane))));
  row.set("waits", op.waits.empty() ? Cell() : Cell(fmt::format("{}", fmt::join(op.waits, " "))));
  row.set("shapes", shapes_of(program, op.inputs) + " -> " + shapes_of(program, op.outputs));
  row.set("dtype", dtypes_of(program, op));
  set_cost(row, program::cost_of(program, op));
  const TensorId out = op.outputs.empty() ? program::kNone : op.outputs.front();
  const bool is_transient = out != program::kNone && !program::is_persistent(program.tensor(out).role);
  if (is_transient) {
    const auto id = static_cast<std::size_t>(out);
    row.set("first", std::int64_t{plan.lifetimes[id].first});
    row.set("last", std::int64_t{plan.lifetimes[id].last});
    row.set("lifetime", fmt::format("{}-{}", plan.lifetimes[id].first, plan.lifetimes[id].last));
    row.set("offset", plan.offsets[id]);
  } else {
    for (const char* key : {"first", "last", "lifetime", "offset"}) row.set(key, {});
  }
  row.set("recomputed", op.recomputed);
  const bool is_known = !kernels.empty() && !kernels[index].name.empty();
  row.set("kernel", is_known ? Cell(kernels[index].name) : Cell());
  row.set("library", is_known ? Cell(kernels[index].library) : Cell());
  row.set("variant", is_known ? Cell(kernels[index].variant) : Cell());
  row.set("workspace_bytes", is_known ? Cell(kernels[index].workspace_bytes) : Cell());
  return row;
}

Row cost_row(const char* key, const std::string& name, const Totals& totals) {
  Row row;
  row.set(key, name);
  row.set("ops", totals.ops);
  set_cost(row, totals.cost);
  const auto flop = static_cast<double>(totals.cost.matmul_flop + totals.cost.elementwise_flop);
  const auto bytes = static_cast<double>(totals.cost.bytes_read + totals.cost.bytes_written);
  row.set("flop_per_byte", bytes > 0 ? Cell(flop / bytes) : Cell());
  return row;
}

std::vector<Column> cost_columns(const char* key, const char* title) {
  return {{key, title},
          {"ops", "ops"},
          {"launches", "launches"},
          {"matmul_flop", "matmul FLOP", Show::si},
          {"elementwise_flop", "other FLOP", Show::si},
          {"bytes_read", "read", Show::bytes},
          {"bytes_written", "written", Show::bytes},
          {"flop_per_byte", "FLOP/byte", Show::fixed1}};
}

}  // namespace

Table op_table(const PlannedProgram& planned, std::string_view scope, Kernels kernels) {
  Table table{.columns = {{"index", "#"},
                          {"op", "op"},
                          {"scope", "scope"},
                          {"phase", "phase"},
                          {"lane", "lane"},
                          {"waits", "waits for"},
                          {"shapes", "inputs -> outputs"},
                          {"dtype", "dtype"},
                          {"matmul_flop", "matmul FLOP", Show::si},
                          {"elementwise_flop", "other FLOP", Show::si},
                          {"bytes_read", "read", Show::bytes},
                          {"bytes_written", "written", Show::bytes},
                          {"lifetime", "output lives"},
                          {"offset", "arena offset"},
                          {"recomputed", "redone"},
                          {"kernel", "kernel"},
                          {"library", "library"}},
              .rows = {},
              .notes = {}};
  const bool uses_lanes = std::any_of(planned.program.ops.begin(), planned.program.ops.end(),
                                      [](const Op& op) { return op.lane != program::Lane::compute; });
  if (!uses_lanes) {
    std::erase_if(table.columns,
                  [](const Column& column) { return column.key == "lane" || column.key == "waits"; });
  }
  table.rows.reserve(planned.program.ops.size());
  for (std::size_t i = 0; i < planned.program.ops.size(); ++i) {
    if (planned.program.ops[i].scope.starts_with(scope)) table.rows.push_back(op_row(planned, i, kernels));
  }
  return table;
}

Table block_table(const PlannedProgram& planned) {
  Table table{.columns = cost_columns("block", "block"), .rows = {}, .notes = {}};
  for (const auto& [block, totals] : totals_by_block(planned.program)) {
    table.rows.push_back(cost_row("block", block, totals));
  }
  return table;
}

Table phase_table(const PlannedProgram& planned) {
  Table table{.columns = cost_columns("phase", "phase"), .rows = {}, .notes = {}};
  const auto by_phase = totals_by_phase(planned.program);
  for (const auto& [phase, totals] : by_phase) {
    table.rows.push_back(cost_row("phase", std::string(program::name_of(phase)), totals));
  }
  table.rows.push_back(cost_row("phase", "step", step_totals(by_phase)));
  table.notes.emplace_back(
      "A multiply-add counts as 2 FLOP; causal attention counts in full. Bytes: every input is read once, "
      "every output written once.");
  return table;
}

Table flop_table(const model::ModelConfig& config, std::int64_t seq) {
  Table table{.columns = {{"convention", "FLOP/token"},
                          {"training", "training"},
                          {"forward", "forward"},
                          {"frozen", "LoRA"},
                          {"meaning", "counts"}},
              .rows = {},
              .notes = {"LoRA: weights are frozen, adapters add 6 FLOP per parameter of theirs."}};
  for (const model::FlopConvention& each : model::flop_conventions(config, seq)) {
    Row row;
    row.set("convention", std::string(each.name));
    row.set("training", each.training);
    row.set("forward", each.forward);
    row.set("frozen", each.frozen);
    row.set("meaning", std::string(each.meaning));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table parameter_table(const model::ModelConfig& config) {
  Table table{.columns = {{"block", "block"}, {"params", "parameters"}}, .rows = {}, .notes = {}};
  for (const auto& [block, count] : model::parameters_by_block(config)) {
    Row row;
    row.set("block", block);
    row.set("params", count);
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table memory_table(const PlannedProgram& planned) {
  Table table{
      .columns = {{"part", "memory"}, {"bytes", "bytes"}, {"amount", "amount"}}, .rows = {}, .notes = {}};
  const auto add = [&](const std::string& part, std::int64_t bytes) {
    Row row;
    row.set("part", part);
    row.set("bytes", bytes);
    row.set("amount", format_cell(bytes, Show::bytes));
    table.rows.push_back(std::move(row));
  };
  for (const auto& [role, bytes] : persistent_by_role(planned.program)) {
    add(std::string(program::name_of(role)), bytes);
  }
  add("saved for backward", saved_for_backward_bytes(planned));
  add("peak of live bytes", planned.plan.peak_live_bytes);
  add("peak of live bytes, nothing in place (eager)", planned.plan.unshared_peak_bytes);
  add("arena (fused)", planned.plan.arena_bytes);
  const std::int64_t params = model::parameter_count(planned.config);
  const std::int64_t active = model::active_parameter_count(planned.config);
  const std::int64_t padding = model::padding_count(planned.config);
  table.notes.push_back(fmt::format(
      "{} parameters{}{}.", params, active < params ? fmt::format(", {} of them for a token", active) : "",
      padding > 0 ? fmt::format("; {} more elements of weights are padding of the vocabulary", padding)
                  : ""));
  if (!planned.config.other_parts.empty())
    table.notes.push_back(fmt::format("Left out: {}.", planned.config.other_parts));
  return table;
}

}  // namespace rooflm::cli
