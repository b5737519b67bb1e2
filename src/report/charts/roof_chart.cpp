// The roofs of a log-log roofline picture.
#include "report/charts/roof_chart.h"

#include <algorithm>
#include <limits>

#include "report/model/work_figures.h"

namespace rooflm::report {

void add_roofs(const RunData& run, Chart& chart) {
  const auto [rates, bandwidths] = roof_lines(run);
  if (chart.series.empty() || rates.empty() || bandwidths.empty()) return;
  double low_x = std::numeric_limits<double>::max();
  double high_x = 0;
  const auto include = [&](double x) {
    low_x = std::min(low_x, x);
    high_x = std::max(high_x, x);
  };
  for (const Series& series : chart.series) {
    for (const ChartPoint& point : series.points) include(point.x);
  }
  const double top = rates.front().value;
  for (const auto& [name, rate] : rates) {
    for (const auto& [level, bandwidth] : bandwidths) include(rate / bandwidth);
  }
  for (const auto& [level, bandwidth] : bandwidths) {
    const double ridge = top / bandwidth;
    chart.series.push_back({.name = level,
                            .points = {{.x = low_x, .y = low_x * bandwidth}, {.x = ridge, .y = top}},
                            .is_line = true});
  }
  for (const auto& [name, rate] : rates) {
    double ridge = high_x;
    for (const auto& [level, bandwidth] : bandwidths) ridge = std::min(ridge, rate / bandwidth);
    chart.series.push_back(
        {.name = name, .points = {{.x = ridge, .y = rate}, {.x = high_x, .y = rate}}, .is_line = true});
  }
}

}  // namespace rooflm::report
