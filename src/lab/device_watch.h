// Records the gauges of a run's device, and the energy of its steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "measure/gauge_sampler.h"
#include "record/writer.h"

namespace rooflm::lab {

/// Samples during its lifetime; does nothing for devices without gauges (the environment says why).
class DeviceWatch {
 public:
  DeviceWatch(const std::string& device, std::chrono::steady_clock::time_point epoch);

  /// Starts counting energy; further calls have no effect.
  void begin();
  /// Stops counting, after so many steps.
  void end(std::int64_t steps);
  /// Adds what was sampled so far to the record.
  void write_samples(record::Writer& record, std::int64_t run);
  /// 'power_w' and, of one step of `tokens` tokens, 'energy_j' and 'energy_j_per_token', unless the steps
  /// took less than half a second; 'throttled', the share of the samples in which the clock was held down;
  /// 'sm_clock_max_hz'.
  [[nodiscard]] std::vector<record::Fact> facts(double tokens) const;

 private:
  void count_throttled(const std::vector<record::Gauge>& rows);

  std::unique_ptr<measure::GaugeSampler> sampler_;
  bool has_begun_ = false;
  std::int64_t steps_ = 0;
  std::optional<measure::Energy> energy_;
  std::optional<double> max_clock_hz_;
  std::int64_t samples_ = 0, capped_ = 0, slowed_ = 0;  ///< of the gauge "throttle"
};

}  // namespace rooflm::lab
