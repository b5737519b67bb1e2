// Charts as data.
#include "report/charts/chart.h"

#include <algorithm>

namespace rooflm::report {

std::string name_of(ChartKind kind) {
  switch (kind) {
    case ChartKind::line:
      return "line";
    case ChartKind::points:
      return "points";
    case ChartKind::bar:
      return "bar";
    case ChartKind::stacked:
      return "stacked";
    case ChartKind::stacked100:
      return "stacked100";
    case ChartKind::graph:
      return "graph";
  }
  return "?";
}

double category_index(Axis& axis, const std::string& category) {
  const auto found = std::find(axis.categories.begin(), axis.categories.end(), category);
  const auto index = static_cast<double>(found - axis.categories.begin());
  if (found == axis.categories.end()) axis.categories.push_back(category);
  return index;
}

Series& series_named(Chart& chart, const std::string& name) {
  const auto found =
      std::find_if(chart.series.begin(), chart.series.end(), [&](const Series& s) { return s.name == name; });
  return found == chart.series.end() ? chart.series.emplace_back(Series{.name = name}) : *found;
}

}  // namespace rooflm::report
