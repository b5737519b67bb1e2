// rooflm attention: times attention alone, over kinds and shapes.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/devices.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/values.h"
#include "compile/passes/lower_attention.h"
#include "core/error.h"
#include "core/units.h"
#include "measure/micro_bench.h"

namespace rooflm::cli {
namespace {

struct Options {
  std::string device = "cpu", dtype = "fp32", engine = "fused", attention = "looped,batched,flash";
  std::string batch = "1", heads = "1", kv_heads, head_dim = "64", seq = "256,512,1024";
  std::string seconds = "0.5", memory_limit, format = "table";
  bool nondeterministic = false;
  MachineOptions machine;
};

/// One row to measure.
struct Case {
  std::string device;
  std::string dtype;
  measure::AttentionProblem problem;
};

std::vector<Case> cases_of(const Options& options) {
  std::vector<Case> cases(1);
  const auto integers = [&](const char* name, const std::string& typed,
                            std::int64_t measure::AttentionProblem::*member) {
    multiply(cases, parse_integers(name, typed),
             [member](Case& c, std::int64_t value) { c.problem.*member = value; });
  };
  multiply(cases, parse_names("--device", options.device),
           [](Case& c, const std::string& name) { c.device = parse_device(name); });
  integers("--batch", options.batch, &measure::AttentionProblem::batch);
  integers("--heads", options.heads, &measure::AttentionProblem::heads);
  integers("--kv-heads", options.kv_heads, &measure::AttentionProblem::kv_heads);
  integers("--head-dim", options.head_dim, &measure::AttentionProblem::head_dim);
  integers("--seq", options.seq, &measure::AttentionProblem::seq);
  multiply(cases, parse_names("--dtype", options.dtype), [](Case& c, const std::string& name) {
    const ComputeDtype dtype = parse_compute_dtype(name, c.device);
    c.dtype = name;
    c.problem.dtype = dtype.dtype;
    c.problem.tf32 = dtype.tf32;
  });
  multiply(cases, parse_names("--engine", options.engine),
           [](Case& c, const std::string& name) { c.problem.engine = compile::parse_engine(name); });
  multiply(cases, parse_names("--attention", options.attention),
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

Row identity(const Case& c, const Options& options) {
  const measure::AttentionProblem& p = c.problem;
  Row row;
  row.set("device", c.device);
  row.set("engine", std::string(compile::name_of(p.engine)));
  row.set("attention", std::string(passes::name_of(p.kind)));
  row.set("dtype", c.dtype);
  row.set("batch", p.batch);
  row.set("heads", p.heads);
  row.set("kv_heads", p.kv_heads);
  row.set("head_dim", p.head_dim);
  row.set("seq", p.seq);
  row.set("deterministic", !options.nondeterministic);
  return row;
}

void set_times(Row& row, const std::string& phase, const core::Summary& seconds, double flop) {
  constexpr double kMs = 1e3;
  row.set(phase + "_ms_median", seconds.median * kMs);
  row.set(phase + "_ms_mean", seconds.mean * kMs);
  row.set(phase + "_ms_std", seconds.std * kMs);
  row.set(phase + "_flop_per_s", flop / 2 / seconds.median);
}

Cell text_cell(const std::string& text) { return text.empty() ? Cell() : Cell(text); }

void set_result(Row& row, const measure::AttentionResult& result) {
  row.set("status", std::string("success"));
  set_times(row, "forward", result.forward, result.forward_flop);
  set_times(row, "backward", result.backward, result.backward_flop);
  row.set("samples", static_cast<std::int64_t>(result.forward.count));
  row.set("peak_bytes", static_cast<std::int64_t>(result.peak_bytes));
  row.set("workspace_bytes", static_cast<std::int64_t>(result.workspace_bytes));
  row.set("attention_forward", text_cell(result.forward_library));
  row.set("attention_backward", text_cell(result.backward_library));
}

Row measure_case(const Case& c, const Options& options, double limit_bytes) {
  constexpr int kLeastSamples = 3;
  const measure::SamplingOptions sampling{.seconds = parse_number("--seconds", options.seconds),
                                          .min_samples = kLeastSamples};
  Row row = identity(c, options);
  const auto backend = make_backend(c.device, c.problem.engine, options.machine.thread_count(), Tuning::timed,
                                    options.nondeterministic ? SumOrder::any : SumOrder::fixed);
  const double free_bytes = backend->free_bytes();
  row.set("free_bytes", static_cast<std::int64_t>(free_bytes));
  const double needed = measure::attention_bytes(c.problem);
  const double allowed = limit_bytes > 0 ? std::min(limit_bytes, free_bytes) : free_bytes;
  row.set("needed_bytes", static_cast<std::int64_t>(needed));
  try {
    if (needed > allowed) throw core::OutOfMemory("planned", needed);
    set_result(row, measure::run_attention(*backend, c.problem, sampling, limit_bytes));
  } catch (const core::OutOfMemory& error) {
    row.set("status", std::string("oom"));
    row.set("needed_bytes", static_cast<std::int64_t>(std::max(needed, error.needed_bytes())));
    note("  out of memory: needs {}, free {}", core::format_bytes(needed), core::format_bytes(allowed));
  }
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

int run(const Options& options) {
  const Format format = parse_format(options.format);
  const double limit = options.memory_limit.empty() ? 0 : parse_bytes("--memory-limit", options.memory_limit);
  parse_number("--seconds", options.seconds);
  const std::vector<Case> cases = cases_of(options);
  for (const Case& c : cases) {
    if (c.device == "null") throw core::UsageError("--device null runs nothing: there is nothing to measure");
    make_backend(c.device, c.problem.engine, options.machine.thread_count());
  }
  std::vector<Row> rows;
  for (const Case& c : cases) {
    const measure::AttentionProblem& p = c.problem;
    note("[{}/{}] attention B={} H={} K={} D={} T={} {} {} {} on {}", rows.size() + 1, cases.size(), p.batch,
         p.heads, p.kv_heads, p.head_dim, p.seq, c.dtype, compile::name_of(p.engine), passes::name_of(p.kind),
         c.device);
    rows.push_back(measure_case(c, options, limit));
  }
  const bool all_oom =
      std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.text("status") == "oom"; });
  write_out(format_table(make_table(std::move(rows)), format));
  return static_cast<int>(all_oom ? core::ExitCode::out_of_memory : core::ExitCode::done);
}

}  // namespace

Body declare_attention(CLI::App& app) {
  auto options = std::make_shared<Options>();
  const auto add = [&](const char* name, std::string& value, const char* type, const char* text) {
    app.add_option(name, value, text)->type_name(type)->capture_default_str();
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
  add("--seconds", options->seconds, "S", "Time spent on each row, three runs at least");
  add("--memory-limit", options->memory_limit, "SIZE", "What needs more is a row with status oom");
  add("--format", options->format, kFormats, "JSON and CSV carry every value in full");
  app.add_flag("--nondeterministic", options->nondeterministic,
               "Let GPUs sum the gradient in any order where that is faster");
  options->machine.add_to(app);
  app.footer(
      "Causal self-attention on packed q, k, v, without projections. Names and sizes take lists and ranges\n"
      "(--seq 1024,4096), which multiply into a sweep. Exit code 4 when every row is out of memory.\n\n"
      "Example: rooflm attention --device cuda --dtype bf16 --batch 8 --head-dim 64,128 --seq 1024,16384");
  return [options] { return run(*options); };
}

}  // namespace rooflm::cli
