// Rows of ceilings.
#include "report/tables/ceiling_rows.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "record/loaded_ceiling.h"
#include "record/missing_peak.h"
#include "report/views/view.h"

namespace rooflm::report {
namespace {

constexpr std::string_view kMatmul = "matmul";

/// The instruction peak that a matmul is held against: the highest, since one that was measured again
/// has two rows.
std::optional<double> instruction_peak(const record::Ceiling& product,
                                       std::span<const record::Ceiling> ceilings) {
  std::optional<double> peak;
  const std::string what = "instruction" + product.what.substr(kMatmul.size());
  for (const record::Ceiling& other : ceilings) {
    if (other.what == what && other.device == product.device && other.dtype == product.dtype &&
        other.threads == product.threads) {
      peak = std::max(peak.value_or(0), other.value);
    }
  }
  return peak;
}

/// Bytes of one multiply-add of a loop that makes one for each number that it writes: doubles on the host but
/// for saxpy, floats on a GPU. Nothing for other loops.
std::optional<double> bytes_per_multiply_add(const record::Ceiling& ceiling) {
  const bool is_saxpy = ceiling.what == "saxpy";
  const double number_bytes = ceiling.device == "cpu" && !is_saxpy ? 8 : 4;
  if (ceiling.what == "triad" || is_saxpy) return 3 * number_bytes;
  if (ceiling.what == "update") return 2 * number_bytes;
  return std::nullopt;
}

/// Behind the last matmul of the device and dtype, or at the end.
void add_missing(std::vector<CeilingRow>& rows, const std::string& device, const std::string& dtype,
                 const std::string& reason) {
  CeilingRow row;
  row.what = "instruction";
  row.device = device;
  row.dtype = dtype;
  row.unit = "flop/s";
  row.problem = reason;
  row.is_missing = true;
  const auto last = std::find_if(rows.rbegin(), rows.rend(), [&](const CeilingRow& other) {
    return other.what.starts_with(kMatmul) && other.device == device && other.dtype == dtype;
  });
  rows.insert(last == rows.rend() ? rows.end() : last.base(), std::move(row));
}

constexpr const char* kIntervalNote =
    "value: median; low to high: its confidence interval (at least 95%, order statistics).";
constexpr const char* kProductNote =
    "matmul: the fastest of several square matmuls with the kernels of the fused engine (fp64: the "
    "reference), under sustained load; matmul burst: a few at a time on an idle GPU.";
constexpr const char* kInstructionNote =
    "instruction: multiply-adds on registers only, with the instructions that problem names (the fastest "
    "first), an upper limit for any matmul; of instr.: the matmul rate as a share of it.";
constexpr const char* kMemoryNote =
    "read, write, saxpy, update (a = 2 a + 2), copy, triad, adamw (four arrays read, three of them written), "
    "add: "
    "bytes in the loop's source, as STREAM counts them; each loop covers half of a cache. adamw on a GPU: "
    "the optimizer kernel, 30 bytes per parameter.";
constexpr const char* kSaxpyNote =
    "saxpy (y = a x + y, fp32), triad and update do one multiply-add per number written: FLOP/s is what the "
    "bandwidth allows (triad and update: fp64 on the host, fp32 on a GPU).";
constexpr const char* kLinkNote =
    "launch and wait: from the host's launch of an empty kernel until the host sees its end; launch, graph "
    "node: each of 1000 in a row; graph launch: the host's time to submit 1000 nodes. Copies: 256 MiB, "
    "between host and GPU or to another GPU.";
constexpr const char* kKeptNote = "Ceilings are cached for later commands; --remeasure measures them again.";

}  // namespace

std::vector<CeilingRow> ceiling_rows(std::span<const record::Ceiling> ceilings) {
  std::vector<CeilingRow> rows;
  for (const record::Ceiling& ceiling : ceilings) {
    CeilingRow& row = rows.emplace_back(CeilingRow{ceiling});
    if (const auto bytes = bytes_per_multiply_add(ceiling)) {
      row.flop_per_s = 2 * ceiling.value / *bytes;
      row.intensity = 2 / *bytes;
    }
    if (ceiling.what.starts_with(kMatmul))
      row.share_of_instruction = ratio_of(ceiling.value, instruction_peak(ceiling, ceilings));
  }
  return rows;
}

TypedColumns<CeilingRow> ceiling_columns(const char* value, const char* low, const char* high) {
  using Of = CeilingRow;
  const auto measured = [](auto member) {
    return [member](const Of& row) { return row.is_missing ? std::nullopt : std::optional(row.*member); };
  };
  return {{"what", "what", &Of::what},
          {"device", "device", &Of::device},
          {"level", "level", &Of::level},
          {"dtype", "dtype", &Of::dtype},
          {"threads", "threads", measured(&Of::threads)},
          {"value", value, measured(&Of::value), Show::si},
          {"unit", "unit", &Of::unit},
          {"share_of_instruction", "of instr.", &Of::share_of_instruction, Show::percent},
          {"flop_per_s", "FLOP/s", &Of::flop_per_s, Show::si, "flop/s"},
          {"intensity", "FLOP/B", &Of::intensity, Show::fixed2, "flop/byte"},
          {"ci_low", low, measured(&Of::ci_low), Show::si},
          {"ci_high", high, measured(&Of::ci_high), Show::si}};
}

const TypedColumns<CeilingRow>& peaks_columns() {
  static const TypedColumns<CeilingRow> columns =
      ceiling_columns("value", "low", "high")
          .add({"samples", "samples",
                [](const CeilingRow& row) {
                  return row.is_missing ? std::nullopt : std::optional(row.samples);
                }})
          .add({"problem", "problem", &CeilingRow::problem})
          .add({"measured_utc", &CeilingRow::measured_utc});
  return columns;
}

std::map<std::string, std::string> uncertain_bounds(std::span<const record::Ceiling> ceilings,
                                                    const record::Config& config) {
  std::map<std::string, record::Ceiling> best;
  const auto threads = config.integer("threads").value_or(0);
  for (const record::Ceiling& ceiling : ceilings) {
    if (ceiling.device != config.text("device") || (ceiling.threads != 0 && ceiling.threads != threads) ||
        ceiling.what.starts_with("instruction")) {
      continue;
    }
    const std::string bound = ceiling.level.empty() ? ceiling.what + " " + ceiling.dtype : ceiling.level;
    record::Ceiling& known = best[bound];
    if (ceiling.value > known.value) known = ceiling;
  }
  std::map<std::string, std::string> uncertain;
  for (const auto& [bound, ceiling] : best) {
    if (std::string why = record::why_uncertain(ceiling); !why.empty()) uncertain[bound] = std::move(why);
  }
  // A last cache that virtual machines share: an array of its whole size finds a part of it taken, a smaller
  // one does not.
  constexpr double kHardlyFaster = 1.5;
  const auto memory = best.find("DRAM");
  const auto cache = best.find("L3");
  if (memory != best.end() && cache != best.end() && !uncertain.contains("L3") &&
      cache->second.value < kHardlyFaster * memory->second.value)
    uncertain["L3"] = "L3 was hardly faster than memory: others use it";
  return uncertain;
}

Table peaks_table(const RecordFile& file) {
  std::vector<CeilingRow> rows = ceiling_rows(file.ceilings);
  for (const record::Environment& line : file.environment) {
    if (const auto of = record::missing_peak_of(line.key))
      add_missing(rows, of->first, of->second, line.value);
  }
  Table table = peaks_columns().table(rows);
  table.notes = {"",          kIntervalNote, kProductNote, kInstructionNote,
                 kMemoryNote, kSaxpyNote,    kLinkNote,    kKeptNote};
  return table;
}

}  // namespace rooflm::report
