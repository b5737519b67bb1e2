// rooflm peaks: measures what this machine can do at best.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/devices.h"
#include "cli/gpu_ceilings.h"
#include "cli/machine_ceilings.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/values.h"
#include "core/error.h"
#include "measure/instruction_peaks.h"
#include "record/rows.h"

namespace rooflm::cli {
namespace {

struct Options {
  std::string device = "cpu";
  std::string dtype;
  std::string threads;
  std::string seconds;
  std::string format = "table";
  bool remeasure = false;
};

ComputeDtype parse_peak_dtype(const std::string& name, const std::string& device) {
  return name == "fp64" && device == "cpu" ? ComputeDtype{core::DType::f64}
                                           : parse_compute_dtype(name, device);
}

std::vector<ComputeDtype> dtypes_of(const std::string& typed, const std::string& device) {
  const std::string all = device == "cpu" ? "fp32,bf16,fp64" : "fp32,tf32,bf16,fp16";
  std::vector<ComputeDtype> dtypes;
  for (const std::string& name : parse_names("--dtype", typed.empty() ? all : typed)) {
    dtypes.push_back(parse_peak_dtype(name, device));
  }
  return dtypes;
}

Row ceiling_row(const record::Ceiling& ceiling) {
  Row row;
  row.set("what", ceiling.what);
  row.set("device", ceiling.device);
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

/// A row without a rate behind the products of the dtype, which says why the device has no instruction peak.
void add_missing_instructions(const std::string& device, const std::string& dtype, std::vector<Row>& rows) {
  const std::string reason =
      device == "cpu" ? measure::why_no_instruction_peak(dtype) : why_no_instruction_peak(device, dtype);
  if (reason.empty()) return;
  Row row;
  row.set("what", "instruction");
  row.set("device", device);
  row.set("level", "");
  row.set("dtype", dtype);
  row.set("value", Cell{});
  row.set("unit", "flop/s");
  row.set("problem", reason);
  const auto last = std::find_if(rows.rbegin(), rows.rend(), [&](const Row& other) {
    return other.text("what").starts_with("matmul") && other.text("dtype") == dtype;
  });
  rows.insert(last.base(), std::move(row));
}

/// Writes 'share_of_instruction' into the rows of matrix products: their rate over the instruction peak of
/// the same dtype and threads, both under a lasting load or both in a burst.
void add_instruction_shares(const std::vector<record::Ceiling>& ceilings, std::vector<Row>& rows) {
  constexpr std::string_view kMatmul = "matmul";
  for (std::size_t i = 0; i < ceilings.size(); ++i) {
    const record::Ceiling& product = ceilings[i];
    if (!product.what.starts_with(kMatmul)) continue;
    const auto peak = std::ranges::find_if(ceilings, [&](const record::Ceiling& other) {
      return other.what == "instruction" + product.what.substr(kMatmul.size()) &&
             other.device == product.device && other.dtype == product.dtype &&
             other.threads == product.threads;
    });
    if (peak != ceilings.end()) rows[i].set("share_of_instruction", product.value / peak->value);
  }
}

constexpr const char* kIntervalNote =
    "value: median; low to high: its confidence interval (95% or more, order statistics).";
constexpr const char* kProductNote =
    "matmul: the fastest of several square products with the kernels of the fused engine (fp64: the "
    "reference), under a lasting load; matmul burst: a few at a time on a GPU that was at rest.";
constexpr const char* kInstructionNote =
    "instruction: multiply-adds on registers alone, with the instructions that problem names (the fastest "
    "first), which no product can pass; of instr.: the matmul's share of it.";
constexpr const char* kMemoryNote =
    "read, write, update (a = 2 a + 2), copy, triad, adamw (four arrays read, three of them written), add: "
    "bytes that the loop names, as STREAM counts them; half of each cache is walked through. adamw on a GPU: "
    "the optimizer's kernel, 30 bytes per parameter.";
constexpr const char* kLinkNote =
    "launch and wait: host to the end of an empty kernel; launch, graph node: each of 1000 in a row; graph "
    "launch: the host's time to submit 1000 nodes. Copies: 256 MiB, between host and GPU or to another GPU.";
constexpr const char* kKeptNote =
    "Ceilings are kept from one command to the next; --remeasure measures again.";

Table peaks_table() {
  return {.columns = {{"what", "what"},
                      {"device", "device"},
                      {"level", "level"},
                      {"dtype", "dtype"},
                      {"threads", "threads"},
                      {"value", "value", Show::si},
                      {"unit", "unit"},
                      {"share_of_instruction", "of instr.", Show::percent},
                      {"ci_low", "low", Show::si},
                      {"ci_high", "high", Show::si},
                      {"samples", "samples"},
                      {"problem", "problem"}},
          .rows = {},
          .notes = {"", kIntervalNote, kProductNote, kInstructionNote, kMemoryNote, kLinkNote, kKeptNote}};
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

std::vector<record::Ceiling> measure_processor(const Options& options,
                                               const std::vector<ComputeDtype>& dtypes) {
  CeilingRequest request{
      .threads = thread_counts(options.threads), .dtypes = {}, .remeasure = options.remeasure, .seconds = {}};
  if (!options.seconds.empty()) request.seconds = parse_number("--seconds", options.seconds, 0.01);
  for (const ComputeDtype dtype : dtypes) request.dtypes.push_back(dtype.dtype);
  return machine_ceilings(request);
}

std::optional<double> seconds_of(const Options& options) {
  if (options.seconds.empty()) return std::nullopt;
  return parse_number("--seconds", options.seconds, 0.01);
}

std::vector<record::Ceiling> measure_gpu(const Options& options, const std::string& device,
                                         const std::vector<ComputeDtype>& dtypes) {
  const auto seconds = seconds_of(options);
  GpuCeilingRequest request{
      .device = device, .dtypes = dtypes, .remeasure = options.remeasure, .seconds = seconds};
  if (options.dtype.empty()) request.instructions_only = {"fp8"};  // no products of ours yet
  auto ceilings = gpu_ceilings(request);
  const auto links = gpu_links(device, seconds);
  ceilings.insert(ceilings.end(), links.begin(), links.end());
  return ceilings;
}

int run(const Options& options) {
  const Format format = parse_format(options.format);
  std::vector<std::pair<std::string, std::vector<ComputeDtype>>> wanted;
  for (const std::string& name : parse_names("--device", options.device)) {
    const std::string device = parse_device(name);
    if (device == "null") throw core::UsageError("--device null runs nothing: there is nothing to measure");
    make_backend(device, compile::EngineKind::fused, 0);
    wanted.emplace_back(device, dtypes_of(options.dtype, device));
  }
  Table table = peaks_table();
  for (const auto& [device, dtypes] : wanted) {
    const auto ceilings =
        device == "cpu" ? measure_processor(options, dtypes) : measure_gpu(options, device, dtypes);
    std::vector<Row> rows;
    for (const record::Ceiling& ceiling : ceilings) rows.push_back(ceiling_row(ceiling));
    add_instruction_shares(ceilings, rows);
    for (const ComputeDtype dtype : dtypes) {
      const std::string name(dtype.tf32 ? "tf32" : core::name_of(dtype.dtype));
      add_missing_instructions(device, name, rows);
    }
    table.rows.insert(table.rows.end(), rows.begin(), rows.end());
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
      ->type_name("fp32|tf32|bf16|fp16|fp64");
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
      "$XDG_CACHE_HOME/rooflm (or ~/.cache/rooflm) for this processor, its threads, the GPU and this "
      "version.\n\n"
      "Example: rooflm peaks --dtype fp32,bf16 --format json");
  return [options] { return run(*options); };
}

}  // namespace rooflm::cli
