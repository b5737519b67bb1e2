// Charts as SVG.
#include "report/charts/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <string>

#include "report/charts/svg_frame.h"
#include "report/charts/svg_graph.h"

namespace rooflm::report {
namespace {

constexpr double kWidth = 720;
constexpr double kHeight = 360;
constexpr double kLeft = 84;
constexpr double kTop = 36;
constexpr double kBottom = 56;
constexpr double kSlantedBottom = 100;
constexpr double kRight = 16;

constexpr const char* kStyle =
    "<style>text{font:11px sans-serif;fill:#767676}.title{font-size:13px;font-weight:bold}"
    ".grid{stroke:#888;stroke-opacity:.25}.frame{fill:none;stroke:#888}"
    ".line{fill:none;stroke-width:1.8}.range{stroke-width:1}"
    ".limit{stroke:#c0392b;stroke-width:1.5;stroke-dasharray:5 4}</style>\n";

bool is_stacked(const Chart& chart) {
  return chart.kind == ChartKind::stacked || chart.kind == ChartKind::stacked100;
}

bool is_drawable(const Chart& chart, const ChartPoint& point) {
  if (!std::isfinite(point.x) || !std::isfinite(point.y)) return false;
  return (!chart.x.is_log || point.x > 0) && (!chart.y.is_log || point.y > 0);
}

/// The chart with only the points that can be drawn; of stacked100, the heights of a category add up to 1.
/// Stacks stand on 0, which a log axis does not have.
Chart drawable(Chart chart) {
  if (is_stacked(chart)) chart.y.is_log = false;
  for (Series& series : chart.series) {
    std::erase_if(series.points, [&](const ChartPoint& point) { return !is_drawable(chart, point); });
  }
  if (chart.kind != ChartKind::stacked100) return chart;
  std::map<double, double> sums;
  for (const Series& series : chart.series) {
    for (const ChartPoint& point : series.points) sums[point.x] += point.y;
  }
  for (Series& series : chart.series) {
    for (ChartPoint& point : series.points) point.y /= sums[point.x] == 0 ? 1 : sums[point.x];
  }
  return chart;
}

/// Pads a range: by a part of it, on log axes by a factor; a single value gets some room.
Extent padded(double low, double high, bool is_log) {
  if (is_log) return {.low = low / 1.3, .high = high * 1.3};
  if (low == high) return {.low = low - 0.5, .high = high + 0.5};
  return {.low = low, .high = high};
}

Extent x_extent(const Chart& chart) {
  double low = std::numeric_limits<double>::max();
  double high = std::numeric_limits<double>::lowest();
  for (const Series& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      low = std::min(low, point.x);
      high = std::max(high, point.x);
    }
  }
  if (!chart.x.categories.empty()) {
    return {.low = -0.5, .high = static_cast<double>(chart.x.categories.size()) - 0.5};
  }
  return padded(low, high, chart.x.is_log);
}

Extent y_extent(const Chart& chart) {
  if (chart.kind == ChartKind::stacked100) return {.low = 0, .high = 1};
  double low = std::numeric_limits<double>::max();
  double high = 0;
  std::map<double, double> sums;
  for (const Series& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      double& sum = sums[point.x];
      sum = is_stacked(chart) ? sum + point.y : std::max(sum, point.high.value_or(point.y));
      low = std::min(low, point.low.value_or(point.y));
      high = std::max(high, sum);
    }
  }
  if (chart.limit) high = std::max(high, chart.limit->y);
  if (chart.y.is_log) return padded(low > 0 ? low : high / 10, high, true);
  constexpr double kRoom = 1.05;
  low = std::min(low, 0.0);
  return high <= low ? Extent{.low = low, .high = low + 1} : Extent{.low = low, .high = high * kRoom};
}

/// What draws the series: both scales and where a bar starts.
struct Pen {
  Scale x, y;
  double base_px;    ///< of the value 0, or the bottom on a log axis
  double column_px;  ///< width of a category
};

std::string bars(const Chart& chart, const Pen& pen) {
  constexpr double kFilled = 0.72;
  const bool is_stack = is_stacked(chart);
  const double slots = is_stack ? 1 : static_cast<double>(chart.series.size());
  const double width = pen.column_px * kFilled / slots;
  std::map<double, double> below;
  std::string out;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    for (const ChartPoint& point : chart.series[i].points) {
      const double shift = is_stack ? 0 : static_cast<double>(i);
      const double left = pen.x.px(point.x) - pen.column_px * kFilled / 2 + shift * width;
      double from = pen.base_px;
      double to = pen.y.px(point.y);
      if (is_stack) {
        from = pen.y.px(below[point.x]);
        to = pen.y.px(below[point.x] += point.y);
      }
      out += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n",
                         left, std::min(from, to), width, std::abs(from - to), colour_of(i));
    }
  }
  return out;
}

/// Areas on top of each other over a number.
std::string areas(const Chart& chart, const Pen& pen) {
  std::map<double, double> below;
  std::string out;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    std::string upper;
    std::string lower;
    for (const ChartPoint& point : chart.series[i].points) {
      const double x = pen.x.px(point.x);
      lower.insert(0, fmt::format("{:.1f},{:.1f} ", x, pen.y.px(below[point.x])));
      upper += fmt::format("{:.1f},{:.1f} ", x, pen.y.px(below[point.x] += point.y));
    }
    out += fmt::format("<polygon points=\"{}{}\" fill=\"{}\"/>\n", upper, lower, colour_of(i));
  }
  return out;
}

std::string marks(const Chart& chart, const Pen& pen) {
  constexpr std::size_t kFewPoints = 40;
  std::string out;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const Series& series = chart.series[i];
    const bool is_joined = series.is_line || chart.kind == ChartKind::line;
    std::string path;
    std::string dots;
    for (const ChartPoint& point : series.points) {
      const double x = pen.x.px(point.x);
      path += fmt::format("{:.1f},{:.1f} ", x, pen.y.px(point.y));
      dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", x, pen.y.px(point.y),
                          colour_of(i));
      if (!point.low || !point.high || (chart.y.is_log && *point.low <= 0)) continue;
      dots += fmt::format(
          "<line class=\"range\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" "
          "stroke=\"{3}\"/>\n",
          x, pen.y.px(*point.low), pen.y.px(*point.high), colour_of(i));
    }
    if (is_joined)
      out += fmt::format("<polyline class=\"line\" points=\"{}\" stroke=\"{}\"/>\n", path, colour_of(i));
    const bool shows_dots = !series.is_line && (!is_joined || series.points.size() <= kFewPoints);
    if (shows_dots) out += dots;
  }
  return out;
}

std::string limit_line(const ChartLimit& limit, const Pen& pen, const PlotArea& area) {
  constexpr double kAboveLine = 4;
  const double y = pen.y.px(limit.y);
  return fmt::format(
      "<line class=\"limit\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" y2=\"{1:.1f}\"/>\n"
      "<text x=\"{0:.1f}\" y=\"{3:.1f}\">{4}</text>\n",
      area.left, y, area.left + area.width, y - kAboveLine, xml_text(limit.name));
}

std::string plot(const Chart& chart, const PlotArea& area) {
  const Extent x = x_extent(chart);
  const Extent y = y_extent(chart);
  const Scale y_scale(y, chart.y.is_log, area.top + area.height, area.top);
  const double columns = static_cast<double>(std::max<std::size_t>(1, chart.x.categories.size()));
  const Pen pen{.x = Scale(x, chart.x.is_log, area.left, area.left + area.width),
                .y = y_scale,
                .base_px = chart.y.is_log ? area.top + area.height : y_scale.px(0),
                .column_px = area.width / columns};
  std::string out = svg_axes(chart, area, x, y);
  const bool has_columns = !chart.x.categories.empty();
  const bool has_bars = has_columns && (chart.kind == ChartKind::bar || is_stacked(chart));
  out += has_bars ? bars(chart, pen) : is_stacked(chart) ? areas(chart, pen) : marks(chart, pen);
  return chart.limit ? out + limit_line(*chart.limit, pen, area) : out;
}

}  // namespace

std::string svg_of(const Chart& given) {
  if (given.graph) return svg_of_graph(given);
  const Chart chart = drawable(given);
  const bool has_points = std::any_of(chart.series.begin(), chart.series.end(),
                                      [](const Series& series) { return !series.points.empty(); });
  constexpr double kLegendLinePx = 16;
  const double legend_px = legend_width(chart);
  const double bottom = has_slanted_labels(chart, kWidth - kLeft - kRight) ? kSlantedBottom : kBottom;
  const double height =
      std::max(kHeight, kTop + bottom + kLegendLinePx * static_cast<double>(chart.series.size()));
  const PlotArea area{
      .left = kLeft, .top = kTop, .width = kWidth - kLeft - kRight, .height = height - kTop - bottom};
  const double width = kWidth + legend_px;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" "
      "role=\"img\" aria-label=\"{2}\">\n{3}<text class=\"title\" x=\"{4:.0f}\" y=\"20\">{2}</text>\n",
      width, height, xml_text(chart.title), kStyle, kLeft);
  if (has_points) {
    out += plot(chart, area) + svg_legend(chart, kWidth, kTop);
  } else {
    out += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\">nothing to draw</text>\n", kLeft, height / 2);
  }
  return out + "</svg>\n";
}

}  // namespace rooflm::report
