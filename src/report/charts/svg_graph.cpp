// The graph of a model as SVG.
#include "report/charts/svg_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "core/units.h"
#include "report/charts/svg_frame.h"
#include "report/page/model_graph.h"
#include "report/tables/table.h"
#include "report/views/view.h"

namespace rooflm::report {
namespace {

constexpr double kHeadPx = 56;    // title and headings of columns
constexpr double kRowPx = 38;     // from block to block
constexpr double kBoxPx = 28;     // height of a block
constexpr double kLanePx = 13;    // between arrows
constexpr double kSidePx = 14;    // beside the blocks, where there are no arrows
constexpr double kIndentPx = 12;  // of what is in a frame
constexpr double kBlocksPx = 780;
constexpr double kBarPx = 110;  // a whole step

constexpr const char* kGraphStyle =
    "<style>text{font:11px sans-serif;fill:#767676}.title{font-size:13px;font-weight:bold}"
    ".name{font-weight:bold}.right{text-anchor:end}"
    ".box{fill:#888;fill-opacity:.1;stroke:#888}.frame{fill:none;stroke:#888;stroke-dasharray:4 3}"
    ".arrow{fill:none;stroke:#888;stroke-width:1.4;marker-end:url(#head)}.back{stroke-dasharray:3 "
    "3}</style>\n"
    "<defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" "
    "markerHeight=\"7\" "
    "orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#888\"/></marker></defs>\n";

/// Right edges of the columns of figures, from the left edge of the blocks.
struct ColumnAt {
  const char* title;
  double right;
};
constexpr std::array<ColumnAt, 4> kFigureColumns{
    {{"forward", 345}, {"backward", 415}, {"FLOP", 485}, {"bytes", 555}}};
constexpr double kBoundAt = 568;
constexpr double kBarAt = kBlocksPx - kBarPx;

class GraphPicture {
 public:
  explicit GraphPicture(const Chart& chart)
      : chart_(&chart),
        graph_(chart.graph.get()),
        left_(kSidePx + kLanePx * static_cast<double>(lanes_of(*graph_, false))) {}

  [[nodiscard]] std::string svg() const {
    const double width = left_ + kBlocksPx + kSidePx + kLanePx * static_cast<double>(lanes_of(*graph_, true));
    const double height =
        top(graph_->nodes.size()) + 8 + kNoteLine * static_cast<double>(graph_->lacks.size());
    std::string out = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
        "height=\"{1:.0f}\" role=\"img\" aria-label=\"{2}\">\n{3}<text class=\"title\" x=\"{4:.0f}\" "
        "y=\"20\">{2}</text>\n",
        width, height, xml_text(chart_->title), kGraphStyle, left_);
    for (const auto& [title, right] : kFigureColumns)
      out += text("right", left_ + right, kHeadPx - 10, title);
    out += text("", left_ + kBoundAt, kHeadPx - 10, "bound by") +
           text("", left_ + kBarAt, kHeadPx - 10, "time in kernels");
    for (std::size_t i = 0; i < graph_->nodes.size(); ++i) out += node(i);
    for (const ModelEdge& edge : graph_->edges) out += arrow(edge);
    for (std::size_t i = 0; i < graph_->lacks.size(); ++i) {
      out += text("", left_, top(graph_->nodes.size()) + kNoteLine * static_cast<double>(i + 1) - 4,
                  graph_->lacks[i]);
    }
    return out + "</svg>\n";
  }

 private:
  static constexpr double kNoteLine = 16;

  static double top(std::size_t node) { return kHeadPx + kRowPx * static_cast<double>(node); }
  static double middle(std::size_t node) { return top(node) + kBoxPx / 2; }

  static std::string text(const char* style, double x, double y, const std::string& words) {
    return fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", style, x, y,
                       xml_text(words));
  }

  [[nodiscard]] double indent(const ModelNode& node) const {
    return left_ + kIndentPx * static_cast<double>(node.depth);
  }

  [[nodiscard]] std::string node(std::size_t i) const {
    const ModelNode& node = graph_->nodes[i];
    const double x = indent(node);
    const double width = kBlocksPx - 2 * (x - left_);
    const double inside = top(node.last) - top(i);
    const double spare = node.is_frame ? 4.0 : 0.0;
    std::string out = fmt::format(
        "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"4\"/>\n",
        node.is_frame ? "frame" : "box", x, top(i), width, inside + kBoxPx + spare);
    const std::string times = node.times > 1 ? fmt::format(" x {}", node.times) : "";
    const std::string whole = node.path + (node.source.empty() ? "" : ", " + node.source);
    const std::string title = node.is_frame ? "" : fmt::format("<title>{}</title>", xml_text(whole));
    out += fmt::format("<text class=\"name\" x=\"{:.1f}\" y=\"{:.1f}\">{}{}</text>\n", x + 8, middle(i) + 4,
                       xml_text(short_name(node) + times), title);
    if (!node.is_frame && !node.source.empty())
      out += text("right", left_ + kSourceRight, middle(i) + 4, short_source(node.source));
    return out + figures(i);
  }
  static constexpr double kSourceRight = 275;

  /// As much as fits before the figures: modules of other programs have long paths, of which the end differs.
  static std::string short_name(const ModelNode& node) {
    const std::size_t letters = node.source.empty() ? 36 : 24;
    if (node.name.size() <= letters) return node.name;
    return "..." + node.name.substr(node.name.size() - letters + 3);
  }
  /// The file's name and line: the folders are in the picture's title of it.
  static std::string short_source(const std::string& source) { return source.substr(source.rfind('/') + 1); }

  [[nodiscard]] std::string figures(std::size_t i) const {
    const ModelNode& node = graph_->nodes[i];
    const std::array<std::string, 4> texts = {format_cell(cell_of(time_of(node, "forward")), Show::seconds),
                                              format_cell(cell_of(time_of(node, "backward")), Show::seconds),
                                              format_cell(cell_of(node.flop), Show::si),
                                              format_cell(cell_of(node.bytes), Show::bytes)};
    std::string out;
    for (std::size_t c = 0; c < kFigureColumns.size(); ++c) {
      out += text("right", left_ + kFigureColumns.at(c).right, middle(i) + 4, texts.at(c));
    }
    if (!node.is_frame) out += text("", left_ + kBoundAt, middle(i) + 4, node.bound);
    return out + bar(i);
  }

  static std::optional<double> time_of(const ModelNode& node, const std::string& phase) {
    for (const Group& group : node.phases) {
      if (group.phase == phase) return group.work.measured_s();
    }
    return std::nullopt;
  }

  /// Shares of the phases one after another, the sum beside them.
  [[nodiscard]] std::string bar(std::size_t i) const {
    const ModelNode& node = graph_->nodes[i];
    if (node.is_frame || !node.time_share) return "";
    double x = left_ + kBarAt;
    std::string out;
    for (const Group& group : node.phases) {
      const double width = (kBarPx - kShareText) * group.time_share.value_or(0);
      const auto place = static_cast<std::size_t>(std::ranges::find(kPhases, group.phase) - kPhases.begin());
      out += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"10\" fill=\"{}\"/>\n", x,
                         middle(i) - 5, width, colour_of(place));
      x += width;
    }
    return out + text("", x + 4, middle(i) + 4, format_cell(*node.time_share, Show::percent));
  }
  static constexpr double kShareText = 50;

  /// From the side of one block to that of the other, or straight down.
  [[nodiscard]] std::string arrow(const ModelEdge& edge) const {
    if (!edge.lane) {
      const double x = left_ + kStraight;
      const std::size_t below = edge.from + 1;  // a frame, where the block is the first in it
      return fmt::format("<path class=\"arrow\" d=\"M{0:.1f} {1:.1f}V{2:.1f}\"/>\n", x,
                         top(edge.from) + kBoxPx, top(below));
    }
    const double out_px = kSidePx + kLanePx * static_cast<double>(*edge.lane) - kSidePx / 4;
    const double lane = edge.is_back ? left_ + kBlocksPx + out_px : left_ - out_px;
    const auto side = [&](std::size_t i) {
      const double x = indent(graph_->nodes[i]);
      return edge.is_back ? left_ + kBlocksPx - (x - left_) : x;
    };
    const double shift = edge.from == edge.to ? 4 : 0;
    return fmt::format("<path class=\"arrow{}\" d=\"M{:.1f} {:.1f}H{:.1f}V{:.1f}H{:.1f}\"/>\n",
                       edge.is_back ? " back" : "", side(edge.from), middle(edge.from) + 4 + shift, lane,
                       middle(edge.to) - 4 - shift, side(edge.to));
  }
  static constexpr double kStraight = 60;

  const Chart* chart_;
  const ModelGraph* graph_;
  double left_;
};

}  // namespace

std::string svg_of_graph(const Chart& chart) { return GraphPicture(chart).svg(); }

}  // namespace rooflm::report
