// Records the gauges of a run's device, and the energy of its steps.
#include "lab/device_watch.h"

#include <fmt/format.h>

#include <utility>

#include "backends/registry.h"

namespace rooflm::lab {
namespace {

/// Bits of NVML's clock event reasons (nvml.h).
constexpr std::int64_t kPowerCap = 0x4;
constexpr std::int64_t kSlowed = 0x8 | 0x20 | 0x40 | 0x80;  // hardware, heat, power brake

}  // namespace

DeviceWatch::DeviceWatch(const std::string& device, std::chrono::steady_clock::time_point epoch) {
  backends::FoundGauges found = backends::provider_of(device).gauges(device);
  if (found.gauges != nullptr) {
    max_clock_hz_ = found.gauges->max_sm_clock_hz();
    sampler_ = std::make_unique<measure::GaugeSampler>(std::move(found.gauges), device, epoch);
  }
}

void DeviceWatch::begin() {
  if (sampler_ != nullptr && !std::exchange(has_begun_, true)) sampler_->mark();
}

void DeviceWatch::end(std::int64_t steps) {
  if (!has_begun_) return;
  steps_ = steps;
  energy_ = sampler_->since_mark();
}

void DeviceWatch::count_throttled(const std::vector<record::Gauge>& rows) {
  for (const record::Gauge& row : rows) {
    if (row.name != "throttle") continue;
    const auto reasons = static_cast<std::int64_t>(row.value);
    const bool is_slowed = (reasons & kSlowed) != 0;
    ++samples_;
    if (is_slowed) ++slowed_;
    if (!is_slowed && (reasons & kPowerCap) != 0) ++capped_;
  }
}

void DeviceWatch::write_samples(record::Writer& record, std::int64_t run) {
  if (sampler_ == nullptr) return;
  auto rows = sampler_->take();
  count_throttled(rows);
  record.add(run, rows);
}

std::vector<record::Fact> DeviceWatch::facts(double tokens) const {
  std::vector<record::Fact> facts;
  if (energy_ && steps_ > 0) {
    const double step_j = energy_->energy_j / static_cast<double>(steps_);
    const std::string how =
        fmt::format("{}, {} steps in {:.1f} s, including the time between them",
                    energy_->is_counted ? "the device's energy counter" : "mean of power samples x time",
                    steps_, energy_->seconds);
    facts.push_back({.key = "power_w", .value = energy_->power_w(), .unit = "W", .text = how});
    facts.push_back({.key = "energy_j", .value = step_j, .unit = "J", .text = "of one step: " + how});
    facts.push_back({.key = "energy_j_per_token", .value = step_j / tokens, .unit = "J", .text = {}});
  }
  if (max_clock_hz_) {
    facts.push_back({.key = "sm_clock_max_hz", .value = max_clock_hz_, .unit = "Hz", .text = {}});
  }
  if (samples_ > 0) {
    const double share = static_cast<double>(capped_ + slowed_) / static_cast<double>(samples_);
    facts.push_back({.key = "throttled",
                     .value = share,
                     .unit = "share",
                     .text = fmt::format("of {} samples, {} with the clock held down by the power cap, {} by "
                                         "heat or hardware",
                                         samples_, capped_, slowed_)});
  }
  return facts;
}

}  // namespace rooflm::lab
