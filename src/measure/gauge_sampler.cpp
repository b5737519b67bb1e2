// Samples of a device's gauges while steps run, and the energy of the steps.
#include "measure/gauge_sampler.h"

#include <algorithm>
#include <utility>

namespace rooflm::measure {
namespace {

constexpr int kSamplesSoFar = 2000;
constexpr double kShortestSeconds = 0.5;

}  // namespace

GaugeSampler::GaugeSampler(std::unique_ptr<backends::Gauges> gauges, std::string device,
                           Clock::time_point epoch, std::chrono::nanoseconds interval)
    : gauges_(std::move(gauges)), device_(std::move(device)), epoch_(epoch), interval_(interval) {
  mark();
  thread_ = std::thread([this] { loop(); });
}

GaugeSampler::~GaugeSampler() {
  {
    const std::lock_guard lock(mutex_);
    is_done_ = true;
  }
  wakes_.notify_all();
  thread_.join();
}

void GaugeSampler::loop() {
  const Clock::time_point start = Clock::now();
  std::unique_lock lock(mutex_);
  while (true) {
    const auto so_far = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start);
    if (wakes_.wait_for(lock, std::max(interval_, so_far / kSamplesSoFar), [this] { return is_done_; })) {
      return;
    }
    sample();
  }
}

void GaugeSampler::sample() {
  const auto time = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - epoch_).count();
  for (backends::GaugeValue& gauge : gauges_->read()) {
    if (gauge.name == "power_w") {
      power_sum_w_ += gauge.value;
      ++power_samples_;
    }
    rows_.push_back({.device = device_,
                     .name = std::move(gauge.name),
                     .time_ns = time,
                     .value = gauge.value,
                     .unit = std::move(gauge.unit)});
  }
}

GaugeSampler::Reading GaugeSampler::read_energy() {
  return {.time = Clock::now(), .energy_j = gauges_->energy_j()};
}

void GaugeSampler::mark() {
  const std::lock_guard lock(mutex_);
  power_sum_w_ = 0;
  power_samples_ = 0;
  sample();
  mark_ = read_energy();
}

std::optional<Energy> GaugeSampler::since_mark() {
  const std::lock_guard lock(mutex_);
  const Reading now = read_energy();
  sample();
  const double seconds = std::chrono::duration<double>(now.time - mark_.time).count();
  if (seconds < kShortestSeconds) return std::nullopt;
  if (now.energy_j && mark_.energy_j) {
    return Energy{.seconds = seconds, .energy_j = *now.energy_j - *mark_.energy_j, .is_counted = true};
  }
  if (power_samples_ == 0) return std::nullopt;
  return Energy{.seconds = seconds, .energy_j = power_sum_w_ / power_samples_ * seconds, .is_counted = false};
}

std::vector<record::Gauge> GaugeSampler::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(rows_, {});
}

}  // namespace rooflm::measure
