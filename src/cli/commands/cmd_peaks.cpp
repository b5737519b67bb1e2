// rooflm peaks: measures what this machine can do at best.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/command_record.h"
#include "cli/commands.h"
#include "cli/datasheet.h"
#include "cli/dry_run.h"
#include "cli/options/config_options.h"
#include "cli/output.h"
#include "cli/output_rule.h"
#include "cli/table.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/stop_signals.h"
#include "lab/ceilings/gpu_ceilings.h"
#include "lab/ceilings/machine_ceilings.h"
#include "lab/devices.h"
#include "measure/instruction_peaks.h"
#include "record/missing_peak.h"
#include "report/tables/ceiling_rows.h"

namespace rooflm::cli {
namespace {

using lab::ComputeDtype;
using lab::resolve_threads;

struct PeaksOptions {
  std::string device;
  std::string dtype;
  std::string threads;
  std::string seconds;
  TableOptions table;
  std::string record;
  bool overwrite = false;
  bool remeasure = false, dry_run = false;
};

/// The matmul dtypes of a device: those that steps compute in, and fp64 where peaks has it too.
std::vector<ComputeDtype> dtypes_of(const std::string& typed, const std::string& device) {
  const devices::Device description = backends::provider_of(device).describe(device);
  const auto is_measured = [&](const std::string& name) {
    return std::ranges::find(description.peak_dtypes, name) != description.peak_dtypes.end();
  };
  std::vector<ComputeDtype> dtypes;
  for (const std::string& name : typed.empty() ? description.peak_dtypes : parse_names("--dtype", typed)) {
    dtypes.push_back(name == "fp64" && is_measured(name)
                         ? ComputeDtype{core::DType::f64}
                         : lab::parse_compute_dtype(name, device, description));
  }
  return dtypes;
}

/// Says in the record why the device has no instruction peak of the dtype.
void write_missing_instructions(const std::string& device, const std::string& dtype, record::Writer& record) {
  const std::string reason = lab::is_host(device) ? measure::why_no_instruction_peak(dtype)
                                                  : lab::why_no_instruction_peak(device, dtype);
  if (reason.empty()) return;
  record.add(
      record::Environment{.key = record::missing_peak_key(device, dtype), .value = reason, .unit = {}});
}

std::set<int> thread_counts(const std::string& typed) {
  std::set<int> threads;
  for (const std::int64_t count : parse_integers("--threads", typed)) {
    if (const int most = lab::most_threads(); count > most) {
      throw core::UsageError(
          fmt::format("--threads {}: this process may use at most {} processors", count, most));
    }
    threads.insert(static_cast<int>(count));
  }
  return threads.empty() ? std::set<int>{1, resolve_threads(0)} : threads;
}

std::vector<record::Ceiling> measure_processor(const PeaksOptions& options,
                                               const std::vector<ComputeDtype>& dtypes) {
  lab::CeilingRequest request{.threads = thread_counts(options.threads),
                              .dtypes = {},
                              .remeasure = options.remeasure,
                              .only_products = false,
                              .seconds = {}};
  if (!options.seconds.empty()) request.seconds = parse_number("--seconds", options.seconds, 0.01);
  for (const ComputeDtype dtype : dtypes) request.dtypes.push_back(dtype.dtype);
  return lab::machine_ceilings(request);
}

std::optional<double> seconds_of(const PeaksOptions& options) {
  if (options.seconds.empty()) return std::nullopt;
  return parse_number("--seconds", options.seconds, 0.01);
}

std::vector<record::Ceiling> measure_gpu(const PeaksOptions& options, const std::string& device,
                                         const std::vector<ComputeDtype>& dtypes) {
  const auto seconds = seconds_of(options);
  auto ceilings = lab::gpu_ceilings(
      {.device = device, .dtypes = dtypes, .remeasure = options.remeasure, .seconds = seconds});
  const auto links = lab::gpu_links(device, seconds);
  ceilings.insert(ceilings.end(), links.begin(), links.end());
  return ceilings;
}

/// Devices of the catalog that only stand for one: what their datasheets say. Empty if one can be measured.
std::vector<devices::Device> advertised_devices(const std::string& names) {
  if (names == "catalog") return devices::catalog();
  std::vector<devices::Device> advertised;
  for (const std::string& name : parse_names("--device", names)) {
    const std::string device = lab::parse_device(name);
    if (lab::runs(device)) return {};
    advertised.push_back(backends::provider_of(device).describe(device));
    if (advertised.back().peak_flop_per_s.empty()) return {};
  }
  return advertised;
}

int run(const PeaksOptions& options) {
  const TableStyle style = options.table.style();
  if (const auto advertised = advertised_devices(options.device); !advertised.empty()) {
    if (!options.record.empty())
      throw core::UsageError("peaks: nothing is measured on a device of the catalog: leave out -o");
    const Table table = datasheet_table(advertised, parse_names("--dtype", options.dtype));
    write_out(show_table(table, style));
    return 0;
  }
  require_columns(report::columns_of(report::peaks_columns()), style);
  const core::StopSignals signals;
  check_outputs({{"-o", options.record}}, {}, options.overwrite);
  std::vector<std::pair<std::string, std::vector<ComputeDtype>>> wanted;
  for (const std::string& name : parse_names("--device", device_or_default(options.device))) {
    const std::string device = lab::parse_device(name);
    lab::require_runs(device, "measured");
    lab::make_backend(device, compile::EngineKind::fused);
    wanted.emplace_back(device, dtypes_of(options.dtype, device));
  }
  if (options.dry_run) {
    std::size_t rates = 0;
    for (const auto& [device, dtypes] : wanted) rates += dtypes.size();
    show_dry_run(fmt::format("measure {} devices, {} dtypes", wanted.size(), rates),
                 {{"-o", options.record}});
    return 0;
  }
  CommandRecord record(options.record, options.overwrite, "peaks");
  for (const auto& [device, dtypes] : wanted) {
    const auto ceilings =
        lab::is_host(device) ? measure_processor(options, dtypes) : measure_gpu(options, device, dtypes);
    for (const record::Ceiling& ceiling : ceilings) record.writer().add(ceiling);
    for (const ComputeDtype dtype : dtypes) {
      write_missing_instructions(device, std::string(name_of(dtype)), record.writer());
    }
  }
  record.finish();
  if (record.is_printed()) return 0;
  const report::RecordSet set = report::load(std::array{record.path()});
  write_out(show_table(report::peaks_table(set.files.at(0)), style));
  return 0;
}

}  // namespace

Body declare_peaks(CommandLine& line) {
  auto options = std::make_shared<PeaksOptions>();
  line.add_option("--device", options->device, "Device to measure (default: the fastest one here)")
      .type_name("cpu|cuda[:N]|null:NAME|catalog");
  line.add_option("--dtype", options->dtype,
                  "Dtypes of the matmuls, a list (default: all that the device supports)")
      .type_name(dtype_names(line) + "|fp64");
  line.add_option("--threads", options->threads, "Thread counts, a list (default: 1 and one per core)")
      .type_name("N");
  line.add_option("--seconds", options->seconds,
                  "Minimum seconds per row and matmul size; cached ceilings are neither used nor written")
      .type_name("S");
  line.add_option("-o,--output", options->record, "Write the ceilings to this run record")
      .type_name("FILE.rooflm");
  line.add_flag("--overwrite", options->overwrite, "Overwrite an existing record");
  line.add_flag("--remeasure", options->remeasure, "Measure again instead of using cached ceilings");
  options->table.add_to(line, "Output format; JSON and CSV use flop/s and byte/s");
  add_dry_run(line, options->dry_run, "");
  line.footer(
      "Rates are medians with a confidence interval. Keep the machine otherwise idle.\n"
      "Ceilings are cached in $XDG_CACHE_HOME/rooflm (or ~/.cache/rooflm) per\n"
      "processor, thread count, GPU and rooflm version.\n\n"
      "For catalog devices (null:h100-sxm, or catalog for all), it shows datasheet\n"
      "rates beside those that GEMMs sustain.\n\n"
      "Example: rooflm peaks --dtype fp32,bf16 --format json");
  return [options] { return run(*options); };
}

}  // namespace rooflm::cli
