// Statistics on samples whose answers are known.
#include "core/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace rooflm::core {
namespace {

std::vector<double> one_to(int n) {
  std::vector<double> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

TEST(Statistics, MeanAndStandardDeviation) {
  const std::vector<double> samples = {2, 4, 4, 4, 5, 5, 7, 9};
  EXPECT_DOUBLE_EQ(mean(samples), 5);
  EXPECT_DOUBLE_EQ(sample_std(samples), std::sqrt(32.0 / 7.0));
}

TEST(Statistics, ASingleSampleHasNoSpread) {
  const std::vector<double> samples = {3.5};
  const Summary s = summarise(samples);
  EXPECT_EQ(s.count, 1U);
  EXPECT_EQ(s.mean, 3.5);
  EXPECT_EQ(s.std, 0);
  EXPECT_EQ(s.median, 3.5);
  EXPECT_EQ(s.mad, 0);
  EXPECT_EQ(s.min, 3.5);
  EXPECT_EQ(s.max, 3.5);
  EXPECT_EQ(s.median_ci.low, 3.5);
  EXPECT_EQ(s.median_ci.high, 3.5);
  EXPECT_EQ(s.median_ci.coverage, 0);
}

TEST(Statistics, MedianOfOddAndEvenCounts) {
  EXPECT_EQ(median(std::vector<double>{9, 1, 5}), 5);
  EXPECT_EQ(median(std::vector<double>{9, 1, 5, 7}), 6);
}

TEST(Statistics, MedianAbsoluteDeviation) {
  // Median 2, deviations 1 1 0 0 2 4 7.
  EXPECT_EQ(median_absolute_deviation(std::vector<double>{1, 1, 2, 2, 4, 6, 9}), 1);
}

TEST(Statistics, OutliersAreFarFromTheMedian) {
  // Median 10, deviations 2 1 0 1 2 7 8, MAD 2: the limit is 14.826.
  std::vector<double> samples = {8, 9, 10, 11, 12, 3, 18};
  EXPECT_DOUBLE_EQ(outlier_distance(samples), 14.826);
  EXPECT_EQ(summarise(samples).outliers, 0U);
  samples.back() = 24.8;
  EXPECT_EQ(summarise(samples).outliers, 0U);
  samples.back() = 24.9;
  EXPECT_EQ(summarise(samples).outliers, 1U);
  EXPECT_EQ(summarise(std::vector<double>{1, 1, 1, 1}).outliers, 0U);
}

TEST(Statistics, AClockThatCountsInStepsHasNoOutliers) {
  // Most samples are equal: the MAD is 0, the mean distance 0.4, the limit 5 * 1.2533 * 0.4 = 2.5066.
  std::vector<double> samples = {100, 100, 100, 100, 100, 100, 101, 101, 99, 99};
  EXPECT_DOUBLE_EQ(outlier_distance(samples), 2.5066);
  EXPECT_EQ(summarise(samples).outliers, 0U);
  samples.back() = 120;
  EXPECT_EQ(summarise(samples).outliers, 1U) << "20 is further than 6.2665 * 2.3";
}

TEST(Statistics, FewSamplesHaveNoOutliers) {
  EXPECT_EQ(summarise(std::vector<double>{1, 1.001, 0.999, 1, 9}).outliers, 0U);
  EXPECT_EQ(summarise(std::vector<double>{1, 1.001, 0.999, 1, 1.002, 9}).outliers, 1U);
}

TEST(Statistics, DriftComparesTheHalves) {
  // 1..5 and 6..10: the two most extreme of 252 splits.
  const Drift rising = measure_drift(one_to(10));
  EXPECT_DOUBLE_EQ(rising.ratio, 8.0 / 3.0);
  EXPECT_NEAR(rising.p, 2.0 / 252, 1e-12);
  EXPECT_TRUE(rising.is_significant());
  EXPECT_FALSE(measure_drift(one_to(9)).is_significant());  // 4 and 4: 2 of 70 at best
  const Drift still = measure_drift(std::vector<double>{1, 2, 3, 4, 5, 99, 1, 2, 3, 4, 5});
  EXPECT_DOUBLE_EQ(still.ratio, 1);
  EXPECT_FALSE(still.is_significant());
  EXPECT_EQ(measure_drift(std::vector<double>{4}).ratio, 1);
  EXPECT_EQ(measure_drift(std::vector<double>{0, 0}).ratio, 1);
  EXPECT_THROW(measure_drift({}), std::invalid_argument);
}

TEST(Statistics, QuantilesInterpolate) {
  const std::vector<double> samples = {40, 10, 30, 20};
  EXPECT_DOUBLE_EQ(quantile(samples, 0), 10);
  EXPECT_DOUBLE_EQ(quantile(samples, 1), 40);
  EXPECT_DOUBLE_EQ(quantile(samples, 0.25), 17.5);
  EXPECT_DOUBLE_EQ(quantile(samples, 0.9), 37);
  EXPECT_THROW(quantile(samples, 1.5), std::invalid_argument);
  EXPECT_THROW(quantile(samples, std::nan("")), std::invalid_argument);
}

/// Ranks and coverages of 95% intervals from tables of the sign test.
TEST(Statistics, IntervalOfTheMedianMatchesTables) {
  struct Case {
    int n;
    double low, high, coverage;
  };
  const std::vector<Case> cases = {{5, 1, 5, 0.9375},   {6, 1, 6, 0.96875},   {9, 2, 8, 0.9609375},
                                   {10, 2, 9, 0.97852}, {20, 6, 15, 0.95861}, {100, 40, 61, 0.96480}};
  for (const Case& c : cases) {
    const Interval interval = median_interval(one_to(c.n));
    EXPECT_EQ(interval.low, c.low) << c.n;
    EXPECT_EQ(interval.high, c.high) << c.n;
    EXPECT_NEAR(interval.coverage, c.coverage, 1e-5) << c.n;
  }
}

TEST(Statistics, IntervalOfTheMedianOfManySamples) {
  // Normal approximation: n/2 -+ 1.96 sqrt(n)/2 = 500000 -+ 980.
  const Interval interval = median_interval(one_to(1'000'000));
  EXPECT_NEAR(interval.low, 499'020, 2);
  EXPECT_NEAR(interval.high, 500'981, 2);
  EXPECT_NEAR(interval.coverage, 0.95, 1e-3);
}

TEST(Statistics, EmptySamplesAreRefused) {
  const std::vector<double> none;
  EXPECT_THROW(mean(none), std::invalid_argument);
  EXPECT_THROW(median(none), std::invalid_argument);
  EXPECT_THROW(median_interval(none), std::invalid_argument);
  EXPECT_THROW(summarise(none), std::invalid_argument);
}

}  // namespace
}  // namespace rooflm::core
