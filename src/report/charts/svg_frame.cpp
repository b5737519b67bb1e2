// The frame of an SVG chart.
#include "report/charts/svg_frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <vector>

#include "report/charts/axis_ticks.h"

namespace rooflm::report {
namespace {

constexpr double kLetterPx = 6.2;
constexpr double kLegendLinePx = 16;
constexpr std::size_t kLegendLetters = 36;

/// Okabe and Ito's colours, told apart without full colour vision, then ten of Tol's.
constexpr std::array<const char*, 16> kColours = {
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8a7a00", "#aa3377",
    "#44aa99", "#777777", "#332288", "#b8c32c", "#661100", "#117733", "#ddcc77", "#88a0e0"};

std::string cut(const std::string& text, std::size_t letters) {
  return text.size() <= letters ? text : text.substr(0, letters - 3) + "...";
}

/// Ticks carry the unit, but for the one that has no short name.
std::string title_of(const Axis& axis) {
  return axis.unit == "flop/byte" ? axis.title + " [FLOP/B]" : axis.title;
}

std::string y_axis(const Chart& chart, const PlotArea& area, const Extent& y) {
  const bool is_share = chart.kind == ChartKind::stacked100;
  const std::string unit = is_share ? "share" : chart.y.unit;
  const Scale scale(y, chart.y.is_log, area.top + area.height, area.top);
  constexpr int kTicks = 5;
  std::string out;
  for (const Tick& tick :
       chart.y.is_log ? log_ticks(y.low, y.high, unit) : linear_ticks(y.low, y.high, kTicks, unit)) {
    const double at = scale.px(tick.value);
    out += fmt::format("<line class=\"grid\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n",
                       area.left, at, area.left + area.width, at);
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", area.left - 6,
                       at + 4, xml_text(tick.label));
  }
  return out + fmt::format(
                   "<text transform=\"translate(14 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
                   area.top + area.height / 2, xml_text(title_of(chart.y)));
}

/// Few sizes of a sweep are ticks themselves; else round values are.
std::vector<Tick> x_ticks(const Chart& chart, const Extent& x) {
  constexpr int kTicks = 7;
  constexpr std::size_t kFewValues = 8;
  if (!chart.x.is_log) return linear_ticks(x.low, x.high, kTicks, chart.x.unit);
  std::set<double> values;
  for (const Series& series : chart.series) {
    for (const ChartPoint& point : series.points) values.insert(point.x);
  }
  if (values.size() > kFewValues || chart.kind != ChartKind::line)
    return log_ticks(x.low, x.high, chart.x.unit);
  std::vector<Tick> ticks;
  for (const double value : values)
    ticks.push_back({.value = value, .label = tick_label(value, chart.x.unit)});
  return ticks;
}

/// Names below the columns: slanted when they would touch.
std::string category_labels(const Chart& chart, const PlotArea& area) {
  const std::size_t count = chart.x.categories.size();
  const double column = area.width / static_cast<double>(count);
  const bool is_slanted = has_slanted_labels(chart, area.width);
  constexpr std::size_t kLetters = 24;
  std::string out;
  for (std::size_t i = 0; i < count; ++i) {
    const double x = area.left + (static_cast<double>(i) + 0.5) * column;
    const double y = area.top + area.height + 16;
    const std::string name = xml_text(cut(chart.x.categories[i], kLetters));
    out +=
        is_slanted
            ? fmt::format(
                  "<text transform=\"translate({:.1f} {:.1f}) rotate(-30)\" text-anchor=\"end\">{}</text>\n",
                  x + 4, y, name)
            : fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", x, y, name);
  }
  return out;
}

std::string x_axis(const Chart& chart, const PlotArea& area, const Extent& x) {
  const double bottom = area.top + area.height;
  if (!chart.x.categories.empty()) return category_labels(chart, area);
  const Scale scale(x, chart.x.is_log, area.left, area.left + area.width);
  std::string out;
  for (const Tick& tick : x_ticks(chart, x)) {
    const double at = scale.px(tick.value);
    out += fmt::format("<line class=\"grid\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", at,
                       area.top, at, bottom);
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", at, bottom + 16,
                       xml_text(tick.label));
  }
  return out + fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                           area.left + area.width / 2, bottom + 36, xml_text(title_of(chart.x)));
}

}  // namespace

Scale::Scale(Extent extent, bool is_log, double from_px, double to_px)
    : extent_(extent), is_log_(is_log), from_px_(from_px), to_px_(to_px) {
  if (is_log_) extent_ = {.low = std::log10(extent.low), .high = std::log10(extent.high)};
}

double Scale::px(double value) const {
  const double at = is_log_ ? std::log10(value) : value;
  return from_px_ + (at - extent_.low) / (extent_.high - extent_.low) * (to_px_ - from_px_);
}

std::string xml_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // Control characters are no XML.
        out += static_cast<unsigned char>(c) < 0x20U ? ' ' : c;
    }
  }
  return out;
}

bool has_slanted_labels(const Chart& chart, double width) {
  std::size_t longest = 0;
  for (const std::string& name : chart.x.categories) longest = std::max(longest, name.size());
  return static_cast<double>(longest * chart.x.categories.size()) * kLetterPx > width;
}

std::string colour_of(std::size_t series) { return kColours.at(series % kColours.size()); }

std::string svg_axes(const Chart& chart, const PlotArea& area, const Extent& x, const Extent& y) {
  return x_axis(chart, area, x) + y_axis(chart, area, y) +
         fmt::format("<rect class=\"frame\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n",
                     area.left, area.top, area.width, area.height);
}

std::string svg_legend(const Chart& chart, double left, double top) {
  std::string out;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const double y = top + static_cast<double>(i) * kLegendLinePx;
    out += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"10\" height=\"10\" fill=\"{}\"/>\n", left, y,
                       colour_of(i));
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", left + 15, y + 9,
                       xml_text(cut(chart.series[i].name, kLegendLetters)));
  }
  return out;
}

double legend_width(const Chart& chart) {
  std::size_t letters = 0;
  for (const Series& series : chart.series)
    letters = std::max(letters, std::min(series.name.size(), kLegendLetters));
  constexpr double kMarkPx = 25;
  return kMarkPx + static_cast<double>(letters) * kLetterPx;
}

}  // namespace rooflm::report
