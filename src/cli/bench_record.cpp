// A benchmark's measurements as runs of a record.
#include "cli/bench_record.h"

#include <array>
#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "cli/run_record.h"
#include "measure/ceilings.h"

namespace rooflm::cli {
namespace {

/// Columns of a row that are facts of a run under the same or another key, and their units.
struct FactColumn {
  const char* column;
  const char* key;
  const char* unit;
};
constexpr std::array kFacts = {FactColumn{"model_flops", "model_flop", "flop"},
                               FactColumn{"matmul_flops", "matmul_flop", "flop"},
                               FactColumn{"plan_bytes", "plan_bytes", "B"},
                               FactColumn{"state_bytes", "state_bytes", "B"},
                               FactColumn{"needed_bytes", "needed_bytes", "B"},
                               FactColumn{"rss_increase_bytes", "rss_increase_bytes", "B"},
                               FactColumn{"peak_flop_per_s", "peak_flop_per_s", "flop/s"},
                               FactColumn{"loss", "loss", "nats"}};

}  // namespace

void add_bench_run(record::Writer& record, const Point& point, const BenchSettings& settings, const Row& row,
                   const std::vector<engines::StepTimes>& samples) {
  const std::int64_t run =
      record.begin_run(run_row(point, {.threads = settings.threads,
                                       .seed = settings.seed,
                                       .warmup = settings.steps.warmup,
                                       .deterministic = settings.order == SumOrder::fixed}));
  for (const FactColumn& fact : kFacts) {
    const double value = row.number(fact.column);
    if (value <= 0) continue;  // not measured
    record.add(run, record::Fact{.key = fact.key, .value = value, .unit = fact.unit, .text = {}});
  }
  record.add(
      run, record::Fact{
               .key = "tokens", .value = static_cast<double>(point.tokens()), .unit = "tokens", .text = {}});
  for (const char* key : {"stop_reason", "drift"}) {
    if (row.text(key).empty()) continue;
    record.add(run, record::Fact{.key = key, .value = {}, .unit = {}, .text = row.text(key)});
  }
  std::vector<record::Sample> rows;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    add_samples(rows, static_cast<std::int64_t>(i), samples[i], "plain");
  }
  record.add(run, rows);
  record.end_run(run, row.text("status"));
  record.commit();
}

void add_ceilings(record::Writer& record, const Ceilings& ceilings) {
  for (const auto& [key, peak] : ceilings.measured()) {
    record::Ceiling row = measure::ceiling_row(peak);
    row.device = key.substr(0, key.find(' '));
    record.add(row);
  }
}

}  // namespace rooflm::cli
