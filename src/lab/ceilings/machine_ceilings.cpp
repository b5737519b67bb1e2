// All that this machine can do at best.
#include "lab/ceilings/machine_ceilings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <limits>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/statistics.h"
#include "core/units.h"
#include "lab/ceilings/ceilings.h"
#include "lab/devices.h"
#include "lab/notes.h"
#include "measure/bandwidth.h"
#include "measure/ceilings.h"
#include "measure/instruction_peaks.h"
#include "measure/machine.h"
#include "measure/machine_load.h"
#include "record/loaded_ceiling.h"

namespace rooflm::lab {
namespace {

using Rows = std::vector<record::Ceiling>;

constexpr const char* kDevice = "cpu";  // the processor is what this file measures

/// Of one thing.
bool is_same(const record::Ceiling& a, const record::Ceiling& b) {
  return a.device == b.device && a.what == b.what && a.level == b.level && a.dtype == b.dtype &&
         a.threads == b.threads;
}

/// Ceilings as they are known so far, and how to get those that are missing.
class Collector {
 public:
  Collector(Rows kept, std::optional<double> seconds)
      : kept_(std::move(kept)), seconds_(seconds), processor_(measure::query_processor()) {}

  void add_products(core::DType dtype, int threads) {
    constexpr double kSeconds = 0.25;
    const std::string name(core::name_of(dtype));
    if (take_kept(
            [&](const record::Ceiling& row) {
              return row.what == "matmul" && row.dtype == name && row.threads == threads;
            },
            1)) {
      return;
    }
    try {
      measure_alone(fmt::format("matmul {} on {}", name, core::format_count(threads, "thread")), [&] {
        return std::vector{
            measure_products(kDevice, {.dtype = dtype}, threads, {1024, 1536}, sampling(kSeconds))};
      });
    } catch (const core::Unavailable& error) {
      note("no ceiling: {}", error.what());
    }
  }

  /// After the matmuls of the dtype: an instruction peak below their rate is from a worse moment and is
  /// measured again. Nothing where the processor has no such instructions.
  void add_instructions(core::DType dtype, int threads) {
    constexpr double kSeconds = 0.1;
    const std::string name(core::name_of(dtype));
    const double reached = rate_of_products(name, threads);
    if (!measure::why_no_instruction_peak(name).empty() || take_kept(
                                                               [&](const record::Ceiling& row) {
                                                                 return row.what == "instruction" &&
                                                                        row.dtype == name &&
                                                                        row.threads == threads &&
                                                                        row.value >= reached;
                                                               },
                                                               1)) {
      return;
    }
    note("measuring the instruction peak of {} on {}", name, core::format_count(threads, "thread"));
    std::optional<measure::Peak> best;
    for (int i = 0; i < kMostAttempts && (!best || best->rate.median < reached); ++i) {
      const auto peak = measure::measure_instruction_peak(name, threads, sampling(kSeconds));
      if (!best || peak->rate.median > best->rate.median) best = peak;
    }
    if (best->rate.median < reached) {
      return note(
          "no instruction peak of {}: it was measured below the rate of matmuls, so the machine is busy",
          name);
    }
    add(*best, "");
  }

  /// Of one level ("" for all).
  void add_bandwidths(int threads, const std::string& only = "") {
    const double free_bytes = static_cast<double>(
        measure::query_memory().available_bytes.value_or(std::numeric_limits<std::int64_t>::max()));
    const auto levels = measure::memory_levels(processor_, threads, free_bytes);
    for (const measure::MemoryLevel& level : levels) {
      if (only.empty() || only == level.name) add_bandwidth(level, threads);
    }
    if (levels.empty() || levels.back().name != "DRAM") {
      note("no DRAM ceiling: {} of free memory is too little", core::format_bytes(free_bytes));
    }
  }

  /// In flop/s; 0 before add_products.
  [[nodiscard]] double rate_of_products(const std::string& dtype, int threads) const {
    double rate = 0;
    for (const record::Ceiling& row : rows_) {
      if (row.what == "matmul" && row.dtype == dtype && row.threads == threads) rate = row.value;
    }
    return rate;
  }
  [[nodiscard]] bool has_sure() const { return !sure_.empty(); }
  [[nodiscard]] std::size_t unsure() const { return measured_ - sure_.size(); }
  [[nodiscard]] const Rows& rows() const { return rows_; }
  /// What to keep: the sure ones of the new rows, and those of the file that are not measured better now.
  [[nodiscard]] Rows to_keep() const {
    Rows all = kept_;
    for (const record::Ceiling& row : sure_) {
      all.erase(
          std::remove_if(all.begin(), all.end(), [&](const auto& other) { return is_same(other, row); }),
          all.end());
      all.push_back(row);
    }
    return all;
  }
  void forget_kept() { fresh_ = true; }

 private:
  /// How much other programs had; "" when they had next to nothing.
  static std::string load_of(const std::vector<measure::Peak>& peaks, const measure::MachineLoad& watch) {
    constexpr double kLeastShare = 0.9;
    for (const measure::Peak& peak : peaks) {
      if (peak.rate.count < kFewestSamples)
        return fmt::format("only {} of {} samples in time", peak.rate.count, kFewestSamples);
    }
    if (const auto others = watch.others_share(); others && *others > 1 - kLeastShare) {
      return measure::load_sentence(*others);
    }
    double share = 1;
    for (const measure::Peak& peak : peaks) share = std::min(share, peak.cpu_share);
    if (share >= kLeastShare) return "";
    return fmt::format("the threads had their processors for {:.0f} % of the time", 100 * share);
  }

  /// Adds what `measure` finds: again, three times and for some seconds at most, while other programs have
  /// the processors, and of each rate the highest. What was never measured without them says so in its
  /// source. Once they had them every time, the next ceiling gets a single attempt: they are still there.
  template <class Measure>
  void measure_alone(const std::string& what, Measure measure) {
    constexpr double kMostTotalSeconds = 5;
    std::vector<measure::Peak> best;
    std::string load;
    const double begin = measure::now_s();
    for (int i = 0; i < attempts_ && (i == 0 || measure::now_s() - begin < kMostTotalSeconds); ++i) {
      note("measuring {}{}", what, i == 0 ? "" : " again: " + load);
      const measure::MachineLoad watch;
      const std::vector<measure::Peak> peaks = measure();
      load = load_of(peaks, watch);
      if (best.empty()) best = peaks;
      for (std::size_t k = 0; k < peaks.size(); ++k) {
        if (peaks[k].rate.median > best[k].rate.median) best[k] = peaks[k];
      }
      if (load.empty()) break;
    }
    attempts_ = load.empty() ? kMostAttempts : 1;
    for (const measure::Peak& peak : best) add(peak, load);
  }

  void add_bandwidth(const measure::MemoryLevel& level, int threads) {
    constexpr double kSeconds = 0.08;
    constexpr std::ptrdiff_t kLoops = measure::kBandwidthLoops;
    if (take_kept(
            [&](const record::Ceiling& row) {
              return row.level == level.name && row.threads == threads && row.unit == "byte/s";
            },
            kLoops)) {
      return;
    }
    try {
      measure_alone(fmt::format("{} on {}", level.name, core::format_count(threads, "thread")),
                    [&] { return measure::measure_bandwidth(level, threads, sampling(kSeconds)); });
    } catch (const std::bad_alloc&) {
      note("no ceiling of {}: not enough memory", level.name);
    }
  }

  /// Takes what is wanted from the file when it has all `count` rows of it.
  template <class Predicate>
  bool take_kept(Predicate is_wanted, std::ptrdiff_t count) {
    if (fresh_ || std::count_if(kept_.begin(), kept_.end(), is_wanted) != count) return false;
    std::copy_if(kept_.begin(), kept_.end(), std::back_inserter(rows_), is_wanted);
    mark_dram();
    return true;
  }
  /// Caches of unknown sizes may serve what memory is to limit, but are no reason to measure it again.
  void mark_dram() {
    for (record::Ceiling& row : rows_) {
      if (processor_.caches.empty() && row.level == "DRAM" && !record::is_under_load(row))
        row.source = record::kUnknownCaches;
    }
  }
  void add(const measure::Peak& peak, const std::string& load) {
    rows_.push_back(measure::ceiling_row(peak));
    if (!load.empty()) rows_.back().source = fmt::format("{}: {}", record::kUnderLoad, load);
    ++measured_;
    if (record::why_uncertain(rows_.back()).empty()) sure_.push_back(rows_.back());
    mark_dram();
  }
  [[nodiscard]] measure::SamplingOptions sampling(double usual_s) const {
    return {.seconds = seconds_.value_or(usual_s),
            .min_samples = kFewestSamples,
            .most_seconds = std::max(kMostSecondsEach, 2 * seconds_.value_or(usual_s))};
  }

  static constexpr int kMostAttempts = 3;
  static constexpr int kFewestSamples = 6;       ///< with an interval of 95 %
  static constexpr double kMostSecondsEach = 4;  ///< of a rate: slower samples are another program's doing
  Rows kept_;
  std::optional<double> seconds_;
  measure::Processor processor_;
  int attempts_ = kMostAttempts;
  bool fresh_ = false;  ///< what is kept is not to be taken
  Rows rows_;
  Rows sure_;                 ///< of those measured now
  std::size_t measured_ = 0;  ///< rows
};

measure::CeilingKey this_machine() {
  return {.processor = measure::query_processor().model,
          .threads = resolve_threads(0),
          .version = ROOFLM_VERSION,
          .measuring = measuring_on_processor()};
}

void keep(const std::filesystem::path& file, const measure::CeilingKey& key, const Rows& rows) {
  try {
    measure::write_ceilings(file, key, rows);
    note("ceilings cached in {}", file.string());
  } catch (const core::InputError& error) {
    note("ceilings not cached: {}", error.what());
  }
}

/// Beside what the file has of other things.
void keep_higher(Rows rows) {
  std::erase_if(rows, [](const record::Ceiling& row) { return !record::why_uncertain(row).empty(); });
  if (rows.empty()) return;
  const measure::CeilingKey key = this_machine();
  const auto file = measure::ceiling_file(key);
  if (file.empty()) return;
  Rows all = measure::read_ceilings(file, key).rows;
  for (const record::Ceiling& row : rows) {
    all.erase(std::remove_if(all.begin(), all.end(), [&](const auto& other) { return is_same(other, row); }),
              all.end());
    all.push_back(row);
  }
  keep(file, key, all);
}

}  // namespace

std::vector<record::Ceiling> machine_ceilings(const CeilingRequest& request) {
  const measure::CeilingKey key = this_machine();
  const std::filesystem::path file = request.seconds ? "" : measure::ceiling_file(key);
  measure::KeptCeilings kept = measure::read_ceilings(file, key);
  if (!kept.fault.empty()) note("measuring the ceilings again: {}", kept.fault);
  Collector collector(std::move(kept.rows), request.seconds);
  if (request.remeasure) collector.forget_kept();
  for (const core::DType dtype : request.dtypes) {
    for (const int threads : request.threads) {
      collector.add_products(dtype, threads);
      if (!request.only_products) collector.add_instructions(dtype, threads);
    }
  }
  if (!request.only_products) {
    for (const int threads : request.threads) collector.add_bandwidths(threads);
  }
  if (collector.unsure() > 0) {
    note("uncertain ceilings: {} (wide intervals, or other programs used the processors){}",
         collector.unsure(), file.empty() ? "" : "; not cached");
  }
  if (collector.has_sure() && !file.empty()) keep(file, key, collector.to_keep());
  return collector.rows();
}

std::vector<record::Ceiling> raise_ceilings(Rows& rows, std::map<std::string, int>& attempts, int threads,
                                            const std::set<std::string>& bounds) {
  constexpr std::string_view kMatmul = "matmul ";
  constexpr int kMostAttempts = 3;
  Collector collector({}, {});
  const devices::Device description = backends::provider_of(kDevice).describe(kDevice);
  for (const std::string& bound : bounds) {
    if (++attempts[bound] > kMostAttempts) continue;
    if (bound.starts_with(kMatmul)) {
      const core::DType dtype = parse_compute_dtype(bound.substr(kMatmul.size()), kDevice, description).dtype;
      collector.add_products(dtype, threads);
      const std::string name(core::name_of(dtype));
      const bool is_passed = std::ranges::any_of(rows, [&](const record::Ceiling& row) {
        return row.what == "instruction" && row.dtype == name && row.threads == threads &&
               row.value < collector.rate_of_products(name, threads);
      });
      if (is_passed) collector.add_instructions(dtype, threads);
    } else {
      collector.add_bandwidths(threads, bound);
    }
  }
  Rows changed;
  for (const record::Ceiling& row : collector.rows()) {
    const auto known =
        std::find_if(rows.begin(), rows.end(), [&](const auto& other) { return is_same(other, row); });
    if (known == rows.end()) {
      changed.push_back(rows.emplace_back(row));
      continue;
    }
    if (known->value < row.value) {
      *known = row;
    } else if (record::is_under_load(row) && !record::is_under_load(*known)) {
      // A time beat it, and whether the machine does more alone cannot be seen now.
      known->source = row.source;
    } else {
      continue;
    }
    changed.push_back(*known);
  }
  if (!changed.empty()) keep_higher(changed);
  return changed;
}

}  // namespace rooflm::lab
