// rooflm bench: times forward, backward, optimizer and the whole step over a sweep.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <utility>

#include "cli/bench_record.h"
#include "cli/bench_row.h"
#include "cli/bench_table.h"
#include "cli/commands.h"
#include "cli/devices.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/run_record.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/units.h"
#include "train/signals.h"

namespace rooflm::cli {
namespace {

struct Options {
  ModelOptions model;
  RunOptions run;
  MachineOptions machine;
  std::string warmup = "2";
  std::string steps;
  std::string precision;
  std::string max_seconds = "30";
  std::string memory_limit;
  std::string clip = "1";
  std::string format = "table";
  std::string record;
  bool overwrite = false;
  bool no_peak = false;
  bool nondeterministic = false;
};

BenchSettings settings_from(const Options& options) {
  constexpr std::int64_t kMostSteps = 1'000'000;
  BenchSettings settings;
  settings.threads = options.machine.thread_count();
  settings.seed = options.machine.seed_value();
  settings.steps.warmup =
      static_cast<int>(std::min(parse_integer("--warmup", options.warmup, 0), kMostSteps));
  const bool is_precise = !options.precision.empty();
  const std::string steps = !options.steps.empty() ? options.steps : is_precise ? "200" : "10";
  settings.steps.steps = static_cast<int>(std::min(parse_integer("--steps", steps, 1), kMostSteps));
  if (is_precise) {
    constexpr double kPercent = 0.01;
    settings.steps.precision = kPercent * parse_number("--precision", options.precision, 0.001);
    settings.steps.max_seconds = parse_number("--max-seconds", options.max_seconds, 0);
  }
  if (!options.memory_limit.empty()) {
    settings.memory_limit_bytes = parse_bytes("--memory-limit", options.memory_limit);
  }
  settings.measure_peak = !options.no_peak;
  settings.order = options.nondeterministic ? SumOrder::any : SumOrder::fixed;
  return settings;
}

void report_progress(const Row& row) {
  const std::string status = row.text("status");
  if (status == "oom") {
    note("  out of memory: needs {}", core::format_bytes(row.number("needed_bytes")));
  } else if (status == "success") {
    note("  {:.1f} ms a step, {:.0f} tokens/s", row.number("step_ms_median"), row.number("tokens_per_s"));
  }
}

/// Measures the points until a signal asks to stop; returns that signal or 0. `record` may be null.
int run_points(const std::vector<Point>& points, const BenchSettings& settings, Ceilings& ceilings,
               std::vector<Row>& rows, record::Writer* record) {
  const train::StopSignals signals;
  for (const Point& point : points) {
    note("[{}/{}] {}", rows.size() + 1, points.size(), describe(point));
    try {
      BenchOutcome outcome = run_point(point, settings, ceilings);
      if (record != nullptr) add_bench_run(*record, point, settings, outcome.row, outcome.samples);
      rows.push_back(std::move(outcome.row));
    } catch (const Interrupted& interrupted) {
      note("interrupted: {} of {} configurations were measured", rows.size(), points.size());
      return interrupted.signal;
    }
    report_progress(rows.back());
  }
  return 0;
}

int run(const Options& options) {
  constexpr int kSignalled = 128;  // as shells report a command that a signal ended
  const Format format = parse_format(options.format);
  const BenchSettings settings = settings_from(options);
  std::vector<Point> points = sweep(options.model, options.run);
  const double clip_norm = parse_number("--clip", options.clip, 0);
  for (Point& point : points) point.step.optimizer.clip_norm = clip_norm;
  // A device that is not there is an error of the whole command, before anything is measured.
  for (const Point& point : points) make_backend(point.device, point.step.engine, settings.threads);
  std::unique_ptr<record::Writer> record;
  if (!options.record.empty()) record = open_record(options.record, "bench", options.overwrite);
  Ceilings ceilings(settings.threads);
  std::vector<Row> rows;
  const int signal = run_points(points, settings, ceilings, rows, record.get());
  if (record) {
    add_ceilings(*record, ceilings);
    record->finish();
    note("record: {}", options.record);
  }
  const bool all_oom =
      std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.text("status") == "oom"; });
  if (!rows.empty()) write_out(format_table(bench_table(std::move(rows), ceilings), format));
  if (signal != 0) return kSignalled + signal;
  return static_cast<int>(all_oom ? core::ExitCode::out_of_memory : core::ExitCode::done);
}

}  // namespace

Body declare_bench(CLI::App& app) {
  auto options = std::make_shared<Options>();
  options->model.add_to(app);
  options->run.add_to(app);
  options->machine.add_to(app);
  app.add_option("--warmup", options->warmup, "Steps that run first and are discarded")
      ->type_name("N")
      ->capture_default_str()
      ->group("Measuring");
  app.add_option("--steps", options->steps, "Timed steps (default: 10; with --precision at most, 200)")
      ->type_name("N")
      ->group("Measuring");
  app.add_option("--precision", options->precision,
                 "Stop when the 95% interval of the median step is within so many percent of it to each side")
      ->type_name("PERCENT")
      ->group("Measuring");
  app.add_option("--max-seconds", options->max_seconds,
                 "With --precision: stop after so many seconds of steps")
      ->type_name("S")
      ->capture_default_str()
      ->group("Measuring");
  app.add_option(
         "--clip", options->clip,
         "Largest global gradient norm (0: no clipping, so that the update of a weight can start when "
         "its gradient is there)")
      ->type_name("X")
      ->capture_default_str()
      ->group("Run");
  app.add_option("--memory-limit", options->memory_limit,
                 "Larger configurations become rows with status oom: 8GB, 8GiB (default: what is free)")
      ->type_name("SIZE")
      ->group("Measuring");
  app.add_flag("--nondeterministic", options->nondeterministic,
               "Let GPUs sum the gradient of attention in any order where that is faster")
      ->group("Run");
  app.add_flag("--no-peak", options->no_peak, "Do not measure the matrix-product rate (no of_peak, no MFU)")
      ->group("Measuring");
  app.add_option("--format", options->format, "JSON and CSV carry every value in full")
      ->type_name(kFormats)
      ->capture_default_str()
      ->group("Measuring");
  app.add_option("-o,--output", options->record,
                 "Keep the samples in this run record, for report and compare")
      ->type_name("FILE.rooflm");
  app.add_flag("--overwrite", options->overwrite, "Replace a record of that name");
  app.footer(
      "Options of the groups Model and Run take lists (--seq 128,256) and ranges (--seq 64:1536:64), but "
      "for\n"
      "--seed and --threads; lists multiply into a sweep. Random tokens and weights, no data needed.\n"
      "MFU = (6 N + 12 L C T) tokens/s / peak; of_peak = matrix-product FLOP of the program / median step\n"
      "time / peak; the peak is the sustained matmul rate of the dtype, measured in the same run (not the\n"
      "instruction peak, see rooflm peaks).\n"
      "Exit code 4 when every configuration is out of memory. Ctrl-C prints what was measured so far.\n\n"
      "Example: rooflm bench --model gpt2 --batch 4 --seq 64 --engine eager,fused --dtype fp32,bf16");
  return [options] { return run(*options); };
}

}  // namespace rooflm::cli
