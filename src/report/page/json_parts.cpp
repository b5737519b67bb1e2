// Tables and charts as JSON.
#include "report/page/json_parts.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

namespace rooflm::report {
namespace {

Json json_axis(const Axis& axis) {
  return {{"title", axis.title}, {"unit", axis.unit}, {"log", axis.is_log}};
}

Json json_point(const ChartPoint& point, const Axis& x) {
  const bool is_category = point.x >= 0 && point.x < static_cast<double>(x.categories.size());
  Json values = Json::array();
  values.push_back(is_category ? Json(x.categories[static_cast<std::size_t>(point.x)])
                               : json_number(point.x));
  values.push_back(json_number(point.y));
  if ((point.low && point.high) || !point.label.empty()) {
    values.push_back(json_number(point.low));
    values.push_back(json_number(point.high));
  }
  if (!point.label.empty()) values.push_back(point.label);
  return values;
}

}  // namespace

Json json_number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json json_number(const std::optional<double>& value) { return value ? json_number(*value) : Json(); }

Json json_cell(const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* flag = std::get_if<bool>(&cell)) return *flag;
  if (const auto* integer = std::get_if<std::int64_t>(&cell)) return *integer;
  const auto* number = std::get_if<double>(&cell);
  return number == nullptr ? Json() : json_number(*number);
}

Json json_table(const ViewTable& table) {
  Json columns = Json::array();
  for (const Column& column : table.table.columns) {
    columns.push_back({{"key", column.key}, {"title", column.title}, {"unit", unit_of(column)}});
  }
  Json rows = Json::array();
  for (const Row& row : table.table.rows) {
    Json values = Json::object();
    for (const auto& [key, cell] : row.cells()) values[key] = json_cell(cell);
    rows.push_back(std::move(values));
  }
  std::string note;
  for (const std::string& line : table.table.notes) note += (note.empty() ? "" : "\n") + line;
  return {{"id", table.id},
          {"title", table.title},
          {"note", note},
          {"columns", std::move(columns)},
          {"rows", std::move(rows)}};
}

Json json_chart(const Chart& chart) {
  Json series = Json::array();
  for (const Series& one : chart.series) {
    Json points = Json::array();
    for (const ChartPoint& point : one.points) points.push_back(json_point(point, chart.x));
    series.push_back({{"name", one.name}, {"points", std::move(points)}, {"line", one.is_line}});
  }
  Json json = {{"id", chart.id},
               {"title", chart.title},
               {"note", chart.note},
               {"kind", name_of(chart.kind)},
               {"x", json_axis(chart.x)},
               {"y", json_axis(chart.y)},
               {"series", std::move(series)}};
  if (chart.limit) json["limit"] = {{"y", json_number(chart.limit->y)}, {"name", chart.limit->name}};
  if (chart.graph) json["graph"] = json_graph(*chart.graph);
  return json;
}

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace rooflm::report
