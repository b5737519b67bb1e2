// Gauges are sampled in the background, and energy is that between two moments.
#include "measure/gauge_sampler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace rooflm::measure {
namespace {

using namespace std::chrono_literals;

/// 100 W, and one joule more each time that somebody asks.
class MadeUpGauges final : public backends::Gauges {
 public:
  MadeUpGauges(bool counts_energy, std::atomic<int>& reads) : counts_energy_(counts_energy), reads_(&reads) {}
  [[nodiscard]] std::vector<backends::GaugeValue> read() override {
    ++*reads_;
    return {{.name = "power_w", .value = 100, .unit = "W"}, {.name = "throttle", .value = 4, .unit = "bits"}};
  }
  [[nodiscard]] std::optional<double> energy_j() override {
    if (!counts_energy_) return std::nullopt;
    return energy_j_ += 1;
  }

 private:
  bool counts_energy_;
  std::atomic<int>* reads_;
  double energy_j_ = 1000;
};

TEST(GaugeSampler, SamplesUntilItIsGone) {
  std::atomic<int> reads = 0;
  {
    GaugeSampler sampler(std::make_unique<MadeUpGauges>(true, reads), "cuda:0", GaugeSampler::Clock::now(),
                         1ms);
    while (reads < 5) std::this_thread::sleep_for(1ms);
    const auto rows = sampler.take();
    ASSERT_GE(rows.size(), 8U);
    EXPECT_EQ(rows[0].device, "cuda:0");
    EXPECT_EQ(rows[0].name, "power_w");
    EXPECT_EQ(rows[1].name, "throttle");
    EXPECT_EQ(rows[1].value, 4);
    EXPECT_EQ(rows[0].time_ns, rows[1].time_ns) << "of one moment";
    EXPECT_GE(rows[2].time_ns, rows[0].time_ns);
    EXPECT_FALSE(sampler.since_mark()) << "too short for an energy counter";
  }
  const int then = reads;
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(reads, then);
}

TEST(GaugeSampler, EnergyIsCountedOrMadeOfPower) {
  std::atomic<int> reads = 0;
  GaugeSampler counted(std::make_unique<MadeUpGauges>(true, reads), "cuda:0", GaugeSampler::Clock::now());
  GaugeSampler sampled(std::make_unique<MadeUpGauges>(false, reads), "cuda:0", GaugeSampler::Clock::now());
  counted.mark();
  sampled.mark();
  std::this_thread::sleep_for(600ms);
  const auto exact = counted.since_mark();
  ASSERT_TRUE(exact);
  EXPECT_TRUE(exact->is_counted);
  EXPECT_EQ(exact->energy_j, 1);
  const auto mean = sampled.since_mark();
  ASSERT_TRUE(mean);
  EXPECT_FALSE(mean->is_counted);
  EXPECT_DOUBLE_EQ(mean->power_w(), 100);
}

}  // namespace
}  // namespace rooflm::measure
