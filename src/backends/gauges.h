// What a device reports about itself while it works.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rooflm::backends {

/// "power_w", 640.5, "W". Names and units are those of record::Gauge.
struct GaugeValue {
  std::string name{};
  double value = 0;
  std::string unit{};
};

/// Power, clocks, temperature and the like of one device, as its driver reports them. Not thread-safe.
class Gauges {
 public:
  Gauges() = default;
  Gauges(const Gauges&) = delete;
  Gauges& operator=(const Gauges&) = delete;
  virtual ~Gauges() = default;
  /// The current values, without waiting for the device's work; values that it does not report are omitted.
  [[nodiscard]] virtual std::vector<GaugeValue> read() = 0;
  /// Joules since an arbitrary moment in the past; nothing if the device does not count them.
  [[nodiscard]] virtual std::optional<double> energy_j() = 0;
  /// The highest clock of its multiprocessors.
  [[nodiscard]] virtual std::optional<double> max_sm_clock_hz() { return std::nullopt; }
};

/// The gauges of a device, or why there are none ("" for devices that never have any).
struct FoundGauges {
  std::unique_ptr<Gauges> gauges{};
  std::string missing{};
};

}  // namespace rooflm::backends
