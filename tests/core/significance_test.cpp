// Rank test, ratio of medians and Holm's adjustment on data whose answers are published or follow by hand.
#include "core/significance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/rng.h"

namespace rooflm::core {
namespace {

std::vector<double> lognormal(std::uint64_t stream, std::size_t n, double sigma, double scale) {
  std::vector<double> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = scale * std::exp(sigma * normal(7, stream, i));
  return values;
}

TEST(MannWhitney, SmallSetsAreCountedExactly) {
  // 5 and 5, U = 2: 4 of 252 splits are as low, as many as high. U = 0: the lowest and the highest one.
  EXPECT_NEAR(mann_whitney_p(std::vector<double>{1, 2, 3, 4, 7}, std::vector<double>{5, 6, 8, 9, 10}),
              8.0 / 252, 1e-12);
  EXPECT_NEAR(mann_whitney_p(std::vector<double>{1, 2, 3}, std::vector<double>{4, 5, 6}), 0.1, 1e-12);
}

/// Hollander and Wolfe (1973), 69: permeability of membranes. R's wilcox.test gives W = 35 and 0.1272
/// one-sided.
TEST(MannWhitney, PermeabilityOfMembranes) {
  const std::vector<double> term = {0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46};
  const std::vector<double> early = {1.15, 0.88, 0.90, 0.74, 1.21};
  EXPECT_NEAR(mann_whitney_p(term, early), 0.2544, 5e-5);
}

/// Ozone in New York, May and August 1973 (R's airquality), with ties; wilcox.test gives 0.0001208 (normal,
/// corrected for continuity and ties).
TEST(MannWhitney, OzoneWithTies) {
  const std::vector<double> may = {41, 36, 12, 18, 28, 23, 19, 8, 7,  16, 11, 14,  18,
                                   14, 34, 6,  30, 11, 1,  11, 4, 32, 23, 45, 115, 37};
  const std::vector<double> august = {39, 9,  16, 78, 35, 66, 122, 89,  110, 44, 28,  65, 22,
                                      59, 23, 31, 44, 21, 9,  45,  168, 73,  76, 118, 84, 85};
  EXPECT_NEAR(mann_whitney_p(may, august), 0.0001208, 5e-8);
  EXPECT_DOUBLE_EQ(mann_whitney_p(may, august), mann_whitney_p(august, may));
}

TEST(MannWhitney, TiesInSmallSetsAreCountedExactly) {
  // Midranks 1.5 1.5 3.5 | 3.5 5 6: sums of three at least 4 away from 10.5: 6.5 twice, 14.5 twice, of 20
  // splits.
  EXPECT_NEAR(mann_whitney_p(std::vector<double>{1, 1, 2}, std::vector<double>{2, 3, 4}), 4.0 / 20, 1e-12);
  EXPECT_EQ(mann_whitney_p(std::vector<double>{5, 5, 5}, std::vector<double>{5, 5}), 1.0);
  const std::vector<double> equal(30, 2.5);
  EXPECT_EQ(mann_whitney_p(equal, equal), 1.0);
}

TEST(MannWhitney, NormalAndExactAgreeWhereTheyMeet) {
  // 40 samples are exact, 41 approximated: one more sample in the middle changes little.
  std::vector<double> a = lognormal(1, 20, 0.1, 1.0);
  const std::vector<double> b = lognormal(2, 20, 0.1, 1.06);
  const double exact = mann_whitney_p(a, b);
  a.push_back(median(a));
  EXPECT_NEAR(std::log(mann_whitney_p(a, b) / exact), 0.0, 0.3);
}

TEST(MannWhitney, AFewAgainstManyAreCounted) {
  // 4 below 40: 2 of C(44, 4) = 135751 splits. The normal approximation says 0.00117.
  const std::vector<double> few = {1, 2, 3, 4};
  std::vector<double> many;
  for (int i = 0; i < 40; ++i) many.push_back(10 + i);
  EXPECT_NEAR(mann_whitney_p(few, many), 2.0 / 135751, 1e-12);
  EXPECT_NEAR(mann_whitney_p(many, few), 2.0 / 135751, 1e-12);
  // 3 below all but the lowest of 98: sums of 1 3 4 or less are 1 2 3, 1 2 4, 1 2 5 and 1 3 4 of C(101, 3).
  many.assign(98, 0);
  for (int i = 0; i < 98; ++i) many[static_cast<std::size_t>(i)] = i == 0 ? 1.5 : 10 + i;
  EXPECT_NEAR(mann_whitney_p(std::vector<double>{1, 2, 3}, many), 8.0 / 166650, 1e-12);
  // One of three is tied with the lowest of 40: midranks 1, 2, 3.5; the same sum with either of the tied.
  const std::vector<double> tied = {1, 2, 10};
  many.clear();
  for (int i = 0; i < 40; ++i) many.push_back(10 + i);
  EXPECT_NEAR(mann_whitney_p(tied, many), 3.0 / 12341, 1e-12);
}

TEST(MannWhitney, NoSetsOfASizeGiveLessThanTheLeastP) {
  EXPECT_NEAR(least_p(4, 4), 2.0 / 70, 1e-15);
  EXPECT_NEAR(least_p(6, 6), 2.0 / 924, 1e-15);
  EXPECT_EQ(least_p(0, 9), 1);
  EXPECT_EQ(least_p(1, 1), 1);
  for (const auto& [n_a, n_b] : {std::pair{3, 7}, std::pair{4, 40}, std::pair{30, 30}, std::pair{4, 1200}}) {
    std::vector<double> a;
    std::vector<double> b;
    for (int i = 0; i < n_a; ++i) a.push_back(i);
    for (int i = 0; i < n_b; ++i) b.push_back(n_a + i);
    EXPECT_NEAR(mann_whitney_p(a, b) / least_p(a.size(), b.size()), 1, 1e-9) << n_a << " " << n_b;
  }
}

TEST(MannWhitney, RefusesWhatItCannotRank) {
  const std::vector<double> one = {1};
  EXPECT_THROW(mann_whitney_p(one, {}), std::invalid_argument);
  EXPECT_THROW(mann_whitney_p({}, one), std::invalid_argument);
  EXPECT_THROW(mann_whitney_p(one, std::vector<double>{std::nan("")}), std::invalid_argument);
}

TEST(MedianRatio, SurroundsTheRatioAndIsRepeatable) {
  const auto a = lognormal(3, 30, 0.02, 1.0);
  const auto b = lognormal(4, 30, 0.02, 1.25);
  const Interval interval = median_ratio_interval(a, b, 0.95, 11);
  EXPECT_LT(interval.low, median(b) / median(a));
  EXPECT_GT(interval.high, median(b) / median(a));
  // The standard error is about 1.25 * 0.02 * sqrt(pi / 2 * 2 / 30) = 0.008; the interval four of them wide.
  EXPECT_LT(interval.high - interval.low, 2 * 4 * 0.008);
  EXPECT_GT(interval.high - interval.low, 0.5 * 4 * 0.008);
  EXPECT_EQ(interval.coverage, 0.95);
  const Interval again = median_ratio_interval(a, b, 0.95, 11);
  EXPECT_EQ(interval.low, again.low);
  EXPECT_EQ(interval.high, again.high);
  EXPECT_NE(interval.low, median_ratio_interval(a, b, 0.95, 12).low);
}

TEST(MedianRatio, KnownDegenerateCases) {
  const std::vector<double> two(8, 2.0);
  const std::vector<double> three(8, 3.0);
  EXPECT_EQ(median_ratio_interval(two, three).low, 1.5);
  EXPECT_EQ(median_ratio_interval(two, three).high, 1.5);
  EXPECT_EQ(median_ratio_interval(two, std::vector<double>{3, 3, 3, 3, 3}).coverage, 0.95);
  EXPECT_EQ(median_ratio_interval(two, std::vector<double>{3, 3, 3, 3}).coverage, 0);
  EXPECT_THROW(median_ratio_interval(two, {}), std::invalid_argument);
  EXPECT_THROW(median_ratio_interval(two, std::vector<double>{1, 0}), std::invalid_argument);
  EXPECT_THROW(median_ratio_interval(two, std::vector<double>{1, std::nan("")}), std::invalid_argument);
  EXPECT_THROW(median_ratio_interval(two, three, 1.0), std::invalid_argument);
}

TEST(Holm, AdjustsByHand) {
  // Sorted .005 .011 .02 .04 times 4 3 2 1 = .02 .033 .04 .04; the maximum so far never falls.
  const auto adjusted = holm(std::vector<double>{0.04, 0.005, 0.02, 0.011});
  const std::vector<double> expected = {0.04, 0.02, 0.04, 0.033};
  ASSERT_EQ(adjusted.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(adjusted[i], expected[i], 1e-12) << i;
  const auto monotone = holm(std::vector<double>{0.01, 0.011, 0.9});
  EXPECT_NEAR(monotone[0], 0.03, 1e-12);
  EXPECT_NEAR(monotone[1], 0.03, 1e-12);
  EXPECT_EQ(monotone[2], 0.9);
  EXPECT_EQ(holm(std::vector<double>{0.6, 0.7})[0], 1.0);
  EXPECT_TRUE(holm({}).empty());
}

TEST(Holm, RefusesWhatIsNoProbability) {
  EXPECT_THROW(holm(std::vector<double>{0.1, 1.5}), std::invalid_argument);
  EXPECT_THROW(holm(std::vector<double>{std::numeric_limits<double>::quiet_NaN()}), std::invalid_argument);
}

}  // namespace
}  // namespace rooflm::core
