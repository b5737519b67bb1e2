// Summary statistics of repeated measurements: location, spread, and confidence in the median.
#pragma once

#include <cstddef>
#include <span>

namespace rooflm::core {

/// An interval and its coverage probability.
struct Interval {
  double low = 0;
  double high = 0;
  double coverage = 0;
};

/// Compares the second half of a series with its first half; the middle sample of an odd number is left out.
struct Drift {
  double ratio = 1;  ///< median of the second half / median of the first; 1 when the first is 0
  double p = 1;      ///< two-sided, of the rank test; too low if neighbouring samples are correlated
  /// p < 0.01. False positives: 1 % of independent series; 12 % if neighbours correlate by 0.5.
  [[nodiscard]] bool is_significant() const { return p < kAlpha; }
  static constexpr double kAlpha = 0.01;
};

/// Summary of a sample. Values have the unit of the samples; drift depends on their order.
struct Summary {
  std::size_t count = 0;
  double mean = 0;
  double std = 0;  ///< sample standard deviation (n - 1); 0 for a single sample
  double median = 0;
  double mad = 0;  ///< median absolute deviation from the median, unscaled
  double min = 0;
  double max = 0;
  std::size_t outliers = 0;  ///< samples further from the median than outlier_distance
  Interval median_ci;
  Drift drift;
};

// All of the following throw std::invalid_argument for an empty sample.

double mean(std::span<const double> samples);
/// sqrt(sum (x - mean)^2 / (n - 1)); 0 for a single sample.
double sample_std(std::span<const double> samples);
double median(std::span<const double> samples);
/// median |x - median(x)|.
double median_absolute_deviation(std::span<const double> samples);
/// Outlier threshold: 5 * 1.4826 MAD from the median; where more than half of the samples are equal, so that
/// the MAD is 0, 5 * 1.2533 times their mean distance from it. Both factors estimate the standard deviation
/// of a normal distribution. Infinite for fewer than 6 samples, whose MAD says little. About one in two
/// million of many normal samples is further; of series of 6, 10 and 30, 7 %, 4 % and 0.7 % have one that is
/// (tests/core/statistics_rates_test.cpp).
double outlier_distance(std::span<const double> samples);
/// Linear interpolation between the order statistics around position q (n - 1), for q in [0, 1] (type 7 of
/// Hyndman and Fan, 1996). std::invalid_argument for another q.
double quantile(std::span<const double> samples, double q);

/// Confidence interval of the median without assuming a distribution: [x_(k), x_(n+1-k)], k the largest for
/// which 1 - 2 P(Binomial(n, 1/2) < k) >= confidence (Conover, "Practical nonparametric statistics", 3.2).
/// With too few samples (fewer than 6 for 0.95) it is [min, max]; `coverage` says what is reached.
Interval median_interval(std::span<const double> samples, double confidence = 0.95);

/// Samples in order of time. Fewer than 10 samples cannot show a significant drift.
Drift measure_drift(std::span<const double> samples);

Summary summarise(std::span<const double> samples, double confidence = 0.95);

}  // namespace rooflm::core
