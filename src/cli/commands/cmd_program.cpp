// rooflm program: prints the ops of a step at any stage of the recipe.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/options/config_options.h"
#include "cli/output.h"
#include "cli/program_report.h"
#include "cli/values.h"
#include "core/error.h"
#include "lab/notes.h"
#include "model/forward.h"

namespace rooflm::cli {
namespace {

struct ProgramOptions {
  ConfigOptions config{lab::step_keys(), {"phase"}};
  std::string stage;
  std::string scope;
  TableOptions table;
  bool inference = false;
  bool totals = false;
};

program::Program build(const ProgramOptions& options, const lab::Point& point) {
  if (point.phase != lab::RunPhase::step) {
    if (options.inference || !options.stage.empty()) {
      throw core::UsageError(fmt::format(
          "--phase {} is not a training step: leave out --stage and --inference", name_of(point.phase)));
    }
    return lab::program_of(point);
  }
  const auto head = options.inference ? model::Head::logits : model::Head::loss;
  const std::int64_t seq = options.inference ? point.seq : point.own_seq();
  auto forward = model::forward(point.config, point.batch, seq, head);
  if (options.inference) return compile::inference_step(std::move(forward), point.step);
  if (!options.stage.empty()) compile::check_pass_name(options.stage);
  return compile::training_step(std::move(forward), point.step, options.stage);
}

/// What would run each op; empty where the device is not here, and where nobody asks.
std::vector<backends::KernelInfo> kernels_of(const ProgramOptions& options, const lab::Point& point,
                                             const program::Program& program) {
  if (options.totals) return {};
  try {
    return lab::make_backend(point)->describe_kernels(program);
  } catch (const core::Unavailable&) {
    return {};
  }
}

std::string format_tables(const ProgramOptions& options, const TableStyle& style,
                          const PlannedProgram& planned, std::int64_t seq, Kernels kernels) {
  std::vector<Table> tables;
  if (!options.totals) tables.push_back(op_table(planned, options.scope, kernels));
  if (style.format != Format::csv || options.totals) tables.push_back(block_table(planned));
  if (style.format != Format::csv) {
    tables.push_back(phase_table(planned));
    tables.push_back(memory_table(planned));
    if (options.totals) {
      tables.push_back(parameter_table(planned.config));
      tables.push_back(flop_table(planned.config, seq));
    }
  }
  return show_tables(tables, style);
}

int run(const ProgramOptions& options) {
  const TableStyle style = options.table.style();
  require_columns(columns_of_programs(), style);
  if (options.inference && !options.stage.empty()) {
    throw core::UsageError("--inference has no stages: leave out --stage or --inference");
  }
  lab::Point point = options.config.single(lab::ModelUse::plan);
  point.gemm_search = backends::GemmSearch::kept;  // looking at a program searches nothing
  auto still = std::make_optional<lab::StillAt>(fmt::format(
      "planning a step of {} layers and {} micro-batches", point.config.layers, point.step.micro_batches));
  const program::Program program = build(options, point);
  const passes::MemoryPlan plan = passes::plan_memory(program);
  const PlannedProgram planned{program, plan, point.config};
  const std::vector<backends::KernelInfo> kernels = kernels_of(options, point, program);
  still.reset();
  if (style.format == Format::json) {
    program_json(planned, point.seq, options.scope, options.totals, kernels, write_out);
  } else {
    write_out(format_tables(options, style, planned, point.seq, kernels));
  }
  return 0;
}

}  // namespace

Body declare_program(CommandLine& line) {
  auto options = std::make_shared<ProgramOptions>();
  options->config.add_to(line, dtype_names_of_gpus());
  line.add_option("--stage", options->stage,
                  "Stop after this compiler pass (default: the last one, whose result the engine runs)")
      .type_name(fmt::format("{}", fmt::join(compile::pass_names(), "|")))
      .group("Output");
  line.add_flag("--inference", options->inference,
                "The forward pass that ends in logits, not a training step")
      .group("Output");
  line.add_option("--scope", options->scope,
                  "Only list ops whose scope starts with this, such as h.0/attention")
      .type_name("PREFIX")
      .group("Output");
  line.add_flag("--totals", options->totals, "Only totals by block and phase, and memory").group("Output");
  options->table.add_to(line, "csv lists the ops (with --totals: the blocks)", "Output");
  line.footer(
      "Nothing is allocated or run, so models of any size work. FLOP: a multiply-add\n"
      "counts as 2, causal attention counts in full. Bytes: every input is read once,\n"
      "every output written once. Lifetimes are op indices. Kernels are those that the\n"
      "device of this machine uses, \"-\" if it is not here.\n\n"
      "Example: rooflm program --model llama3-70b --batch 1 --seq 4096 --totals");
  return [options] { return run(*options); };
}

}  // namespace rooflm::cli
