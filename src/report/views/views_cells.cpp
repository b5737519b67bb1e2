// The view of studies that are no training steps: their cells as tables, and what was measured as charts.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "report/tables/micro_rows.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

constexpr std::string_view kTimes = "times_";  // how many times what this is

Show show_of(const std::string& unit) {
  if (unit == "s") return Show::seconds;
  if (unit == "B") return Show::bytes;
  if (unit == "share") return Show::percent;
  if (unit == "flop" || unit == "flop/s" || unit == "byte/s") return Show::si;
  return unit.empty() ? Show::plain : Show::brief;
}

/// The unit of a cell. Times that may be 0 are written without one (verify holds those with a unit to be
/// positive), but their keys say it.
std::string unit_of_cell(const record::Cell& cell) {
  return cell.unit.empty() && cell.value && cell.col.ends_with("_us") ? "us" : cell.unit;
}

/// "forward" of "forward_ms" in ms.
std::string name_of(const std::string& key, const std::string& unit) {
  const std::string ending = "_" + unit;
  return key.ends_with(ending) ? key.substr(0, key.size() - ending.size()) : key;
}

/// "forward [ms]"; a unit that the numbers say themselves is left out.
std::string title_of(const std::string& key, const std::string& unit, Show show) {
  if (key.starts_with(kTimes)) return "time / " + key.substr(kTimes.size());
  if (unit.empty() || (show != Show::brief && show != Show::si)) return key;
  const std::string name = name_of(key, unit);
  return name == unit ? name : fmt::format("{} [{}]", name, unit);
}

/// What the record says of the study: "study" is its title.
std::string study_line(const RecordFile& file, const std::string& key) {
  const auto found = std::find_if(file.environment.begin(), file.environment.end(),
                                  [&](const record::Environment& line) { return line.key == key; });
  return found == file.environment.end() ? "" : found->value;
}

/// The cells of one series as a table, in the order in which columns first appear.
struct SeriesTable {
  std::vector<Column> columns;
  std::map<std::int64_t, Row> rows;

  void add(const record::Cell& cell) {
    rows[cell.row].set(cell.col, cell.value ? Cell(*cell.value) : Cell(cell.text));
    const bool is_new = std::none_of(columns.begin(), columns.end(),
                                     [&](const Column& column) { return column.key == cell.col; });
    if (!is_new || is_detail(cell.col)) return;
    const std::string unit = unit_of_cell(cell);
    const Show show = cell.col.starts_with(kTimes) ? Show::fixed2 : show_of(unit);
    columns.push_back({.key = cell.col, .title = title_of(cell.col, unit, show), .show = show, .unit = unit});
  }
};

/// How a series is drawn: along `x`, one line for each combination of the other settings, one chart for each
/// of `y`.
struct Drawing {
  const char* series;
  const char* x;
  std::vector<std::string> y;
};
const std::vector<Drawing>& drawings() {
  static const std::vector<Drawing> all = {
      {"attention", "seq", {"forward_ms", "backward_ms", "peak_memory"}},
      {"gemm", "n", {"rate"}},
      {"fp8_steps", "step", {"gradient_underflowed", "gradient_saturated"}},
      {"comm", "size", {"time_us", "busbw"}}};
  return all;
}

/// Whether the setting is that of the axis in every row: the sides of square matmuls.
bool follows_axis(const SeriesTable& table, const std::string& setting, const std::string& x) {
  return std::ranges::all_of(table.rows, [&](const auto& numbered) {
    const Cell* at = numbered.second.find(x);
    const Cell* cell = numbered.second.find(setting);
    return at != nullptr && cell != nullptr && *at == *cell;
  });
}

/// Settings (columns without a unit) that differ between rows, but for the axis, what follows it and what was
/// derived.
std::vector<std::string> varying_settings(const SeriesTable& table, const std::string& x) {
  std::vector<std::string> names;
  for (const Column& column : table.columns) {
    const bool is_result = column.key == "status" || column.key.starts_with(kTimes) || is_launch(column.key);
    if (column.key == x || !unit_of(column).empty() || is_result) continue;
    if (follows_axis(table, column.key, x)) continue;
    std::set<std::string> values;
    for (const auto& [number, row] : table.rows) {
      const Cell* cell = row.find(column.key);
      if (cell != nullptr) values.insert(format_cell(*cell, Show::plain));
    }
    if (values.size() > 1) names.push_back(column.key);
  }
  return names;
}

std::string line_name(const Row& row, const std::vector<std::string>& settings) {
  std::string name;
  for (const std::string& setting : settings) {
    const Cell* cell = row.find(setting);
    if (cell == nullptr) continue;
    if (!name.empty()) name += ' ';
    if (!std::holds_alternative<std::string>(*cell)) name.append(setting).append("=");
    name += format_cell(*cell, Show::plain);
  }
  return name.empty() ? "all" : name;
}

/// `of`: the file, where there are several.
void add_charts(const std::string& series, const SeriesTable& table, const std::string& of, View& view) {
  for (const Drawing& drawing : drawings()) {
    if (series != drawing.series) continue;
    const auto settings = varying_settings(table, drawing.x);
    for (const std::string& y : drawing.y) {
      const auto column = std::find_if(table.columns.begin(), table.columns.end(),
                                       [&](const Column& c) { return c.key == y; });
      if (column == table.columns.end()) continue;
      Chart chart{.id = fmt::format("cells.{}.{}{}", series, y, of),
                  .title = fmt::format("{}: {}{}", series, column->title, of.empty() ? "" : ", " + of),
                  .kind = ChartKind::line,
                  .x = {.title = drawing.x, .is_log = true},
                  .y = {.title = name_of(y, column->unit),
                        .unit = column->unit == "B" ? "byte" : unit_of(*column),
                        .is_log = true}};
      for (const auto& [number, row] : table.rows) {
        if (row.number(y) <= 0) continue;  // out of memory
        series_named(chart, line_name(row, settings))
            .points.push_back({.x = row.number(drawing.x), .y = row.number(y)});
      }
      view.add(std::move(chart));
    }
  }
}

bool has_own_view(const std::string& series) {
  constexpr std::array kSeries = {record::kTrainingSeries, record::kServingSeries,
                                  record::kServingRequestSeries, record::kServingBatchSeries};
  return std::ranges::any_of(kSeries, [&](const char* own) { return series == own; });
}

void add_cells(const RecordSet& set, const ViewOptions& /*options*/, View& view) {
  for (std::size_t i = 0; i < set.files.size(); ++i) {
    const RecordFile& file = set.files[i];
    std::map<std::string, SeriesTable> tables;
    for (const record::Cell& cell : file.cells) {
      if (!has_own_view(cell.series)) tables[cell.series].add(cell);
    }
    for (auto& [name, cells] : tables) {
      const bool is_alone = set.files.size() == 1;
      add_charts(name, cells, is_alone ? "" : file.name, view);
      Table table{.columns = cells.columns, .rows = {}, .notes = {}};
      for (auto& [number, row] : cells.rows) table.rows.push_back(std::move(row));
      const std::string study = study_line(file, "study");
      const std::string title = study.empty()       ? name
                                : tables.size() > 1 ? fmt::format("{}: {}", study, name)
                                                    : study;
      view.add(is_alone ? "cells." + name : fmt::format("cells.{}.{}", name, i + 1),
               is_alone ? title : fmt::format("{} ({})", title, file.name), std::move(table));
    }
  }
}

constexpr std::array kCellsViews = {
    ViewDef{.place = 190,
            .info = {.name = "cells",
                     .title = "Studies",
                     .note = "Micro-benchmarks and studies, as recorded.",
                     .needs = "a study"},
            .of_all = add_cells},
};

}  // namespace

std::span<const ViewDef> views_cells() { return kCellsViews; }

}  // namespace rooflm::report
