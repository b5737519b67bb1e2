// Samples of a device's gauges while steps run, and the energy of the steps.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backends/gauges.h"
#include "record/rows.h"

namespace rooflm::measure {

/// What a device took in some time.
struct Energy {
  double seconds = 0;
  double energy_j = 0;
  bool is_counted = true;  ///< by the device's energy counter; otherwise mean power of the samples x time
  [[nodiscard]] double power_w() const { return energy_j / seconds; }
};

/// Reads the gauges again and again in a thread of its own: every `interval` at first, later about 2000 times
/// in the time so far, so that a run of weeks stays small.
class GaugeSampler {
 public:
  using Clock = std::chrono::steady_clock;
  /// Times are nanoseconds since `epoch`; rows name `device`.
  GaugeSampler(std::unique_ptr<backends::Gauges> gauges, std::string device, Clock::time_point epoch,
               std::chrono::nanoseconds interval = std::chrono::milliseconds(100));
  GaugeSampler(const GaugeSampler&) = delete;
  GaugeSampler& operator=(const GaugeSampler&) = delete;
  ~GaugeSampler();

  /// Starts counting energy. Takes a sample.
  void mark();
  /// Since `mark`; nothing below half a second, because energy counters move ten times a second or so, and
  /// where the device tells neither energy nor power. Takes a sample.
  [[nodiscard]] std::optional<Energy> since_mark();
  /// The rows since the last call, as rows of a record.
  [[nodiscard]] std::vector<record::Gauge> take();

 private:
  struct Reading {
    Clock::time_point time;
    std::optional<double> energy_j;
  };
  void sample();  ///< with the lock held
  [[nodiscard]] Reading read_energy();
  void loop();

  std::unique_ptr<backends::Gauges> gauges_;
  std::string device_;
  Clock::time_point epoch_;
  std::chrono::nanoseconds interval_;
  std::mutex mutex_;
  std::condition_variable wakes_;
  bool is_done_ = false;
  std::vector<record::Gauge> rows_;
  Reading mark_;
  double power_sum_w_ = 0;  ///< of the samples since `mark`
  int power_samples_ = 0;
  std::thread thread_;  ///< last: it uses the others
};

}  // namespace rooflm::measure
