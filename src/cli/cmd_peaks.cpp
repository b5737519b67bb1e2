// rooflm peaks: measures what this machine can do at best.
#include <CLI/CLI.hpp>
#include <memory>
#include <set>

#include "cli/commands.h"
#include "cli/devices.h"
#include "cli/machine_ceilings.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/values.h"
#include "core/error.h"
#include "record/rows.h"

namespace rooflm::cli {
namespace {

struct Options {
  std::string device = "cpu";
  std::string dtype = "fp32,bf16,fp64";
  std::string threads;
  std::string seconds;
  std::string format = "table";
  bool remeasure = false;
};

core::DType parse_peak_dtype(const std::string& name) {
  return name == "fp64" ? core::DType::f64 : parse_compute_dtype(name, "cpu");
}

Row ceiling_row(const record::Ceiling& ceiling) {
  Row row;
  row.set("what", ceiling.what);
  row.set("level", ceiling.level);
  row.set("dtype", ceiling.dtype);
  row.set("threads", std::int64_t{ceiling.threads});
  row.set("value", ceiling.value);
  row.set("unit", ceiling.unit);
  row.set("ci_low", ceiling.ci_low);
  row.set("ci_high", ceiling.ci_high);
  row.set("samples", ceiling.samples);
  row.set("problem", ceiling.problem);
  row.set("measured_utc", ceiling.measured_utc);
  return row;
}

Table peaks_table() {
  return {
      .columns = {{"what", "what"},
                  {"level", "level"},
                  {"dtype", "dtype"},
                  {"threads", "threads"},
                  {"value", "value", Show::si},
                  {"unit", "unit"},
                  {"ci_low", "low", Show::si},
                  {"ci_high", "high", Show::si},
                  {"samples", "samples"},
                  {"problem", "problem"}},
      .rows = {},
      .notes = {
          "", "value: median; low to high: its confidence interval (95% or more, order statistics).",
          "matmul: the fastest of several square products with the kernels of the fused engine (fp64: "
          "the reference).",
          "read, write, copy, triad: bytes that the loop names, as STREAM counts them; half of each cache is "
          "walked through.",
          "Kept from one command to the next; --remeasure measures again."}};
}

std::set<int> thread_counts(const std::string& typed) {
  std::set<int> threads;
  for (const std::int64_t count : parse_integers("--threads", typed)) {
    if (count > resolve_threads(0)) {
      throw core::UsageError(
          fmt::format("--threads {}: this process may use {} processors", count, resolve_threads(0)));
    }
    threads.insert(static_cast<int>(count));
  }
  return threads.empty() ? std::set<int>{1, resolve_threads(0)} : threads;
}

int run(const Options& options) {
  const Format format = parse_format(options.format);
  for (const std::string& name : parse_names("--device", options.device)) {
    const std::string device = parse_device(name);
    if (device == "null") throw core::UsageError("--device null runs nothing: there is nothing to measure");
    make_backend(device, engines::EngineKind::fused, 0);
  }
  CeilingRequest request{
      .threads = thread_counts(options.threads), .dtypes = {}, .remeasure = options.remeasure, .seconds = {}};
  if (!options.seconds.empty()) request.seconds = parse_number("--seconds", options.seconds, 0.01);
  for (const std::string& name : parse_names("--dtype", options.dtype)) {
    request.dtypes.push_back(parse_peak_dtype(name));
  }
  Table table = peaks_table();
  for (const record::Ceiling& ceiling : machine_ceilings(request)) {
    table.rows.push_back(ceiling_row(ceiling));
  }
  write_out(format_table(table, format));
  return 0;
}

}  // namespace

Body declare_peaks(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("--device", options->device, "What to measure")
      ->type_name("cpu|cuda[:N]")
      ->capture_default_str();
  app.add_option("--dtype", options->dtype, "Of the matrix products; a list")
      ->type_name("fp32|bf16|fp64")
      ->capture_default_str();
  app.add_option("--threads", options->threads, "A list (default: 1 and one per core)")->type_name("N");
  app.add_option(
         "--seconds", options->seconds,
         "Least time for each row and product size, in seconds; nothing kept is used, nothing is kept")
      ->type_name("S");
  app.add_flag("--remeasure", options->remeasure, "Measure again instead of taking what is kept");
  app.add_option("--format", options->format, "JSON and CSV are in flop/s and byte/s")
      ->type_name(kFormats)
      ->capture_default_str();
  app.footer(
      "Rates are medians with a confidence interval. Keep the machine idle meanwhile. They are kept under\n"
      "$XDG_CACHE_HOME/rooflm (or ~/.cache/rooflm) for this processor, its threads and this version.\n\n"
      "Example: rooflm peaks --dtype fp32,bf16 --format json");
  return [options] { return run(*options); };
}

}  // namespace rooflm::cli
