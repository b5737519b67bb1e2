// Whether neighbouring samples of a series resemble each other, so that they tell less than as many others
// would.
#pragma once

#include <span>

namespace rooflm::core {

/// How neighbouring samples of a series correlate, by their ranks.
struct Neighbours {
  double correlation =
      0;  ///< sum (r_i - m)(r_(i+1) - m) / sum (r_i - m)^2, midranks r with mean m; 0 if all are equal
  /// Of 10 samples and more: further above what independent samples have than 1 % of their series
  /// (2.326 / sqrt(n), and -1 / n on average).
  bool is_significant = false;

  /// By how much an interval of the median that assumes independent samples is too narrow: with AR(1) noise n
  /// samples tell as much as n (1 - r) / (1 + r), so sqrt((1 + r) / (1 - r)); 1 if nothing is significant.
  [[nodiscard]] double narrowness() const;
};

/// Samples in order of time. std::invalid_argument for a sample that is not a number.
Neighbours measure_neighbours(std::span<const double> samples);

}  // namespace rooflm::core
