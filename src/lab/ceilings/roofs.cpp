// Roofs of a run, from the machine's ceilings, and whether what was measured keeps to them.
#include "lab/ceilings/roofs.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "core/statistics.h"
#include "core/units.h"
#include "lab/devices.h"
#include "measure/bandwidth.h"
#include "measure/machine.h"

namespace rooflm::lab {
namespace {

/// Capacity of each level for all threads together: caches of their own count once per core. Of a GPU the
/// second level, which all multiprocessors share.
std::map<std::string, double> cache_capacities(const std::string& device, int threads) {
  std::map<std::string, double> capacities;
  if (!is_host(device)) {
    const devices::Device description = backends::provider_of(device).describe(device);
    for (std::size_t i = 0; i + 1 < description.memory.size(); ++i) {
      capacities[description.memory[i].name] = description.memory[i].bytes;
    }
    return capacities;
  }
  for (const measure::Cache& cache : measure::query_processor().caches) {
    if (cache.type == "Instruction") continue;
    const bool is_shared = cache.level >= 3;
    capacities[fmt::format("L{}", cache.level)] =
        static_cast<double>(cache.bytes) * (is_shared ? 1.0 : static_cast<double>(threads));
  }
  return capacities;
}

}  // namespace

perfmodel::Machine machine_of(const std::vector<record::Ceiling>& ceilings, const std::string& device,
                              int threads) {
  const int count = resolve_threads(threads);
  const auto capacities = cache_capacities(device, count);
  auto machine = perfmodel::Machine::from_ceilings(ceilings, device, count, capacities);
  // What caches of unknown sizes may hold costs nothing: it need not come from DRAM.
  if (is_host(device) && capacities.empty() && !machine.levels.empty()) {
    machine.levels.insert(machine.levels.begin(),
                          {.name = "cache",
                           .byte_per_s = std::numeric_limits<double>::infinity(),
                           .capacity_bytes = static_cast<double>(measure::kUnknownCache)});
  }
  return machine;
}

MeasuredTimes measured_times(const std::vector<record::Event>& events,
                             const measure::InterleaveResult& result) {
  std::map<std::string, std::vector<double>> samples;
  for (const record::Event& event : events) {
    samples[fmt::format("op:{}", event.op)].push_back(static_cast<double>(event.device_ns) * core::kNano);
  }
  for (const measure::TimedStep& step : result.steps) {
    if (step.kind != measure::StepKind::plain) continue;
    samples["phase:forward"].push_back(step.times.forward_s);
    samples["phase:backward"].push_back(step.times.backward_s);
    samples["phase:optimizer"].push_back(step.times.optimizer_s);
    samples["step"].push_back(step.times.step_s);
  }
  MeasuredTimes times;
  for (auto& [subject, seconds] : samples) times[subject] = core::median(std::move(seconds));
  return times;
}

void write_peak(record::Writer& record, const CeilingBook::PricedRun& priced, const CeilingBook& ceilings) {
  const auto peak = ceilings.products(priced.point);
  if (!peak) return;
  record.add(
      priced.run,
      record::Fact{
          .key = "peak_flop_per_s", .value = peak->value, .unit = "flop/s", .text = describe_peak(*peak)});
}

void price_again(record::Writer& record, const CeilingBook& ceilings) {
  for (const CeilingBook::PricedRun& priced : ceilings.priced()) {
    if (!is_host(priced.point.device)) continue;
    write_peak(record, priced, ceilings);
    if (!priced.has_roofs) continue;
    const auto machine = machine_of(ceilings.rows(), priced.point.device, priced.point.threads);
    record.replace(priced.run, perfmodel::predict_roofs(machine, program_of(priced.point)));
  }
}

std::set<std::string> beaten_bounds(const std::vector<record::Prediction>& roofs,
                                    const MeasuredTimes& measured) {
  constexpr double kShare = 1.04;
  constexpr double kClock_s = 1e-6;
  std::set<std::string> bounds;
  for (const record::Prediction& roof : roofs) {
    const auto time = measured.find(roof.subject);
    if (time == measured.end() || roof.bound.empty()) continue;
    if (roof.value > kShare * time->second + kClock_s) bounds.insert(roof.bound);
  }
  return bounds;
}

}  // namespace rooflm::lab
