// How time grows with size.
#include "report/runs/growth.h"

#include <algorithm>
#include <cmath>

namespace rooflm::report {

std::optional<Growth> fit_growth(std::span<const std::pair<double, double>> points) {
  const bool is_positive = std::all_of(points.begin(), points.end(),
                                       [](const auto& point) { return point.first > 0 && point.second > 0; });
  if (!is_positive || points.size() < 2) return std::nullopt;
  const auto n = static_cast<double>(points.size());
  double mean_x = 0;
  double mean_y = 0;
  for (const auto& [x, y] : points) {
    mean_x += std::log(x) / n;
    mean_y += std::log(y) / n;
  }
  double xx = 0;
  double xy = 0;
  double yy = 0;
  for (const auto& [x, y] : points) {
    const double dx = std::log(x) - mean_x;
    const double dy = std::log(y) - mean_y;
    xx += dx * dx;
    xy += dx * dy;
    yy += dy * dy;
  }
  constexpr double kSame = 1e-12;
  if (xx < kSame) return std::nullopt;
  Growth growth{.exponent = yy < kSame ? 0 : xy / xx};  // no growth but that of rounding
  const double residual = std::max(0.0, yy - growth.exponent * xy);
  growth.r2 = yy < kSame ? 1 : 1 - residual / yy;
  if (points.size() > 2) growth.std_error = std::sqrt(residual / (n - 2) / xx);
  return growth;
}

}  // namespace rooflm::report
