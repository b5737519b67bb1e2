// What CUPTI counts: the metrics and passes of a chip, and their values. Needs no GPU. For files of this
// folder and their tests only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trace/cupti/profiler_library.h"
#include "trace/device_counters.h"

namespace rooflm::trace {

/// One counter set on one chip.
class CounterConfig {
 public:
  /// `availability` is the device's counter availability; empty for a chip without a device. Metrics that the
  /// chip lacks are left out. Throws core::Unavailable if none is left, core::UsageError for an unknown chip.
  CounterConfig(const ProfilerLibrary& cupti, const std::string& chip,
                std::span<const std::uint8_t> availability, const CounterSet& set);
  [[nodiscard]] int passes() const { return passes_; }
  [[nodiscard]] std::span<const std::uint8_t> image() const { return image_; }
  /// Names of the metrics that are counted.
  [[nodiscard]] std::vector<const char*>& names() { return names_; }
  /// The values of one range, summed by name.
  [[nodiscard]] std::vector<CountedValue> evaluate(std::span<const std::uint8_t> counter_data,
                                                   std::size_t range);

 private:
  struct Close {
    const ProfilerLibrary* cupti;
    void operator()(CUpti_Profiler_Host_Object* host) const;
  };
  void add_metrics(const CounterSet& set);
  void make_image();

  const ProfilerLibrary* cupti_;
  std::unique_ptr<CUpti_Profiler_Host_Object, Close> host_;
  std::vector<CounterMetric> metrics_;
  std::vector<const char*> names_;
  std::vector<std::uint8_t> image_;
  int passes_ = 0;
};

}  // namespace rooflm::trace
