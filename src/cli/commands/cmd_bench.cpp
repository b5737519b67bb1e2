// rooflm bench: times forward, backward, optimizer and the whole step over a sweep.
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "cli/command_record.h"
#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/options/config_options.h"
#include "cli/options/stopping_options.h"
#include "cli/output.h"
#include "cli/output_rule.h"
#include "cli/rank_points.h"
#include "cli/table.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/stop_signals.h"
#include "core/units.h"
#include "lab/devices.h"
#include "lab/job.h"
#include "lab/run.h"
#include "lab/work_left.h"
#include "report/tables/bench_rows.h"

namespace rooflm::cli {
namespace {

constexpr const char* kSteps = "10";

struct BenchOptions {
  ConfigOptions config;
  StoppingOptions stopping;
  std::string memory_limit;
  TableOptions table;
  std::string record;
  bool overwrite = false, dry_run = false;
  bool no_peak = false;
};

lab::RunSettings settings_from(const BenchOptions& options) {
  lab::RunSettings settings;
  settings.observe = false;
  StoppingOptions stopping = options.stopping;
  const bool has_bounds = !stopping.min_steps.empty() || !stopping.max_steps.empty();
  if (!stopping.is_given() && !has_bounds) stopping.steps = kSteps;
  stopping.apply(settings);
  if (!options.memory_limit.empty()) {
    settings.memory_limit_bytes = parse_bytes("--memory-limit", options.memory_limit);
  }
  settings.measure_peak = !options.no_peak;
  return settings;
}

void report_progress(const lab::Point& point, const lab::RunOutcome& outcome) {
  if (outcome.status == "oom") {
    note("  {}", lab::describe_shortage(outcome));
  } else if (outcome.step_s > 0) {
    note("  {} a step, {:.0f} tokens/s", core::format_seconds(outcome.step_s),
         static_cast<double>(point.tokens()) / outcome.step_s);
  }
}

/// How a sweep ended.
struct Progress {
  int signal = 0;         ///< that asked to stop
  std::size_t runs = 0;   ///< done
  bool has_part = false;  ///< some steps of one more
  bool all_oom = true;
};

/// Measures the points until a signal asks to stop.
Progress run_points(const std::vector<lab::Point>& points, const lab::RunSettings& settings,
                    record::Writer& record) {
  lab::CeilingBook ceilings;
  Progress progress;
  lab::WorkLeft left(points.size());
  for (const lab::Point& point : points) {
    left.begin(lab::describe(point));
    const lab::RunOutcome outcome = lab::run_point(point, settings, ceilings, record);
    if (outcome.signal != 0) {
      progress.has_part = outcome.step_s > 0;
      note("interrupted: {} of {} configurations were measured{}", progress.runs, points.size(),
           progress.has_part ? ", and some steps of one more" : "");
      progress.signal = outcome.signal;
      break;
    }
    ++progress.runs;
    progress.all_oom = progress.all_oom && outcome.status == "oom";
    report_progress(point, outcome);
  }
  return progress;
}

/// The table of what was measured, from the record.
Table table_of(const std::filesystem::path& record) {
  report::RecordSet set = report::load(std::array{record});
  std::erase_if(set.runs, [](const report::RunData& run) {
    return run.run.status == "interrupted" && run.samples.empty() && run.fact("stop_reason") == nullptr;
  });
  return report::bench_table(set);
}

int run(const BenchOptions& options, const lab::Ranks& ranks) {
  const core::StopSignals signals;
  const TableStyle style = options.table.style();
  require_columns(report::columns_of_bench(), style);
  lab::RunSettings settings = settings_from(options);
  settings.ranks = ranks;
  std::vector<lab::Point> points = options.config.sweep();
  const bool is_first = ranks::is_first(ranks);
  if (is_first)
    check_outputs({{"-o", options.record}}, files_of_models(options.config.text("model")), options.overwrite);
  take_places(points, settings, ranks);
  if (options.dry_run) {
    if (is_first) show_dry_run(points, {{"-o", options.record}}, style);
    return 0;
  }
  options.stopping.require_consent(points.size());
  CommandRecord record(is_first ? options.record : "", options.overwrite, "bench", is_first);
  const Progress progress = run_points(points, settings, record.writer());
  if (progress.signal != 0 && progress.runs == 0 && !progress.has_part) {
    record.writer().discard();
    throw core::Stopped{progress.signal};
  }
  record.finish();
  if (is_first && !record.is_printed()) write_out(show_table(table_of(record.path()), style));
  if (progress.signal != 0) return core::stopped_code(progress.signal);
  if (progress.all_oom && is_first) throw_nothing_fits(points.size());
  return static_cast<int>(progress.all_oom ? core::ExitCode::out_of_memory : core::ExitCode::done);
}

}  // namespace

Body declare_bench(CommandLine& line) {
  auto options = std::make_shared<BenchOptions>();
  options->config.add_to(line);
  options->stopping.add_to(line, fmt::format("{} unless --precision is given", kSteps));
  line.add_option("--memory-limit", options->memory_limit,
                  "Configurations that need more get a row with status oom: 8GB, 8GiB (default: free memory)")
      .type_name("SIZE")
      .group("Measuring");
  line.add_flag("--no-peak", options->no_peak, "Do not measure the matmul peak (no of_peak, no MFU)")
      .group("Measuring");
  options->table.add_to(line, "Output format; JSON and CSV have all values at full precision", "Output");
  line.add_option("-o,--output", options->record,
                  "Write the samples to this run record, for report and compare; - is standard output")
      .type_name("FILE.rooflm")
      .group("Output");
  line.add_flag("--overwrite", options->overwrite, "Overwrite an existing record").group("Output");
  add_dry_run(line, options->dry_run);
  line.footer(
      "Options of the groups Model and Run accept lists (--seq 128,256) and ranges\n"
      "(--seq 64:1536:64); every combination is measured. Tokens and weights are\n"
      "random, so no data is needed.\n"
      "MFU = (6 N + 12 L C T) tokens/s / (ranks x peak).\n"
      "of_peak = matmul FLOP of the program / median step time / peak.\n"
      "The peak is the sustained matmul rate of the dtype, measured here and cached\n"
      "(not the instruction peak, see rooflm peaks). Exit code 4 if every configuration\n"
      "runs out of memory. Ctrl-C prints what was measured so far.\n\n"
      "Example: rooflm bench --model gpt2 --engine eager,fused --dtype fp32,bf16");
  return [options] { return lab::run_in_job([&](const lab::Ranks& ranks) { return run(*options, ranks); }); };
}

}  // namespace rooflm::cli
