// When measuring stops, on synthetic series.
#include "measure/stopping.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>

#include "core/rng.h"
#include "core/statistics.h"

namespace rooflm::measure {
namespace {

/// Feeds `sample(i)` at one second each until it is enough; returns the number of samples.
template <class Sample>
std::size_t feed(Stopping& stopping, Sample sample, double seconds_each = 0) {
  for (int i = 0; !stopping.is_done(); ++i) stopping.add(sample(i), seconds_each * (i + 1));
  return stopping.samples().size();
}

TEST(Stopping, AQuietSeriesNeedsTheLeastSamples) {
  Stopping stopping(StoppingRule{});
  EXPECT_EQ(feed(stopping, [](int i) { return 1 + 0.001 * (i % 3); }), 6U);
  EXPECT_EQ(stopping.reason(), "interval within 1 %");
  EXPECT_TRUE(stopping.reached_precision());
}

TEST(Stopping, FewerThanSixSamplesPromiseNothing) {
  Stopping stopping({.min_samples = 1});
  EXPECT_EQ(feed(stopping, [](int) { return 1.0; }), 6U);  // 2 to 5 equal samples have no 95% interval
}

TEST(Stopping, ANoisySeriesRunsIntoTheLimitOfSamples) {
  Stopping stopping(StoppingRule{});
  EXPECT_EQ(feed(stopping, [](int i) { return 1.0 + i % 2; }), 200U);
  EXPECT_EQ(stopping.reason(), "200 samples");
  EXPECT_FALSE(stopping.reached_precision());
}

TEST(Stopping, ASlowSeriesRunsIntoTheLimitOfTime) {
  Stopping stopping(StoppingRule{});
  EXPECT_EQ(feed(
                stopping, [](int i) { return 1.0 + i % 2; }, 4.0),
            8U);
  EXPECT_EQ(stopping.reason(), "30 s");
  Stopping slower(StoppingRule{});  // the least number of samples is taken all the same
  EXPECT_EQ(feed(
                slower, [](int i) { return 1.0 + i % 2; }, 100.0),
            6U);
}

TEST(Stopping, WithoutPrecisionAllSamplesAreTaken) {
  Stopping stopping({.precision = 0,
                     .min_samples = 1,
                     .max_samples = 10,
                     .max_seconds = std::numeric_limits<double>::infinity()});
  EXPECT_EQ(feed(stopping, [](int) { return 1.0; }), 10U);
  EXPECT_EQ(stopping.reason(), "10 samples");
}

TEST(Stopping, TheIntervalMustBeNarrowToEachSide) {
  // Median 1; the interval of 6 is [min, max]: 0.995 to 1.009 is within 1 %, 0.989 is not.
  Stopping within({.max_samples = 6});
  const std::vector<double> near = {1, 1, 0.995, 1, 1, 1.009};
  feed(within, [&](int i) { return near.at(static_cast<std::size_t>(i)); });
  EXPECT_EQ(within.reason(), "interval within 1 %");
  Stopping beyond({.max_samples = 6});
  const std::vector<double> skewed = {1, 1, 0.989, 1, 1, 1};
  feed(beyond, [&](int i) { return skewed.at(static_cast<std::size_t>(i)); });
  EXPECT_EQ(beyond.reason(), "6 samples");
}

TEST(Stopping, RulesThatCannotBeKeptAreRefused) {
  EXPECT_THROW(Stopping({.min_samples = 10, .max_samples = 9}), std::invalid_argument);
  EXPECT_THROW(Stopping({.min_samples = 0}), std::invalid_argument);
  EXPECT_THROW(Stopping({.precision = -1}), std::invalid_argument);
  EXPECT_THROW(Stopping({.precision = std::nan("")}), std::invalid_argument);
  EXPECT_THROW(Stopping({.confidence = 1}), std::invalid_argument);
  EXPECT_THROW(Stopping({.max_seconds = -1}), std::invalid_argument);
}

/// Stopping when the interval looks narrow favours series that look quiet by chance: what is left of 95%?
TEST(Stopping, CoverageWhereItStops) {
  constexpr int kSeries = 2000;
  struct Case {
    const char* name;
    double sigma;  ///< of the logarithm
  };
  for (const Case& c : {Case{"0.5 %", 0.005}, Case{"2 %", 0.02}, Case{"5 %", 0.05}}) {
    int covered = 0;
    int precise = 0;
    double samples = 0;
    for (std::uint64_t series = 0; series < kSeries; ++series) {
      Stopping stopping({.max_samples = 1000});
      samples += static_cast<double>(feed(stopping, [&](int i) {
        return std::exp(c.sigma * core::normal(5, series, static_cast<std::uint64_t>(i)));
      }));
      const core::Interval interval = core::median_interval(stopping.samples());
      covered += interval.low <= 1 && 1 <= interval.high ? 1 : 0;
      precise += stopping.reached_precision() ? 1 : 0;
    }
    const double rate = static_cast<double>(covered) / kSeries;
    fmt::print(
        "[ measured ] noise {}: stops after {:.1f} samples, within 1 % in {:.3f} of series, interval covers "
        "{:.3f}\n",
        c.name, samples / kSeries, static_cast<double>(precise) / kSeries, rate);
    EXPECT_GE(rate, 0.91);
    EXPECT_EQ(precise, kSeries);
  }
}

}  // namespace
}  // namespace rooflm::measure
