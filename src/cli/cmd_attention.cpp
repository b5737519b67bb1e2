// rooflm attention: times attention alone, over kinds and shapes.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/command_record.h"
#include "cli/commands.h"
#include "cli/micro_options.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/values.h"
#include "compile/passes/lower_attention.h"
#include "core/error.h"
#include "lab/devices.h"
#include "lab/micro_cells.h"

namespace rooflm::cli {

std::vector<lab::AttentionCase> AttentionOptions::cases() const {
  using Case = lab::AttentionCase;
  std::vector<Case> cases(1);
  const auto integers = [&](const char* name, const std::string& typed,
                            std::int64_t lab::AttentionProblem::*member) {
    multiply(cases, parse_integers(name, typed),
             [member](Case& c, std::int64_t value) { c.problem.*member = value; });
  };
  multiply(cases, parse_names("--device", device),
           [](Case& c, const std::string& name) { c.device = lab::parse_device(name); });
  integers("--batch", batch, &lab::AttentionProblem::batch);
  integers("--heads", heads, &lab::AttentionProblem::heads);
  integers("--kv-heads", kv_heads, &lab::AttentionProblem::kv_heads);
  integers("--head-dim", head_dim, &lab::AttentionProblem::head_dim);
  integers("--seq", seq, &lab::AttentionProblem::seq);
  multiply(cases, parse_names("--dtype", dtype), [](Case& c, const std::string& name) {
    const lab::ComputeDtype compute =
        lab::parse_compute_dtype(name, c.device, backends::provider_of(c.device).describe(c.device));
    c.dtype = name;
    c.problem.dtype = compute.dtype;
    c.problem.tf32 = compute.tf32;
  });
  multiply(cases, parse_names("--engine", engine),
           [](Case& c, const std::string& name) { c.problem.engine = compile::parse_engine(name); });
  multiply(cases, parse_names("--attention", attention),
           [](Case& c, const std::string& name) { c.problem.kind = passes::parse_attention(name); });
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

void set_times(Row& row, const std::string& phase, const core::Summary& seconds, double flop) {
  constexpr double kMs = 1e3;
  row.set(phase + "_ms_median", seconds.median * kMs);
  row.set(phase + "_ms_mean", seconds.mean * kMs);
  row.set(phase + "_ms_std", seconds.std * kMs);
  row.set(phase + "_flop_per_s", flop / 2 / seconds.median);
}

Cell text_cell(const std::string& text) { return text.empty() ? Cell() : Cell(text); }

Row row_of(const lab::MeasuredAttention& measured, bool is_deterministic) {
  const lab::AttentionProblem& p = measured.what.problem;
  Row row;
  row.set("device", measured.what.device);
  row.set("engine", std::string(compile::name_of(p.engine)));
  row.set("attention", std::string(passes::name_of(p.kind)));
  row.set("dtype", measured.what.dtype);
  row.set("batch", p.batch);
  row.set("heads", p.heads);
  row.set("kv_heads", p.kv_heads);
  row.set("head_dim", p.head_dim);
  row.set("seq", p.seq);
  row.set("deterministic", is_deterministic);
  row.set("free_bytes", static_cast<std::int64_t>(measured.free_bytes));
  row.set("needed_bytes", static_cast<std::int64_t>(measured.needed_bytes));
  row.set("status", std::string(measured.result ? "success" : "oom"));
  if (!measured.result) return row;
  set_times(row, "forward", measured.result->forward, measured.result->forward_flop);
  set_times(row, "backward", measured.result->backward, measured.result->backward_flop);
  row.set("samples", static_cast<std::int64_t>(measured.result->forward.count));
  row.set("peak_bytes", static_cast<std::int64_t>(measured.result->peak_bytes));
  row.set("workspace_bytes", static_cast<std::int64_t>(measured.result->workspace_bytes));
  row.set("attention_forward", text_cell(measured.result->forward_library));
  row.set("attention_backward", text_cell(measured.result->backward_library));
  return row;
}

Table make_table(std::vector<Row> rows) {
  Table table{
      .columns = {{"device", "device"},
                  {"engine", "engine"},
                  {"attention", "attention"},
                  {"dtype", "dtype"},
                  {"batch", "B"},
                  {"heads", "H"},
                  {"kv_heads", "K"},
                  {"head_dim", "D"},
                  {"seq", "T"},
                  {"status", "status"},
                  {"forward_ms_median", "forward_ms"},
                  {"backward_ms_median", "backward_ms"},
                  {"forward_flop_per_s", "forward_flop/s", Show::si},
                  {"backward_flop_per_s", "backward_flop/s", Show::si},
                  {"needed_bytes", "memory", Show::bytes},
                  {"workspace_bytes", "workspace", Show::bytes},
                  {"free_bytes", "free", Show::bytes}},
      .rows = std::move(rows),
      .notes = {"", "Times: medians of the device's own time; the first run is discarded.",
                "flop/s: 2 B H T T D of the forward pass, 4 of the backward: the half of the products "
                "below the diagonal, recomputed scores not counted (papers that count them show 1.25 "
                "times the backward rate).",
                "memory: operands, results and what is alive between them, as planned; workspace: what "
                "kernels hold beside it."}};
  const bool has_kernels = std::any_of(table.rows.begin(), table.rows.end(),
                                       [](const Row& row) { return !row.text("attention_forward").empty(); });
  if (has_kernels) {
    table.columns.push_back({"attention_forward", "forward_by"});
    table.columns.push_back({"attention_backward", "backward_by"});
  }
  return table;
}

int run(const AttentionOptions& options, const MicroOptions& micro) {
  const Format format = parse_format(micro.format);
  const lab::MicroSettings settings = micro.settings();
  const std::vector<lab::AttentionCase> cases = options.cases();
  CommandRecord record(micro.record, micro.overwrite, "attention");
  const auto measured = lab::MicroBench(settings).run(cases);
  record.writer().add(lab::cells_of(measured));
  record.finish();
  std::vector<Row> rows;
  for (const auto& each : measured) rows.push_back(row_of(each, settings.backend.deterministic));
  write_out(format_table(make_table(std::move(rows)), format));
  const bool all_oom =
      std::ranges::none_of(measured, [](const auto& each) { return each.result.has_value(); });
  return static_cast<int>(all_oom ? core::ExitCode::out_of_memory : core::ExitCode::done);
}

}  // namespace

Body declare_attention(CommandLine& line) {
  auto options = std::make_shared<AttentionOptions>();
  auto micro = std::make_shared<MicroOptions>("0.5");
  const auto add = [&](const char* name, std::string& value, const char* type, const char* text) {
    line.add_option(name, value, text).type_name(type).show_default();
  };
  add("--device", options->device, "cpu|cuda[:N]", "What runs it");
  add("--engine", options->engine, "eager|fused", "Kernels and memory policy");
  add("--attention", options->attention, "looped|batched|flash", "Products per head, batched, or flash");
  add("--dtype", options->dtype, "fp32|tf32|bf16|fp16", "Of q, k, v and the results");
  add("--batch", options->batch, "B", "Sequences");
  add("--heads", options->heads, "H", "Query heads");
  add("--kv-heads", options->kv_heads, "K", "Key/value heads (default: as many as query heads)");
  add("--head-dim", options->head_dim, "D", "Elements of a head");
  add("--seq", options->seq, "T", "Positions of a sequence");
  micro->add_to(line);
  line.footer(
      "Causal self-attention on packed q, k, v, without projections. Names and sizes take lists and ranges\n"
      "(--seq 1024,4096), which multiply into a sweep. Exit code 4 when every row is out of memory.\n\n"
      "Example: rooflm attention --device cuda --dtype bf16 --batch 8 --head-dim 64,128 --seq 1024,16384");
  return [options, micro] { return run(*options, *micro); };
}

}  // namespace rooflm::cli
