// Views as text.
#include "report/views/view_format.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/printable.h"
#include "core/text_fit.h"
#include "report/charts/svg.h"
#include "report/page/json_parts.h"
#include "report/page/packed.h"

namespace rooflm::report {
namespace {

/// Titles and notes hold names of the record; what a terminal would obey in them becomes escapes.
std::string format_text(std::span<const View> views, bool is_markdown, const ChartLink& link,
                        std::size_t width) {
  std::string out;
  for (const View& view : views) {
    if (!out.empty()) out += "\n";
    out += is_markdown ? "## " + view.title + "\n\n" + view.note + "\n"
                       : core::wrap_lines("== " + view.title + "\n" + view.note + "\n", width);
    for (const ViewTable& table : view.tables) {
      out += "\n";
      const bool says_title = view.tables.size() > 1;
      if (says_title) out += is_markdown ? "### " + table.title + "\n\n" : "-- " + table.title + "\n";
      out += format_table(table.table, is_markdown ? Format::md : Format::table, width);
    }
    if (!is_markdown) continue;
    for (const Chart& chart : view.charts) {
      const std::string target = link(chart);
      if (target.empty()) continue;
      out += "\n![" + chart.title + "](" + target + ")\n";
      if (!chart.note.empty()) out += "\n" + chart.note + "\n";
    }
  }
  return core::printable_lines(out);
}

std::string format_csv(std::span<const View> views) {
  std::size_t count = 0;
  for (const View& view : views) count += view.tables.size();
  std::string out;
  for (const View& view : views) {
    for (const ViewTable& table : view.tables) {
      if (!out.empty()) out += "\n";
      if (count > 1) out += "# " + table.id + ": " + table.title + "\n";
      out += format_table(table.table, Format::csv);
    }
  }
  return out;
}

std::string format_json(std::span<const View> views) {
  Json all = Json::array();
  for (const View& view : views) {
    Json tables = Json::array();
    for (const ViewTable& table : view.tables) tables.push_back(json_table(table));
    Json charts = Json::array();
    for (const Chart& chart : view.charts) charts.push_back(json_chart(chart));
    all.push_back({{"name", view.name},
                   {"title", view.title},
                   {"note", view.note},
                   {"tables", std::move(tables)},
                   {"charts", std::move(charts)}});
  }
  return dump(all) + "\n";
}

}  // namespace

std::string data_link(const Chart& chart) { return "data:image/svg+xml;base64," + base64(svg_of(chart)); }

std::string format_views(std::span<const View> views, Format format, const ChartLink& link,
                         std::size_t width) {
  if (format == Format::csv) return format_csv(views);
  if (format == Format::json) return format_json(views);
  return format_text(views, format == Format::md, link, width);
}

}  // namespace rooflm::report
