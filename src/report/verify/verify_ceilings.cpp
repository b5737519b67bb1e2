// Laws of ceilings: rates within their intervals, and instruction peaks that nothing passes.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "report/verify/laws.h"

namespace rooflm::report {
namespace {

bool is_instruction(const record::Ceiling& ceiling) { return ceiling.what.starts_with("instruction"); }

/// Clocks differ between the moments in which two rates were measured.
constexpr Slack kClocks{.share = 0.05};

std::string name_of(const record::Ceiling& ceiling) {
  return fmt::format("{} {} {}{}, {} threads", ceiling.device, ceiling.what, ceiling.level, ceiling.dtype,
                     ceiling.threads);
}

/// Compares sustained matmul rates with sustained instruction peaks, and bursts with bursts.
void check_products(const record::Ceiling& product, const std::vector<record::Ceiling>& all, LawBook& laws) {
  constexpr std::string_view kMatmul = "matmul";
  if (!product.what.starts_with(kMatmul)) return;
  const std::string what = "instruction" + product.what.substr(kMatmul.size());
  double limit = 0;  // the highest: a ceiling that was measured again has two rows
  for (const record::Ceiling& peak : all) {
    if (peak.what == what && peak.device == product.device && peak.dtype == product.dtype &&
        peak.threads == product.threads) {
      limit = std::max(limit, peak.value);
    }
  }
  if (limit <= 0) return;
  laws.at_most("matmuls do not exceed the instruction peak", name_of(product), product.value, limit,
               product.unit, kClocks);
}

}  // namespace

void check_ceilings(const record::Reader& record, LawBook& laws) {
  const auto ceilings = record.ceilings();
  for (const record::Ceiling& ceiling : ceilings) {
    const std::string what = name_of(ceiling);
    laws.positive("ceilings are positive", what, ceiling.value, ceiling.unit);
    check_products(ceiling, ceilings, laws);
    if (ceiling.samples <= 0) continue;
    laws.at_most("ceilings lie within their interval", what, ceiling.ci_low, ceiling.value, ceiling.unit,
                 kExact);
    laws.at_most("ceilings lie within their interval", what, ceiling.value, ceiling.ci_high, ceiling.unit,
                 kExact);
  }
}

void check_instruction_peaks(const record::Reader& record, const record::Run& run, LawBook& laws) {
  constexpr double kNeededOfAttention = 0.5;  // the half below the diagonal, at least
  const std::string dtype = run.config.text("dtype");
  const auto threads = run.config.integer("threads").value_or(0);
  std::map<std::string, double> peaks;  // by dtype
  for (const record::Ceiling& ceiling : record.ceilings()) {
    const bool is_own =
        ceiling.device == run.config.text("device") && (ceiling.threads == 0 || ceiling.threads == threads);
    if (is_own && is_instruction(ceiling))
      peaks[ceiling.dtype] = std::max(peaks[ceiling.dtype], ceiling.value);
  }
  if (!peaks.contains(dtype)) return;
  const std::map<std::int64_t, double> times = op_seconds(record, run);
  for (const record::Op& op : record.rows<record::Op>(run.id)) {
    const auto time = times.find(op.op);
    if (op.matmul_flop <= 0 || time == times.end()) continue;
    // Matmuls of a tf32 run say that they are fp32; some of a bf16 run are.
    const auto own = peaks.find(op.dtype);
    const double peak = std::max(peaks[dtype], own == peaks.end() ? 0 : own->second);
    const double needed = op.op_class == "attention" ? kNeededOfAttention : 1;
    laws.at_most("no op computes faster than the instruction peak", fmt::format("op {} {}", op.op, op.name),
                 needed * static_cast<double>(op.matmul_flop) / peak, time->second, "s", kClockNoise);
  }
}

}  // namespace rooflm::report
