// All that a GPU can do at best.
#include "lab/ceilings/gpu_ceilings.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/statistics.h"
#include "core/stop_signals.h"
#include "core/units.h"
#include "lab/ceilings/ceilings.h"
#include "lab/notes.h"
#include "measure/ceilings.h"
#include "measure/sampling.h"
#include "record/loaded_ceiling.h"

namespace rooflm::lab {
namespace {

using Rows = std::vector<record::Ceiling>;

constexpr double kLoopSeconds = 0.1;
constexpr double kProductSeconds = 0.4;
constexpr int kMinSamples = 6;
constexpr int kBursts = 15;

/// Runs a loop once, discarded, then again and again; a summary of rates, or of seconds for latencies.
core::Summary sample(const backends::TimedLoop& loop, double seconds) {
  constexpr std::size_t kMostSamples = 1000;
  loop.run_s();
  std::vector<double> values;
  const double begin = measure::now_s();
  while (values.size() < kMostSamples) {
    core::StopSignals::check();
    const double elapsed_s = loop.run_s();
    values.push_back(loop.amount > 0 ? loop.amount / elapsed_s : elapsed_s);
    if (values.size() >= kMinSamples && measure::now_s() - begin >= seconds) break;
  }
  return core::summarise(values);
}

record::Ceiling row_of(const measure::Peak& peak, const std::string& device) {
  record::Ceiling row = measure::ceiling_row(peak);
  row.device = device;
  return row;
}

measure::Peak measure_loop(const backends::TimedLoop& loop, double seconds) {
  const bool is_rate = loop.amount > 0;
  return {.what = loop.what,
          .level = loop.level,
          .dtype = is_rate ? "fp32" : "",
          .unit = is_rate ? "byte/s" : "s",
          .threads = 0,
          .problem = loop.problem,
          .rate = sample(loop, seconds)};
}

/// The loop with the highest rate under a lasting load, the others named, and that loop's rate on a GPU that
/// was at rest.
std::pair<measure::Peak, measure::Peak> measure_instructions(const std::vector<backends::TimedLoop>& loops,
                                                             const std::string& dtype, double seconds) {
  constexpr auto kRest = std::chrono::milliseconds(8);
  measure::Peak lasting{
      .what = "instruction", .level = "", .dtype = dtype, .unit = "flop/s", .problem = "", .rate = {}};
  const backends::TimedLoop* fastest = &loops.front();
  std::string others;
  for (const auto& loop : loops) {
    const core::Summary rate = sample(loop, seconds);
    const bool is_faster = rate.median > lasting.rate.median;
    const double other = is_faster ? lasting.rate.median : rate.median;
    if (other > 0) {
      others +=
          fmt::format("; {}: {}FLOP/s", is_faster ? fastest->problem : loop.problem, core::format_si(other));
    }
    if (!is_faster) continue;
    lasting.rate = rate;
    fastest = &loop;
  }
  measure::Peak burst = lasting;
  burst.what = "instruction burst";
  burst.problem = fastest->problem;
  lasting.problem = fastest->problem + others;
  std::vector<double> rates;
  for (int i = 0; i < kBursts; ++i) {
    std::this_thread::sleep_for(kRest);
    rates.push_back(fastest->amount / fastest->run_s());
  }
  burst.rate = core::summarise(rates);
  return {lasting, burst};
}

/// The file's rows, and what is measured beside them.
class GpuCollector {
 public:
  GpuCollector(const GpuCeilingRequest& request, Rows kept) : request_(&request), kept_(std::move(kept)) {}

  void add_products(const ComputeDtype& compute) {
    const std::string name(name_of(compute));
    if (take([&](const record::Ceiling& row) {
          return row.what.starts_with("matmul") && row.dtype == name;
        })) {
      return;
    }
    note("measuring matmul {} on {}", name, request_->device);
    const std::vector<std::int64_t> extents = {4096, 8192};
    add(measure_products(
        request_->device, compute, 0, extents,
        {.seconds = request_->seconds.value_or(kProductSeconds), .min_samples = kMinSamples}));
    add(measure_product_bursts(request_->device, compute, extents, kBursts));
  }

  /// After the matmuls of the dtype: an instruction peak below their rate is from a worse moment and is
  /// measured again. The fastest instruction under a lasting load ("instruction"), and in bursts
  /// ("instruction burst").
  void add_instructions(const std::string& dtype) {
    constexpr int kMostAttempts = 3;
    const double reached = rate_of("matmul", dtype);
    const double reached_burst = rate_of("matmul burst", dtype);
    if (take([&](const record::Ceiling& row) {
          return (row.what == "instruction" && row.dtype == dtype && row.value >= reached) ||
                 (row.what == "instruction burst" && row.dtype == dtype && row.value >= reached_burst);
        })) {
      return;
    }
    const auto found = backends::provider_of(request_->device).instruction_loops(request_->device, dtype);
    if (found.loops.empty()) return;
    note("measuring the instruction peak of {} on {}", dtype, request_->device);
    std::pair<measure::Peak, measure::Peak> best;
    for (int i = 0; i < kMostAttempts; ++i) {
      const auto peaks =
          measure_instructions(found.loops, dtype, request_->seconds.value_or(kProductSeconds));
      if (peaks.first.rate.median > best.first.rate.median) best.first = peaks.first;
      if (peaks.second.rate.median > best.second.rate.median) best.second = peaks.second;
      if (best.first.rate.median >= reached && best.second.rate.median >= reached_burst) break;
    }
    add_limit(best.first, reached);
    add_limit(best.second, reached_burst);
  }

  void add_memory() {
    if (take([](const record::Ceiling& row) { return row.unit == "byte/s"; })) return;
    note("measuring memory of {}", request_->device);
    for (const auto& loop : backends::provider_of(request_->device).memory_loops(request_->device)) {
      add(measure_loop(loop, request_->seconds.value_or(kLoopSeconds)));
    }
  }

  [[nodiscard]] const Rows& rows() const { return rows_; }
  [[nodiscard]] bool has_new() const { return !fresh_.empty(); }
  /// The sure ones of the new rows, and those of the file that are not measured better now.
  [[nodiscard]] Rows to_keep() const {
    Rows all = fresh_;
    std::copy_if(kept_.begin(), kept_.end(), std::back_inserter(all), [&](const record::Ceiling& old) {
      return std::none_of(fresh_.begin(), fresh_.end(), [&](const record::Ceiling& row) {
        return row.what == old.what && row.level == old.level && row.dtype == old.dtype;
      });
    });
    return all;
  }

 private:
  template <class Predicate>
  bool take(Predicate is_wanted) {
    if (request_->remeasure || std::none_of(kept_.begin(), kept_.end(), is_wanted)) return false;
    std::copy_if(kept_.begin(), kept_.end(), std::back_inserter(rows_), is_wanted);
    return true;
  }
  [[nodiscard]] double rate_of(const std::string& what, const std::string& dtype) const {
    const auto found = std::ranges::find_if(
        rows_, [&](const record::Ceiling& row) { return row.what == what && row.dtype == dtype; });
    return found == rows_.end() ? 0 : found->value;
  }
  /// A limit that matmuls exceed is not a limit.
  void add_limit(const measure::Peak& peak, double reached) {
    if (peak.rate.median >= reached) return add(peak);
    note("no {} peak of {}: {} reached {}FLOP/s, matmuls {}FLOP/s", peak.what, peak.dtype, peak.problem,
         core::format_si(peak.rate.median), core::format_si(reached));
  }
  void add(const measure::Peak& peak) {
    const record::Ceiling row = row_of(peak, request_->device);
    rows_.push_back(row);
    if (record::why_uncertain(row).empty()) {
      fresh_.push_back(row);
    } else {
      note("the ceiling {} {}{} is uncertain (its interval is wide), so it is not cached", row.what,
           row.level, row.dtype);
    }
  }

  const GpuCeilingRequest* request_;
  Rows kept_;
  Rows rows_;
  Rows fresh_;  ///< measured now, to be kept
};

/// Two GPUs of one machine may differ: the device's number belongs to the name.
std::string key_name(const std::string& device) {
  const std::string name = backends::provider_of(device).describe(device).name;
  return name.empty() ? device : name + " " + device;
}

measure::CeilingKey key_of(const std::string& device) {
  return {.processor = key_name(device),
          .threads = 0,
          .version = ROOFLM_VERSION,
          .measuring = std::string(measuring_digest())};
}

}  // namespace

Rows kept_gpu_ceilings(const std::string& device, const std::string& name) {
  try {
    if (backends::provider_of(device).describe(device).name != name) return {};
    const measure::CeilingKey key = key_of(device);
    return measure::read_ceilings(measure::ceiling_file(key), key).rows;
  } catch (const core::Error&) {  // no such device here
    return {};
  }
}

Rows gpu_ceilings(const GpuCeilingRequest& request) {
  const measure::CeilingKey key = key_of(request.device);
  const std::filesystem::path file = request.seconds ? "" : measure::ceiling_file(key);
  measure::KeptCeilings kept = measure::read_ceilings(file, key);
  if (!kept.fault.empty()) note("measuring the ceilings again: {}", kept.fault);
  GpuCollector collector(request, std::move(kept.rows));
  for (const ComputeDtype& compute : request.dtypes) {
    collector.add_products(compute);
    if (!request.only_products) collector.add_instructions(std::string(name_of(compute)));
  }
  if (!request.only_products) collector.add_memory();
  if (!collector.has_new() || file.empty()) return collector.rows();
  try {
    measure::write_ceilings(file, key, collector.to_keep());
    note("ceilings cached in {}", file.string());
  } catch (const core::InputError& error) {
    note("ceilings not cached: {}", error.what());
  }
  return collector.rows();
}

std::string why_no_instruction_peak(const std::string& device, const std::string& dtype) {
  return backends::provider_of(device).instruction_loops(device, dtype).missing;
}

Rows gpu_links(const std::string& device, std::optional<double> seconds) {
  note("measuring launches and copies of {}", device);
  Rows rows;
  for (const auto& loop : backends::provider_of(device).link_loops(device)) {
    rows.push_back(row_of(measure_loop(loop, seconds.value_or(kLoopSeconds)), device));
  }
  return rows;
}

}  // namespace rooflm::lab
