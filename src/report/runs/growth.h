// How time grows with size: least squares of log time against log size.
#pragma once

#include <optional>
#include <span>
#include <utility>

namespace rooflm::report {

/// The fit of y = c x^exponent.
struct Growth {
  double exponent = 0;
  double std_error = 0;  ///< of the exponent; 0 for two points
  double r2 = 0;         ///< share of the variance of log y that the line explains; 1 when log y is constant
};

/// Fits log y against log x by least squares. Nothing unless there are two different x, and every x and y is
/// positive.
std::optional<Growth> fit_growth(std::span<const std::pair<double, double>> points);

}  // namespace rooflm::report
