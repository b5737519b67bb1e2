// rooflm bench: times forward, backward, optimizer and the whole step over a sweep.
#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <memory>
#include <utility>

#include "cli/command_record.h"
#include "cli/commands.h"
#include "cli/config_options.h"
#include "cli/output.h"
#include "cli/output_rule.h"
#include "cli/table.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/stop_signals.h"
#include "core/units.h"
#include "lab/devices.h"
#include "lab/run.h"
#include "report/bench_rows.h"

namespace rooflm::cli {
namespace {

struct BenchOptions {
  ConfigOptions config;
  std::string steps;
  std::string precision;
  std::string max_seconds = "30";
  std::string memory_limit;
  std::string format = "table";
  std::string record;
  bool overwrite = false;
  bool no_peak = false;
};

lab::RunSettings settings_from(const BenchOptions& options) {
  constexpr std::int64_t kMostSteps = 1'000'000;
  lab::RunSettings settings;
  settings.observe = false;
  const bool is_precise = !options.precision.empty();
  const std::string steps = !options.steps.empty() ? options.steps : is_precise ? "200" : "10";
  settings.max_steps = static_cast<int>(std::min(parse_integer("--steps", steps, 1), kMostSteps));
  settings.precision = is_precise ? parse_percent("--precision", options.precision, 0.001) : 0;
  const double max_seconds = parse_number("--max-seconds", options.max_seconds, 0);
  settings.max_seconds = is_precise ? max_seconds : std::numeric_limits<double>::infinity();
  if (!options.memory_limit.empty()) {
    settings.memory_limit_bytes = parse_bytes("--memory-limit", options.memory_limit);
  }
  settings.measure_peak = !options.no_peak;
  return settings;
}

void report_progress(const lab::Point& point, const lab::RunOutcome& outcome) {
  if (outcome.status == "oom") {
    note("  out of memory: needs {}", core::format_bytes(outcome.needed_bytes));
  } else if (outcome.step_s > 0) {
    constexpr double kMs = 1e3;
    note("  {:.1f} ms a step, {:.0f} tokens/s", kMs * outcome.step_s,
         static_cast<double>(point.tokens()) / outcome.step_s);
  }
}

/// What became of a sweep.
struct Progress {
  int signal = 0;        ///< that asked to stop
  std::size_t runs = 0;  ///< done
  bool all_oom = true;
};

/// Measures the points until a signal asks to stop.
Progress run_points(const std::vector<lab::Point>& points, const lab::RunSettings& settings,
                    record::Writer& record) {
  lab::CeilingBook ceilings;
  Progress progress;
  for (const lab::Point& point : points) {
    note("[{}/{}] {}", progress.runs + 1, points.size(), lab::describe(point));
    const lab::RunOutcome outcome = lab::run_point(point, settings, ceilings, record);
    if (outcome.status == "interrupted") {
      note("interrupted: {} of {} configurations were measured", progress.runs, points.size());
      progress.signal = core::StopSignals::received();
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
  std::erase_if(set.runs, [](const report::RunData& run) { return run.run.status == "interrupted"; });
  return report::bench_table(set);
}

int run(const BenchOptions& options) {
  const core::StopSignals signals;
  const Format format = parse_format(options.format);
  const lab::RunSettings settings = settings_from(options);
  const std::vector<lab::Point> points = options.config.sweep();
  check_outputs({{"-o", options.record}}, files_of_models(options.config.text("model")), options.overwrite);
  // A device that is not there is an error of the whole command, before anything is measured.
  for (const lab::Point& point : points) lab::make_backend(point);
  CommandRecord record(options.record, options.overwrite, "bench");
  const Progress progress = run_points(points, settings, record.writer());
  if (progress.signal != 0 && progress.runs == 0) {
    record.writer().discard();
    throw core::Stopped{progress.signal};
  }
  record.finish();
  if (progress.runs > 0) write_out(show_table(table_of(record.path()), format));
  if (progress.signal != 0) return core::stopped_code(progress.signal);
  return static_cast<int>(progress.all_oom ? core::ExitCode::out_of_memory : core::ExitCode::done);
}

}  // namespace

Body declare_bench(CommandLine& line) {
  auto options = std::make_shared<BenchOptions>();
  options->config.add_to(line);
  line.add_option("--steps", options->steps, "Timed steps (default: 10; with --precision at most, 200)")
      .type_name("N")
      .group("Measuring");
  line.add_option(
          "--precision", options->precision,
          "Stop when the 95% interval of the median step is within so many percent of it to each side")
      .type_name("PERCENT")
      .group("Measuring");
  line.add_option("--max-seconds", options->max_seconds,
                  "With --precision: stop after so many seconds of steps")
      .type_name("S")
      .show_default()
      .group("Measuring");
  line.add_option("--memory-limit", options->memory_limit,
                  "Larger configurations become rows with status oom: 8GB, 8GiB (default: what is free)")
      .type_name("SIZE")
      .group("Measuring");
  line.add_flag("--no-peak", options->no_peak, "Do not measure the matrix-product rate (no of_peak, no MFU)")
      .group("Measuring");
  line.add_option("--format", options->format, "JSON and CSV carry every value in full")
      .type_name(kFormats)
      .show_default()
      .group("Measuring");
  line.add_option("-o,--output", options->record,
                  "Keep the samples in this run record, for report and compare")
      .type_name("FILE.rooflm");
  line.add_flag("--overwrite", options->overwrite, "Replace a record of that name");
  line.footer(
      "Options of the groups Model and Run take lists (--seq 128,256) and ranges (--seq 64:1536:64), which\n"
      "multiply into a sweep. Random tokens and weights, no data needed.\n"
      "MFU = (6 N + 12 L C T) tokens/s / peak; of_peak = matrix-product FLOP of the program / median step\n"
      "time / peak; the peak is the sustained matmul rate of the dtype, measured here and kept (not the\n"
      "instruction peak, see rooflm peaks).\n"
      "Exit code 4 when every configuration is out of memory. Ctrl-C prints what was measured so far.\n\n"
      "Example: rooflm bench --model gpt2 --batch 4 --seq 64 --engine eager,fused --dtype fp32,bf16");
  return [options] { return run(*options); };
}

}  // namespace rooflm::cli
