// rooflm peaks: measures what this machine can do at best.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <set>

#include "cli/ceilings.h"
#include "cli/commands.h"
#include "cli/devices.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/units.h"
#include "measure/machine.h"

namespace rooflm::cli {
namespace {

struct Options {
  std::string device = "cpu";
  std::string dtype = "fp32,bf16,fp64";
  std::string threads;
  std::string seconds = "1";
  std::string format = "table";
};

core::DType parse_peak_dtype(const std::string& name) {
  return name == "fp64" ? core::DType::f64 : parse_compute_dtype(name, "cpu");
}

Row peak_row(const measure::Peak& peak) {
  Row row;
  row.set("what", peak.what);
  row.set("dtype", peak.dtype);
  row.set("threads", std::int64_t{peak.threads});
  row.set("value", peak.rate.median);
  row.set("unit", peak.unit);
  row.set("ci_low", peak.rate.median_ci.low);
  row.set("ci_high", peak.rate.median_ci.high);
  row.set("ci_coverage", peak.rate.median_ci.coverage);
  row.set("max", peak.rate.max);
  row.set("samples", static_cast<std::int64_t>(peak.rate.count));
  row.set("problem", peak.problem);
  return row;
}

/// Four times the last-level cache, but no more than the free memory allows.
std::size_t array_bytes() {
  constexpr std::int64_t kLeast = 64 << 20;
  constexpr std::int64_t kUnknownCache = 64 << 20;
  const std::int64_t cache = measure::last_level_cache_bytes(measure::query_processor());
  const std::int64_t wanted = std::max(kLeast, 4 * (cache > 0 ? cache : kUnknownCache));
  const auto free = measure::query_memory().available_bytes.value_or(4 * wanted);
  const std::int64_t allowed = free / 4;
  if (allowed < kLeast) {
    throw core::OutOfMemory("the bandwidth needs three arrays beyond the caches, free memory is " +
                                core::format_bytes(static_cast<double>(free)),
                            3.0 * kLeast);
  }
  return static_cast<std::size_t>(std::min(wanted, allowed));
}

Table peaks_table() {
  return {
      .columns = {{"what", "what"},
                  {"dtype", "dtype"},
                  {"threads", "threads"},
                  {"value", "value", Show::si},
                  {"unit", "unit"},
                  {"ci_low", "low", Show::si},
                  {"ci_high", "high", Show::si},
                  {"samples", "samples"},
                  {"problem", "problem"}},
      .rows = {},
      .notes = {"", "value: median; low to high: its confidence interval (95% or more, order statistics).",
                "matmul: the fastest of several square products with the kernels of the fused engine (fp64: "
                "the reference).",
                "read, write, copy, triad: bytes that the loop names, as STREAM counts them."}};
}

int run(const Options& options) {
  const Format format = parse_format(options.format);
  const double seconds = parse_number("--seconds", options.seconds, 0.01);
  for (const std::string& name : parse_names("--device", options.device)) {
    const std::string device = parse_device(name);
    if (device == "null") throw core::UsageError("--device null runs nothing: there is nothing to measure");
    make_backend(device, engines::EngineKind::fused, 0);
  }
  std::vector<core::DType> dtypes;
  for (const std::string& name : parse_names("--dtype", options.dtype))
    dtypes.push_back(parse_peak_dtype(name));
  const auto given = parse_integers("--threads", options.threads);
  std::set<std::int64_t> threads(given.begin(), given.end());
  if (threads.empty()) threads = {1, resolve_threads(0)};
  if (*threads.rbegin() > resolve_threads(0)) {
    throw core::UsageError(fmt::format("--threads {}: this process may use {} processors", *threads.rbegin(),
                                       resolve_threads(0)));
  }
  Table table = peaks_table();
  for (const core::DType dtype : dtypes) {
    for (const std::int64_t count : threads) {
      note("matmul {} on {} threads", core::name_of(dtype), count);
      table.rows.push_back(peak_row(measure_products(dtype, static_cast<int>(count), {1024, 1536, 2048, 3072},
                                                     {.seconds = seconds, .min_samples = 5})));
    }
  }
  const std::size_t bytes = array_bytes();
  for (const std::int64_t count : threads) {
    note("memory on {} threads", count);
    for (const auto& peak :
         measure::measure_bandwidth(static_cast<int>(count), bytes, {.seconds = seconds, .min_samples = 5})) {
      table.rows.push_back(peak_row(peak));
    }
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
  app.add_option("--seconds", options->seconds, "Time for each row and product size, in seconds")
      ->type_name("S")
      ->capture_default_str();
  app.add_option("--format", options->format, "JSON and CSV are in flop/s and byte/s")
      ->type_name(kFormats)
      ->capture_default_str();
  app.footer(
      "Rates are medians with a confidence interval. Keep the machine idle meanwhile.\n\n"
      "Example: rooflm peaks --dtype fp32,bf16 --format json");
  return [options] { return run(*options); };
}

}  // namespace rooflm::cli
