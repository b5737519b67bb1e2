// Charts as data, drawn by svg.h and the report page.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rooflm::report {

struct ModelGraph;

enum class ChartKind : std::uint8_t {
  line,        ///< points joined in the order given; a single point is a mark
  points,      ///< marks only
  bar,         ///< grouped bars, one per series and category
  stacked,     ///< the series of a category on top of each other; areas when x is a number
  stacked100,  ///< as stacked, each category scaled to 100 %
  graph        ///< blocks and arrows: Chart::graph, without axes and series
};

struct Axis {
  std::string title;
  std::string unit{};  ///< "s", "byte", "flop/s", "share"; "" for counts
  bool is_log = false;
  /// Names instead of numbers: point x is an index into them.
  std::vector<std::string> categories{};
};

struct ChartPoint {
  double x = 0;
  double y = 0;
  std::optional<double> low{};  ///< of the confidence interval of y
  std::optional<double> high{};
  std::string label{};  ///< label of the point, if the axes do not identify it
};

struct Series {
  std::string name;
  std::vector<ChartPoint> points{};
  bool is_line = false;  ///< in a chart of points: joined, such as a roof
};

/// A value that y should not exceed, drawn as a line across the chart.
struct ChartLimit {
  double y = 0;
  std::string name{};
};

struct Chart {
  std::string id{};
  std::string title{};
  std::string note{};
  ChartKind kind = ChartKind::line;
  Axis x{};
  Axis y{};
  std::vector<Series> series{};
  std::optional<ChartLimit> limit{};
  std::shared_ptr<const ModelGraph> graph{};
};

/// "line", "points", "bar", "stacked", "stacked100", "graph".
std::string name_of(ChartKind kind);

/// Index of `category` on the axis, added when it is not there yet.
double category_index(Axis& axis, const std::string& category);
/// The series of that name, added when it is not there yet.
Series& series_named(Chart& chart, const std::string& name);

}  // namespace rooflm::report
