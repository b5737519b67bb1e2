// Sentences about drift, and how often drift is alarmed falsely, on synthetic series.
#include "measure/drift.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/rng.h"

namespace rooflm::measure {
namespace {

/// Times around 1 with 1 % noise that keeps `memory` of its neighbour's deviation, slower by `slope` at the
/// end.
std::vector<double> series(std::uint64_t stream, std::size_t n, double memory, double slope) {
  std::vector<double> times(n);
  double deviation = core::normal(3, stream, n);
  for (std::size_t i = 0; i < n; ++i) {
    deviation = memory * deviation + std::sqrt(1 - memory * memory) * core::normal(3, stream, i);
    times[i] = (1 + 0.01 * deviation) * (1 + slope * static_cast<double>(i) / static_cast<double>(n - 1));
  }
  return times;
}

TEST(Drift, SentencesSayWhatIsKnown) {
  std::vector<double> times = {1, 2, 3, 4, 5, 1, 2, 3, 4, 5};
  EXPECT_EQ(drift_sentence(core::summarise(times), {}),
            "no drift: second half +0.0 % compared with the first, p = 1");
  times = {100, 101, 102, 103, 104, 110, 111, 112.2, 113, 114};
  EXPECT_EQ(drift_sentence(core::summarise(times), {.before_hz = 2.6e9, .after_hz = 2.45e9}),
            "drift: second half +10.0 % compared with the first, p = 0.0079; clock 2.60 GHz before and 2.45 "
            "GHz after");
  times.resize(9);
  EXPECT_EQ(drift_sentence(core::summarise(times), {.before_hz = 2.6e9, .after_hz = {}}),
            "9 samples are too few to detect drift (10 are needed)");
}

TEST(Drift, AlarmsAndMisses) {
  constexpr int kSeries = 2000;
  const auto alarms = [&](std::size_t n, double memory, double slope) {
    int count = 0;
    for (std::uint64_t i = 0; i < kSeries; ++i) {
      count += core::measure_drift(series(i, n, memory, slope)).is_significant() ? 1 : 0;
    }
    const double rate = static_cast<double>(count) / kSeries;
    fmt::print(
        "[ measured ] n {}, correlation {:.1f}, {:.0f} % slower at the end: drift in {:.4f} of series\n", n,
        memory, 100 * slope, rate);
    return rate;
  };
  const double four_errors = 4 * std::sqrt(core::Drift::kAlpha / kSeries);
  EXPECT_LE(alarms(20, 0, 0), core::Drift::kAlpha + four_errors);
  EXPECT_LE(alarms(100, 0, 0), core::Drift::kAlpha + four_errors);
  // Neighbours that depend on each other carry less than their number says: alarms come more often.
  EXPECT_GT(alarms(100, 0.5, 0), core::Drift::kAlpha);
  EXPECT_GE(alarms(20, 0, 0.05), 0.9);
  EXPECT_GE(alarms(100, 0, 0.02), 0.9);
}

TEST(Drift, TheClockIsPlausible) {
  const auto hz = clock_hz();
  if (!hz) GTEST_SKIP() << "this system does not tell its clock frequency";
  EXPECT_GT(*hz, 1e8);
  EXPECT_LT(*hz, 1e10);
}

}  // namespace
}  // namespace rooflm::measure
