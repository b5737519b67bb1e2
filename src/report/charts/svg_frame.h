// The frame of an SVG chart: where values lie on the page, axes, grid, legend.
#pragma once

#include <cstddef>
#include <string>

#include "report/charts/chart.h"

namespace rooflm::report {

/// Range of the values on an axis.
struct Extent {
  double low = 0;
  double high = 1;
};

/// The area that the values fill, in pixels.
struct PlotArea {
  double left = 0, top = 0, width = 0, height = 0;
};

/// Maps values to pixels.
class Scale {
 public:
  Scale(Extent extent, bool is_log, double from_px, double to_px);
  [[nodiscard]] double px(double value) const;

 private:
  Extent extent_;
  bool is_log_;
  double from_px_, to_px_;
};

/// Text with &, <, > and quotes written so that XML keeps them.
std::string xml_text(const std::string& text);
/// Whether the names below columns of a plot of that width would touch, so that they are slanted.
bool has_slanted_labels(const Chart& chart, double width);
/// Colour of the series of that number; repeats after twelve.
std::string colour_of(std::size_t series);
/// Axes with grid, ticks, labels and titles.
std::string svg_axes(const Chart& chart, const PlotArea& area, const Extent& x, const Extent& y);
/// A column of colour and name per series, right of the plot.
std::string svg_legend(const Chart& chart, double left, double top);
/// Pixels that the longest name of the legend needs, with its colour; at most 260.
double legend_width(const Chart& chart);

}  // namespace rooflm::report
