// Which columns of a table people see: those that they name, or the most important ones that fit.
#include "report/tables/column_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/names.h"
#include "core/text_fit.h"

namespace rooflm::report {
namespace {

/// What a table is read for: goes last.
constexpr std::array<std::string_view, 11> kKept = {"verdict",      "status",  "share",     "bound",
                                                    "ratio",        "name",    "device_s",  "step_ms_mean",
                                                    "tokens_per_s", "subject", "time_share"};
/// What says how sure a number is, where it is from, and sizes that the name of a model stands for: goes
/// first.
constexpr auto kSpare = std::to_array<std::string_view>(
    {"p", "allowance", "threads", "problem", "source", "library", "variant", "min_s", "max_s", "ci_low",
     "ci_high", "samples", "d_model", "d_ff", "layers", "heads", "needed_bytes", "launches"});
constexpr std::size_t kLeastColumns = 4;

bool is_spare(std::string_view key) {
  return key.ends_with("_std") || key.ends_with("std_s") || std::ranges::find(kSpare, key) != kSpare.end();
}

bool has_cell(const Table& table, const std::string& name) {
  return std::ranges::any_of(table.rows, [&](const Row& row) { return row.find(name) != nullptr; });
}

/// The column that is meant by `name`: that of the key, or, where no cell has such a key, that of the title.
const Column* find_column(const Table& table, const std::string& name) {
  const auto by_key = std::ranges::find(table.columns, name, &Column::key);
  if (by_key != table.columns.end()) return &*by_key;
  if (has_cell(table, name)) return nullptr;
  const auto by_title = std::ranges::find(table.columns, name, &Column::title);
  return by_title == table.columns.end() ? nullptr : &*by_title;
}

/// Widest text of each column, and whether it holds numbers.
struct Measured {
  std::vector<std::size_t> widths;
  std::vector<bool> is_number;
};

Measured measure(const Table& table) {
  Measured measured;
  for (const Column& column : table.columns) {
    std::size_t width = core::width_of(column.title);
    bool is_number = false;
    for (const Row& row : table.rows) {
      const Cell* cell = row.find(column.key);
      if (cell == nullptr) continue;
      width = std::max(width, core::width_of(format_cell(*cell, column.show)));
      is_number =
          is_number || std::holds_alternative<double>(*cell) || std::holds_alternative<std::int64_t>(*cell);
    }
    measured.widths.push_back(width);
    measured.is_number.push_back(is_number);
  }
  return measured;
}

/// Higher stays longer; `begins`: of the texts that rows begin with.
std::size_t importance(const Column& column, std::size_t index, bool begins, std::size_t count) {
  if (begins) return 3 * count;
  if (std::ranges::find(kKept, column.key) != kKept.end()) return 3 * count - 1 - index;
  const std::size_t by_place = count - index;
  return column.is_spare || is_spare(column.key) ? by_place : count + by_place;
}

void remove(Table& table, Measured& measured, std::size_t index) {
  const auto at = static_cast<std::ptrdiff_t>(index);
  table.columns.erase(table.columns.begin() + at);
  measured.widths.erase(measured.widths.begin() + at);
  measured.is_number.erase(measured.is_number.begin() + at);
}

/// The runs of a table stand above their rows where it is too wide: their names take no place then.
bool fits(const Table& table, const Measured& measured, std::size_t width) {
  const std::ptrdiff_t first = table.columns.front().is_group ? 1 : 0;
  const std::vector<std::size_t> widths(measured.widths.begin() + first, measured.widths.end());
  const std::vector<bool> is_number(measured.is_number.begin() + first, measured.is_number.end());
  return column_blocks(widths, is_number, width).size() == 1;
}

Table narrowed(Table table, std::size_t width) {
  if (table.columns.size() <= kLeastColumns || table.rows.empty()) return table;
  Measured measured = measure(table);
  const auto numbers = std::ranges::find(measured.is_number, true) - measured.is_number.begin();
  const std::size_t count = table.columns.size();
  std::vector<std::pair<std::size_t, std::string>> order;  // importance, key
  for (std::size_t i = 0; i < count; ++i) {
    order.emplace_back(importance(table.columns[i], i, static_cast<std::ptrdiff_t>(i) < numbers, count),
                       table.columns[i].key);
  }
  std::ranges::sort(order);
  std::vector<std::string> gone;
  for (const auto& [rank, key] : order) {
    if (rank == 3 * count || table.columns.size() <= kLeastColumns || fits(table, measured, width)) break;
    const auto found = std::ranges::find(table.columns, key, &Column::key);
    gone.push_back(found->title);
    remove(table, measured, static_cast<std::size_t>(found - table.columns.begin()));
  }
  if (!gone.empty()) {
    std::ranges::reverse(gone);
    table.notes.push_back(
        fmt::format("left out to fit: {} (--wide shows all, --columns chooses)", fmt::join(gone, ", ")));
  }
  return table;
}

}  // namespace

void check_columns(const ColumnChoice& choice, std::span<const Table* const> tables) {
  for (const std::string& name : choice.names) {
    std::vector<std::string> known;
    bool is_known = tables.empty();
    for (const Table* table : tables) {
      is_known = is_known || find_column(*table, name) != nullptr || has_cell(*table, name);
      for (const Column& column : table->columns) {
        if (std::ranges::find(known, column.key) == known.end()) known.push_back(column.key);
      }
    }
    if (!is_known) throw core::UsageError(core::unknown_name("column", name, known));
  }
}

Table choose_columns(Table table, const ColumnChoice& choice, Format format, std::size_t width) {
  if (choice.names.empty()) {
    const bool is_limited = format == Format::table && width > 0 && !choice.wide;
    return is_limited ? narrowed(std::move(table), width) : table;
  }
  std::vector<Column> columns;
  for (const std::string& name : choice.names) {
    if (const Column* column = find_column(table, name)) {
      columns.push_back(*column);
    } else if (has_cell(table, name)) {
      columns.push_back({.key = name, .title = name, .show = Show::brief});
    }
  }
  if (format == Format::csv || format == Format::json) {
    for (Row& row : table.rows) {
      Row chosen;
      for (const Column& column : columns) {
        const Cell* cell = row.find(column.key);
        chosen.set(column.key, cell == nullptr ? Cell() : *cell);  // scripts find what they asked for
      }
      row = std::move(chosen);
    }
  }
  table.columns = std::move(columns);
  return table;
}

}  // namespace rooflm::report
