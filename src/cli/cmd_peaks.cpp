// rooflm peaks: measures what this machine can do at best.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

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
  std::string dtype;
  std::string threads;
  std::string seconds = "1";
  std::string format = "table";
};

ComputeDtype parse_peak_dtype(const std::string& name, const std::string& device) {
  return name == "fp64" && device == "cpu" ? ComputeDtype{core::DType::f64}
                                           : parse_compute_dtype(name, device);
}

std::vector<ComputeDtype> dtypes_of(const std::string& typed, const std::string& device) {
  const std::string all = device == "cpu" ? "fp32,bf16,fp64" : "fp32,tf32,bf16";
  std::vector<ComputeDtype> dtypes;
  for (const std::string& name : parse_names("--dtype", typed.empty() ? all : typed)) {
    dtypes.push_back(parse_peak_dtype(name, device));
  }
  return dtypes;
}

Row peak_row(const measure::Peak& peak, const std::string& device) {
  Row row;
  row.set("device", device);
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
                  {"device", "device"},
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
                "read, write, copy, triad, add: bytes that the loop names, as STREAM counts them."}};
}

std::set<std::int64_t> thread_counts(const std::string& typed) {
  const auto given = parse_integers("--threads", typed);
  std::set<std::int64_t> threads(given.begin(), given.end());
  if (threads.empty()) threads = {1, resolve_threads(0)};
  if (*threads.rbegin() > resolve_threads(0)) {
    throw core::UsageError(fmt::format("--threads {}: this process may use {} processors", *threads.rbegin(),
                                       resolve_threads(0)));
  }
  return threads;
}

void measure_processor(const std::vector<ComputeDtype>& dtypes, const std::set<std::int64_t>& threads,
                       const measure::SamplingOptions& sampling, std::vector<Row>& rows) {
  for (const ComputeDtype dtype : dtypes) {
    for (const std::int64_t count : threads) {
      note("matmul {} on {} threads", core::name_of(dtype.dtype), count);
      rows.push_back(peak_row(
          measure_products("cpu", dtype, static_cast<int>(count), {1024, 1536, 2048, 3072}, sampling),
          "cpu"));
    }
  }
  const std::size_t bytes = array_bytes();
  for (const std::int64_t count : threads) {
    note("memory on {} threads", count);
    for (const auto& peak : measure::measure_bandwidth(static_cast<int>(count), bytes, sampling)) {
      rows.push_back(peak_row(peak, "cpu"));
    }
  }
}

void measure_gpu(const std::string& device, const std::vector<ComputeDtype>& dtypes,
                 const measure::SamplingOptions& sampling, std::vector<Row>& rows) {
  constexpr std::size_t kArrayBytes = std::size_t{1} << 30U;  // many times a GPU's cache
  for (const ComputeDtype dtype : dtypes) {
    note("matmul {} on {}", dtype.tf32 ? "tf32" : core::name_of(dtype.dtype), device);
    rows.push_back(peak_row(measure_products(device, dtype, 0, {4096, 8192}, sampling), device));
  }
  note("memory of {}", device);
  for (const auto& peak : measure_device_bandwidth(device, kArrayBytes, sampling)) {
    rows.push_back(peak_row(peak, device));
  }
}

int run(const Options& options) {
  const Format format = parse_format(options.format);
  const measure::SamplingOptions sampling{.seconds = parse_number("--seconds", options.seconds, 0.01),
                                          .min_samples = 5};
  const auto threads = thread_counts(options.threads);
  std::vector<std::pair<std::string, std::vector<ComputeDtype>>> wanted;
  for (const std::string& name : parse_names("--device", options.device)) {
    const std::string device = parse_device(name);
    if (device == "null") throw core::UsageError("--device null runs nothing: there is nothing to measure");
    make_backend(device, engines::EngineKind::fused, 0);
    wanted.emplace_back(device, dtypes_of(options.dtype, device));
  }
  Table table = peaks_table();
  for (const auto& [device, dtypes] : wanted) {
    if (device == "cpu") {
      measure_processor(dtypes, threads, sampling, table.rows);
    } else {
      measure_gpu(device, dtypes, sampling, table.rows);
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
  app.add_option("--dtype", options->dtype,
                 "Of the matrix products; a list (default: all that the device has)")
      ->type_name("fp32|tf32|bf16|fp64");
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
