// One view of records: tables and charts with a sentence on how to read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/ratio.h"
#include "report/charts/chart.h"
#include "report/tables/table.h"

namespace rooflm::report {

struct RecordSet;

struct ViewTable {
  std::string id;  ///< "blocks", "blocks.parts"
  std::string title;
  Table table;
};

struct View {
  std::string name;
  std::string title;
  std::string note;  ///< how to read it
  std::vector<ViewTable> tables{};
  std::vector<Chart> charts{};

  /// Adds a table, unless it has no rows.
  void add(std::string id, std::string table_title, Table table) {
    if (!table.rows.empty()) tables.push_back({std::move(id), std::move(table_title), std::move(table)});
  }
  /// Adds a chart, unless it has nothing to draw.
  void add(Chart chart) {
    if (!chart.series.empty() || chart.graph) charts.push_back(std::move(chart));
  }
};

/// Title of the x axis of charts that compare runs: those of several runs become one chart.
inline constexpr const char* kRunAxis = "run";

struct ViewOptions {
  std::size_t top = 0;             ///< most rows of long tables (ops, holders); 0: all
  const RecordSet* set = nullptr;  ///< what the run is shown among; make_view says so
};

/// A number, or nothing.
inline Cell cell_of(const std::optional<double>& value) { return value ? Cell(*value) : Cell(); }

/// A number that counts something, without its fraction, or nothing. What no integer can hold stays as it is:
/// records of others hold any number.
inline Cell whole(const std::optional<double>& value) {
  constexpr double kBeyond = 0x1p63;
  const bool fits = value && *value >= -kBeyond && *value < kBeyond;
  return fits ? Cell(static_cast<std::int64_t>(*value)) : cell_of(value);
}
using core::ratio_of;

}  // namespace rooflm::report
