// How often intervals cover and tests alarm, on synthetic samples; every rate is printed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "core/significance.h"
#include "core/statistics.h"

namespace rooflm::core {
namespace {

enum class Shape : std::uint8_t { normal, lognormal };

std::string name_of(Shape shape) { return shape == Shape::normal ? "normal" : "lognormal"; }

/// Times around a median of 1: normal with a standard deviation of 2%, or lognormal with a long tail (sigma
/// 0.3).
std::vector<double> times(Shape shape, std::uint64_t stream, std::size_t n, double scale = 1) {
  std::vector<double> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    const double z = normal(shape == Shape::normal ? 2024 : 2025, stream, i);
    values[i] = scale * (shape == Shape::normal ? 1 + 0.02 * z : std::exp(0.3 * z));
  }
  return values;
}

/// Share of `trials` for which `holds(trial)`.
template <class Predicate>
double rate(int trials, Predicate holds) {
  int count = 0;
  for (int i = 0; i < trials; ++i) count += holds(static_cast<std::uint64_t>(i)) ? 1 : 0;
  return static_cast<double>(count) / trials;
}

/// Four standard errors of a rate around p.
double tolerance(double p, int trials) { return 4 * std::sqrt(p * (1 - p) / trials) + 1e-9; }

void print(const std::string& line) { fmt::print("[ measured ] {}\n", line); }

TEST(Rates, IntervalOfTheMedianCovers) {
  constexpr int kTrials = 10000;
  for (const Shape shape : {Shape::normal, Shape::lognormal}) {
    for (const std::size_t n : {5U, 6U, 10U, 20U, 50U}) {
      double promised = 0;
      const double covered = rate(kTrials, [&](std::uint64_t trial) {
        const Interval interval = median_interval(times(shape, trial, n));
        promised = interval.coverage;
        return interval.low <= 1 && 1 <= interval.high;
      });
      print(fmt::format("median's interval, {}, n {}: covers {:.4f}, promised {:.4f}", name_of(shape), n,
                        covered, promised));
      // Order statistics of any continuous distribution: the promise is kept to the letter.
      EXPECT_NEAR(covered, promised, tolerance(promised, kTrials)) << name_of(shape) << n;
      EXPECT_TRUE(n < 6 || promised >= 0.95) << n;
    }
  }
}

TEST(Rates, IntervalOfTheRatioCovers) {
  constexpr int kTrials = 400;
  constexpr double kRatio = 1.1;
  for (const Shape shape : {Shape::normal, Shape::lognormal}) {
    for (const std::size_t n : {3U, 5U, 10U, 30U}) {
      double promised = 0;
      const double covered = rate(kTrials, [&](std::uint64_t trial) {
        const Interval interval = median_ratio_interval(times(shape, 2 * trial, n),
                                                        times(shape, 2 * trial + 1, n, kRatio), 0.95, trial);
        promised = interval.coverage;
        return interval.low <= kRatio && kRatio <= interval.high;
      });
      print(fmt::format("interval of the ratio of medians, {}, n {}: covers {:.4f}, promised {:.2f}",
                        name_of(shape), n, covered, promised));
      EXPECT_GE(covered, promised - tolerance(promised, kTrials)) << name_of(shape) << n;
    }
  }
}

TEST(Rates, OutliersOfNormalSeriesAreRare) {
  constexpr int kTrials = 20000;
  for (const auto& [n, most] : {std::pair{3U, 0.0}, std::pair{5U, 0.0}, std::pair{6U, 0.08},
                                std::pair{10U, 0.05}, std::pair{30U, 0.01}}) {
    const double flagged = rate(kTrials, [n = n](std::uint64_t trial) {
      return summarise(times(Shape::normal, trial, n)).outliers > 0;
    });
    print(fmt::format("outliers, normal, n {}: in {:.4f} of the series", n, flagged));
    EXPECT_LE(flagged, most) << n;
  }
}

TEST(Rates, RankTestAlarmsFalselyAsOftenAsItSays) {
  constexpr int kTrials = 4000;
  for (const Shape shape : {Shape::normal, Shape::lognormal}) {
    for (const std::size_t n : {5U, 10U, 30U}) {
      std::vector<double> p;
      for (std::uint64_t i = 0; i < kTrials; ++i) {
        p.push_back(mann_whitney_p(times(shape, 2 * i, n), times(shape, 2 * i + 1, n)));
      }
      for (const double alpha : {0.05, 0.01}) {
        const double alarms = rate(kTrials, [&](std::uint64_t i) { return p[i] < alpha; });
        print(
            fmt::format("rank test, {}, n {}: false alarms {:.4f} at {}", name_of(shape), n, alarms, alpha));
        EXPECT_LE(alarms, alpha + tolerance(alpha, kTrials)) << name_of(shape) << n;
        // Few samples have few p-values, so that the level asked for may be far above the next one there is.
        const double least = n == 30 ? alpha - tolerance(alpha, kTrials) : 0;
        EXPECT_GE(alarms, least) << name_of(shape);
      }
    }
  }
}

TEST(Rates, RankTestFindsDifferences) {
  constexpr int kTrials = 1000;
  for (const auto& [shift, n, least] :
       {std::tuple{1.02, 10U, 0.4}, std::tuple{1.02, 20U, 0.75}, std::tuple{1.05, 10U, 0.99}}) {
    const double found = rate(kTrials, [&, shift = shift, n = n](std::uint64_t i) {
      return mann_whitney_p(times(Shape::normal, 2 * i, n), times(Shape::normal, 2 * i + 1, n, shift)) < 0.05;
    });
    print(fmt::format("rank test, noise 2%, {:.0f}% slower, n {}: found {:.3f} at 0.05", 100 * (shift - 1), n,
                      found));
    EXPECT_GE(found, least);
  }
}

TEST(Rates, HolmKeepsTheFamilyRate) {
  constexpr int kTrials = 1000;
  constexpr int kTests = 20;
  constexpr std::size_t kSamples = 10;
  int unadjusted = 0;
  const double family = rate(kTrials, [&](std::uint64_t trial) {
    std::vector<double> p;
    for (std::uint64_t test = 0; test < kTests; ++test) {
      const std::uint64_t stream = 2 * (trial * kTests + test);
      p.push_back(
          mann_whitney_p(times(Shape::normal, stream, kSamples), times(Shape::normal, stream + 1, kSamples)));
    }
    const auto is_alarm = [](double value) { return value < 0.05; };
    unadjusted += std::any_of(p.begin(), p.end(), is_alarm) ? 1 : 0;
    const std::vector<double> adjusted = holm(p);
    return std::any_of(adjusted.begin(), adjusted.end(), is_alarm);
  });
  print(fmt::format("20 equal pairs: one or more false alarms {:.4f} with Holm, {:.4f} without", family,
                    static_cast<double>(unadjusted) / kTrials));
  EXPECT_LE(family, 0.05 + tolerance(0.05, kTrials));
  EXPECT_GT(unadjusted, kTrials / 2);
}

}  // namespace
}  // namespace rooflm::core
