// Series whose neighbours resemble each other are told from independent ones.
#include "core/correlation.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "core/rng.h"
#include "core/statistics.h"

namespace rooflm::core {
namespace {

/// AR(1) noise of a standard deviation of 2 % around 1, neighbours correlated by `rho`.
std::vector<double> correlated(double rho, std::uint64_t stream, std::size_t n) {
  std::vector<double> values;
  double z = normal(31, stream, 0);
  for (std::size_t i = 1; i <= n; ++i) {
    values.push_back(1 + 0.02 * z);
    z = rho * z + std::sqrt(1 - rho * rho) * normal(31, stream, i);
  }
  return values;
}

TEST(Neighbours, ByHand) {
  // Ranks less their mean: -1.5 -0.5 0.5 1.5; neighbours 0.75 - 0.25 + 0.75 of 5.
  EXPECT_DOUBLE_EQ(measure_neighbours(std::vector<double>{1, 2, 30, 400}).correlation, 0.25);
  EXPECT_FALSE(measure_neighbours(std::vector<double>{1, 2, 3, 4}).is_significant) << "too few";
  // Midranks of 1 1 2 2: -1 -1 1 1; 1 - 1 + 1 of 4.
  EXPECT_DOUBLE_EQ(measure_neighbours(std::vector<double>{1, 1, 2, 2}).correlation, 0.25);
  EXPECT_EQ(measure_neighbours(std::vector<double>(20, 5.0)).correlation, 0);
  EXPECT_EQ(measure_neighbours({}).narrowness(), 1);
  EXPECT_DOUBLE_EQ((Neighbours{.correlation = 0.6, .is_significant = true}).narrowness(), 2);
  EXPECT_EQ((Neighbours{.correlation = 0.6, .is_significant = false}).narrowness(), 1);
  EXPECT_THROW(measure_neighbours(std::vector<double>{1, std::numeric_limits<double>::quiet_NaN()}),
               std::invalid_argument);
}

TEST(Neighbours, CorrelatedSeriesAreFoundAndIndependentOnesAreNot) {
  constexpr int kTrials = 2000;
  for (const std::size_t n : {10U, 30U, 200U}) {
    for (const double rho : {0.0, 0.5, 0.9}) {
      int found = 0;
      int covered = 0;
      for (std::uint64_t trial = 0; trial < kTrials; ++trial) {
        const auto series = correlated(rho, trial, n);
        found += measure_neighbours(series).is_significant ? 1 : 0;
        const Interval interval = median_interval(series);
        covered += interval.low <= 1 && 1 <= interval.high ? 1 : 0;
      }
      const double rate = static_cast<double>(found) / kTrials;
      fmt::print(
          "[ measured ] neighbours, rho {}, n {}: found {:.3f}, interval of the median covers {:.3f}\n", rho,
          n, rate, static_cast<double>(covered) / kTrials);
      if (rho == 0) {
        EXPECT_LE(rate, 0.02) << n;
      }
      if (rho > 0 && n == 200) {
        EXPECT_GE(rate, 0.99) << rho;
      }
    }
  }
}

}  // namespace
}  // namespace rooflm::core
