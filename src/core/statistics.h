// Summaries of repeated measurements: location, spread, and how sure the median is.
#pragma once

#include <cstddef>
#include <span>

namespace rooflm::core {

/// An interval and the probability with which it covers what it estimates.
struct Interval {
  double low = 0;
  double high = 0;
  double coverage = 0;
};

/// What is said of a sample. Every value has the unit of the samples.
struct Summary {
  std::size_t count = 0;
  double mean = 0;
  double std = 0;  ///< of the sample (n - 1); 0 for a single one
  double median = 0;
  double mad = 0;  ///< median absolute deviation from the median, not scaled
  double min = 0;
  double max = 0;
  Interval median_ci;
};

// All of the following throw std::invalid_argument for an empty sample.

double mean(std::span<const double> samples);
/// sqrt(sum (x - mean)^2 / (n - 1)); 0 for a single sample.
double sample_std(std::span<const double> samples);
double median(std::span<const double> samples);
/// median |x - median(x)|.
double median_absolute_deviation(std::span<const double> samples);
/// Linear interpolation between the order statistics around position q (n - 1), for q in [0, 1] (type 7 of
/// Hyndman and Fan, 1996). std::invalid_argument for another q.
double quantile(std::span<const double> samples, double q);

/// Confidence interval of the median without assuming a distribution: [x_(k), x_(n+1-k)], k the largest for
/// which 1 - 2 P(Binomial(n, 1/2) < k) >= confidence (Conover, "Practical nonparametric statistics", 3.2).
/// With too few samples (fewer than 6 for 0.95) it is [min, max]; `coverage` says what is reached.
Interval median_interval(std::span<const double> samples, double confidence = 0.95);

Summary summarise(std::span<const double> samples, double confidence = 0.95);

}  // namespace rooflm::core
