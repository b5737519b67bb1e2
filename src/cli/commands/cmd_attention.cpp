// rooflm attention: times attention alone, over kinds and shapes.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/command_record.h"
#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/options/micro_options.h"
#include "cli/output.h"
#include "cli/output_rule.h"
#include "cli/table.h"
#include "cli/values.h"
#include "compile/passes/lower_attention.h"
#include "core/error.h"
#include "core/stop_signals.h"
#include "lab/devices.h"
#include "lab/micro/micro_cells.h"
#include "report/model/run_data.h"
#include "report/tables/micro_rows.h"

namespace rooflm::cli {

std::vector<lab::AttentionCase> AttentionOptions::cases() const {
  using Case = lab::AttentionCase;
  std::vector<Case> cases(1);
  const auto integers = [&](const char* name, const std::string& typed,
                            std::int64_t lab::AttentionProblem::*member) {
    multiply(cases, parse_integers(name, typed),
             [member](Case& c, std::int64_t value) { c.problem.*member = value; });
  };
  multiply(cases, parse_names("--device", device_or_default(device)),
           [](Case& c, const std::string& name) { c.device = lab::parse_device(name); });
  integers("--batch", batch, &lab::AttentionProblem::batch);
  integers("--heads", heads, &lab::AttentionProblem::heads);
  integers("--kv-heads", kv_heads, &lab::AttentionProblem::kv_heads);
  integers("--head-dim", head_dim, &lab::AttentionProblem::head_dim);
  integers("--seq", seq, &lab::AttentionProblem::seq);
  integers("--window", window, &lab::AttentionProblem::window);
  multiply(cases, parse_names("--dtype", dtype), [](Case& c, const std::string& name) {
    const lab::ComputeDtype compute =
        lab::parse_operand_dtype(name, c.device, backends::provider_of(c.device).describe(c.device));
    c.dtype = name;
    c.problem.dtype = compute.dtype;
    c.problem.fp32_products = compute.fp32_products;
  });
  multiply(cases, parse_names("--engine", engine), [](Case& c, const std::string& name) {
    c.problem.engine = core::parse<compile::EngineKind>(name);
  });
  multiply(cases, parse_names("--attention", attention), [](Case& c, const std::string& name) {
    c.problem.kind = core::parse<passes::AttentionKind>(name);
  });
  for (Case& c : cases) {
    if (c.problem.kv_heads == 0) c.problem.kv_heads = c.problem.heads;
    if (c.problem.heads % c.problem.kv_heads != 0) {
      throw core::UsageError(
          fmt::format("--kv-heads {} does not divide --heads {}", c.problem.kv_heads, c.problem.heads));
    }
  }
  return cases;
}

namespace {

int run(const AttentionOptions& options, const MicroOptions& micro) {
  const TableStyle style = micro.table.style();
  require_columns(report::columns_of(report::micro_attention_columns()), style);
  const lab::MicroSettings settings = micro.settings();
  const std::vector<lab::AttentionCase> cases = options.cases();
  const core::StopSignals signals;
  check_outputs({{"-o", micro.record}}, {}, micro.overwrite);
  if (micro.dry_run) {
    show_dry_run(cases, {{"-o", micro.record}}, style);
    return 0;
  }
  CommandRecord record(micro.record, micro.overwrite, "attention");
  const auto measured = lab::MicroBench(settings).run(cases);
  record.writer().add(lab::cells_of(measured));
  record.finish();
  if (!record.is_printed()) {
    write_out(show_table(report::attention_table(report::load(std::array{record.path()}).files.at(0).cells),
                         style));
  }
  if (const int signal = core::StopSignals::received(); signal != 0) return core::stopped_code(signal);
  const bool all_oom =
      std::ranges::none_of(measured, [](const auto& each) { return each.result.has_value(); });
  return static_cast<int>(all_oom ? core::ExitCode::out_of_memory : core::ExitCode::done);
}

}  // namespace

Body declare_attention(CommandLine& line) {
  auto options = std::make_shared<AttentionOptions>();
  auto micro = std::make_shared<MicroOptions>("0.5");
  const std::string dtypes = operand_dtype_names(line);
  const auto add = [&](const char* name, std::string& value, const char* type, const char* text) {
    Option option = line.add_option(name, value, text).type_name(type);
    if (!value.empty()) option.show_default();
  };
  add("--device", options->device, "cpu|cuda[:N]", "Device to run on (default: the fastest one here)");
  add("--engine", options->engine, "eager|fused", "Engine whose kernels and memory plan are used");
  add("--attention", options->attention, "looped|batched|flash",
      "One matmul per head, batched matmuls, or a flash kernel");
  add("--dtype", options->dtype, dtypes.c_str(), "Dtype of q, k, v and the results");
  add("--batch", options->batch, "B", "Sequences");
  add("--heads", options->heads, "H", "Query heads");
  add("--kv-heads", options->kv_heads, "K", "Key/value heads (default: as many as query heads)");
  add("--head-dim", options->head_dim, "D", "Head size");
  add("--seq", options->seq, "T", "Sequence length");
  add("--window", options->window, "W", "Keys that a query sees, its own included (default: all before it)");
  micro->add_to(line);
  line.footer(
      "Causal self-attention on packed q, k, v, without projections. Names and sizes\n"
      "accept lists and ranges (--seq 1024,4096); every combination is measured. Exit\n"
      "code 4 if every row runs out of memory.\n\n"
      "Example: rooflm attention --device cuda --dtype bf16 --head-dim 64,128 --seq 1024,16384");
  return [options, micro] { return run(*options, *micro); };
}

}  // namespace rooflm::cli
