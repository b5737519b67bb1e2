// What a program says about itself, as tables.
#include "cli/program_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "core/ratio.h"
#include "model/flop_conventions.h"
#include "report/tables/typed_columns.h"

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

/// The columns of a cost.
report::TypedColumns<program::Cost> cost_columns() {
  using program::Cost;
  return {{"matmul_flop", "matmul FLOP", &Cost::matmul_flop, Show::si},
          {"elementwise_flop", "other FLOP", &Cost::elementwise_flop, Show::si},
          {"bytes_read", "read", &Cost::bytes_read, Show::bytes},
          {"bytes_written", "written", &Cost::bytes_written, Show::bytes}};
}

/// An op of a program, with what memory and kernels it has.
struct OpRow {
  const PlannedProgram* planned = nullptr;
  std::size_t index = 0;
  program::Cost cost{};
  const backends::KernelInfo* kernel = nullptr;  ///< nullptr where it is not known

  [[nodiscard]] const Op& op() const { return planned->program.ops[index]; }
  /// Its first output, where the arena holds that.
  [[nodiscard]] std::optional<std::size_t> transient() const {
    const TensorId out = op().outputs.empty() ? program::kNone : op().outputs.front();
    if (out == program::kNone || program::is_persistent(planned->program.tensor(out).role)) return {};
    return static_cast<std::size_t>(out);
  }
  template <class Value>
  [[nodiscard]] Cell of_output(Value value) const {
    const auto id = transient();
    return id ? report::cell_from(value(planned->plan, *id)) : Cell();
  }
};

const report::TypedColumns<OpRow>& op_columns() {
  static const report::TypedColumns<OpRow> columns = [] {
    using Of = const OpRow&;
    using Plan = const passes::MemoryPlan&;
    const auto kernel = [](auto member) {
      return
          [member](Of of) { return of.kernel == nullptr ? std::nullopt : std::optional(of.kernel->*member); };
    };
    const auto output = [](auto value) { return [value](Of of) { return of.of_output(value); }; };
    report::TypedColumns<OpRow> all = {
        {"index", "#", &OpRow::index},
        {"op", "op", [](Of of) { return of.op().def->name; }},
        {"scope", "scope", [](Of of) { return of.op().scope; }},
        {"phase", "phase", [](Of of) { return of.op().phase; }},
        {"lane", "lane",
         [](Of of) {
           return of.op().lane == program::Lane::compute ? std::nullopt : std::optional(of.op().lane);
         },
         report::Seen::when_known},
        {"waits", "waits for",
         [](Of of) { return report::known_text(fmt::format("{}", fmt::join(of.op().waits, " "))); },
         report::Seen::when_known},
        {"shapes", "inputs -> outputs",
         [](Of of) {
           const Program& program = of.planned->program;
           return shapes_of(program, of.op().inputs) + " -> " + shapes_of(program, of.op().outputs);
         }},
        {"dtype", "dtype", [](Of of) { return dtypes_of(of.planned->program, of.op()); }}};
    all.add(cost_columns(), &OpRow::cost);
    return all.add(
        {{"launches", [](Of of) { return of.cost.launches; }},
         {"first", output([](Plan plan, std::size_t id) { return plan.lifetimes[id].first; })},
         {"last", output([](Plan plan, std::size_t id) { return plan.lifetimes[id].last; })},
         {"lifetime", "output lives", output([](Plan plan, std::size_t id) {
            return fmt::format("{}-{}", plan.lifetimes[id].first, plan.lifetimes[id].last);
          })},
         {"offset", "arena offset", output([](Plan plan, std::size_t id) { return plan.offsets[id]; })},
         {"recomputed", "redone", [](Of of) { return of.op().recomputed; }},
         {"kernel", "kernel", kernel(&backends::KernelInfo::name)},
         {"library", "library", kernel(&backends::KernelInfo::library)},
         {"variant", kernel(&backends::KernelInfo::variant)},
         {"workspace_bytes", kernel(&backends::KernelInfo::workspace_bytes)}});
  }();
  return columns;
}

/// What several ops cost together.
struct TotalsRow {
  std::string name{};
  Totals totals{};
  [[nodiscard]] std::optional<double> flop_per_byte() const {
    return core::ratio_of(static_cast<double>(totals.cost.matmul_flop + totals.cost.elementwise_flop),
                          static_cast<double>(totals.cost.bytes_read + totals.cost.bytes_written));
  }
};

/// `key`: of their name, which is its title, too.
report::TypedColumns<TotalsRow> totals_columns(const char* key) {
  report::TypedColumns<TotalsRow> all = {
      {key, key, &TotalsRow::name},
      {"ops", "ops", [](const TotalsRow& of) { return of.totals.ops; }},
      {"launches", "launches", [](const TotalsRow& of) { return of.totals.cost.launches; }}};
  all.add(cost_columns(), [](const TotalsRow& of) { return of.totals.cost; });
  return all.add({"flop_per_byte", "FLOP/byte", &TotalsRow::flop_per_byte, Show::fixed1});
}

/// A part of the memory.
struct MemoryPart {
  std::string part{};
  std::int64_t bytes = 0;
  [[nodiscard]] std::string amount() const { return format_cell(bytes, Show::bytes); }
};

const report::TypedColumns<model::FlopConvention>& flop_columns() {
  using Of = model::FlopConvention;
  static const report::TypedColumns<Of> columns = {{"convention", "FLOP/token", &Of::name},
                                                   {"training", "training", &Of::training},
                                                   {"forward", "forward", &Of::forward},
                                                   {"frozen", "LoRA", &Of::frozen},
                                                   {"meaning", "counts", &Of::meaning}};
  return columns;
}

using BlockParameters = std::pair<std::string, std::int64_t>;
const report::TypedColumns<BlockParameters>& parameter_columns() {
  static const report::TypedColumns<BlockParameters> columns = {
      {"block", "block", &BlockParameters::first}, {"params", "parameters", &BlockParameters::second}};
  return columns;
}

const report::TypedColumns<MemoryPart>& memory_columns() {
  static const report::TypedColumns<MemoryPart> columns = {{"part", "memory", &MemoryPart::part},
                                                           {"bytes", "bytes", &MemoryPart::bytes},
                                                           {"amount", "amount", &MemoryPart::amount}};
  return columns;
}

}  // namespace

std::vector<Column> columns_of_programs() {
  return report::columns_of(op_columns(), totals_columns("block"), totals_columns("phase"), memory_columns(),
                            flop_columns(), parameter_columns());
}

Table op_table(const PlannedProgram& planned, std::string_view scope, Kernels kernels) {
  std::vector<OpRow> rows;
  for (std::size_t i = 0; i < planned.program.ops.size(); ++i) {
    if (!planned.program.ops[i].scope.starts_with(scope)) continue;
    const bool is_known = !kernels.empty() && !kernels[i].name.empty();
    rows.push_back({.planned = &planned,
                    .index = i,
                    .cost = program::cost_of(planned.program, planned.program.ops[i]),
                    .kernel = is_known ? &kernels[i] : nullptr});
  }
  return op_columns().table(rows);
}

Table block_table(const PlannedProgram& planned) {
  std::vector<TotalsRow> rows;
  for (const auto& [block, totals] : totals_by_block(planned.program))
    rows.push_back({.name = block, .totals = totals});
  return totals_columns("block").table(rows);
}

Table phase_table(const PlannedProgram& planned) {
  std::vector<TotalsRow> rows;
  const auto by_phase = totals_by_phase(planned.program);
  for (const auto& [phase, totals] : by_phase)
    rows.push_back({.name = std::string(program::name_of(phase)), .totals = totals});
  rows.push_back({.name = "step", .totals = step_totals(by_phase)});
  Table table = totals_columns("phase").table(rows);
  table.notes.emplace_back(
      "A multiply-add counts as 2 FLOP; causal attention counts in full. Bytes: every input is read once, "
      "every output written once.");
  return table;
}

Table flop_table(const model::ModelConfig& config, std::int64_t seq) {
  Table table = flop_columns().table(model::flop_conventions(config, seq));
  table.notes.emplace_back("LoRA: weights are frozen, adapters add 6 FLOP for each of their parameters.");
  return table;
}

Table parameter_table(const model::ModelConfig& config) {
  return parameter_columns().table(model::parameters_by_block(config));
}

Table memory_table(const PlannedProgram& planned) {
  std::vector<MemoryPart> rows;
  for (const auto& [role, bytes] : persistent_by_role(planned.program))
    rows.push_back({.part = std::string(program::name_of(role)), .bytes = bytes});
  rows.push_back({.part = "saved for backward", .bytes = saved_for_backward_bytes(planned)});
  rows.push_back({.part = "peak of live bytes", .bytes = planned.plan.peak_live_bytes});
  rows.push_back(
      {.part = "peak of live bytes, nothing in place (eager)", .bytes = planned.plan.unshared_peak_bytes});
  rows.push_back({.part = "arena (fused)", .bytes = planned.plan.arena_bytes});
  Table table = memory_columns().table(rows);
  const std::int64_t params = model::parameter_count(planned.config);
  const std::int64_t active = model::active_parameter_count(planned.config);
  const std::int64_t padding = model::padding_count(planned.config);
  table.notes.push_back(fmt::format(
      "{} parameters{}{}.", params, active < params ? fmt::format(", {} of them for a token", active) : "",
      padding > 0 ? fmt::format("; {} more elements of weights are padding of the vocabulary", padding)
                  : ""));
  if (!planned.config.other_parts.empty())
    table.notes.push_back(fmt::format("Left out: {}.", planned.config.other_parts));
  if (!planned.config.stored_as.empty())
    table.notes.push_back(
        fmt::format("The file's weights are quantised ({}); here they are as --dtype and --base say.",
                    planned.config.stored_as));
  return table;
}

}  // namespace rooflm::cli
