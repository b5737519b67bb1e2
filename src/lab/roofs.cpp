// Roofs of a run, from the machine's ceilings, and whether what was measured keeps to them.
#include "lab/roofs.h"

#include <fmt/format.h>

#include <utility>

#include "core/statistics.h"
#include "lab/devices.h"
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
  return perfmodel::Machine::from_ceilings(ceilings, device, count, cache_capacities(device, count));
}

MeasuredTimes measured_times(const std::vector<record::Event>& events,
                             const measure::InterleaveResult& result) {
  constexpr double kSecondsPerNs = 1e-9;
  std::map<std::string, std::vector<double>> samples;
  for (const record::Event& event : events) {
    samples[fmt::format("op:{}", event.op)].push_back(static_cast<double>(event.device_ns) * kSecondsPerNs);
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
