// Rows of named values, printed as a table for people or as data for programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/variant.h"

namespace rooflm::report {

/// Nothing (shown as "-", null in JSON), a number, a truth value or a text.
using Cell = core::Variant<std::monostate, bool, std::int64_t, double, std::string>;

/// Named values in the order in which they were set.
class Row {
 public:
  /// Makes room for so many values.
  void reserve(std::size_t cells) { cells_.reserve(cells); }
  /// Sets a value, replacing the one of the same key.
  void set(std::string_view key, Cell value);
  /// Adds a value whose key is new.
  void append(std::string_view key, Cell value) { cells_.emplace_back(key, std::move(value)); }
  /// As set, before all others when the key is new.
  void set_first(std::string_view key, Cell value);
  /// nullptr when absent.
  [[nodiscard]] const Cell* find(std::string_view key) const;
  /// The number under `key`, integers included; 0 when there is none.
  [[nodiscard]] double number(std::string_view key) const;
  /// The text under `key`; "" when there is none.
  [[nodiscard]] std::string text(std::string_view key) const;
  [[nodiscard]] const std::vector<std::pair<std::string, Cell>>& cells() const { return cells_; }

 private:
  std::vector<std::pair<std::string, Cell>> cells_;
};

/// How a number is shown in tables; CSV and JSON always have full precision.
enum class Show : std::uint8_t {
  plain,     ///< integers in full, other numbers with six significant digits
  brief,     ///< four significant digits, none of a whole number left out
  fixed1,    ///< one decimal
  fixed2,    ///< two decimals
  fixed3,    ///< three decimals
  percent,   ///< a share of 1 as "61.2%"
  percent2,  ///< small shares: "0.24%"
  si,        ///< "190 G"
  bytes,     ///< "1.50 GB"
  seconds    ///< "412 us"
};

/// A column of the table that people see.
struct Column {
  std::string key;
  std::string title;
  Show show = Show::plain;
  /// Of the number as CSV and JSON carry it: "s", "byte", "flop/s"; "" for counts, shares and texts. Readers
  /// take unit_of.
  std::string unit{};
  /// Rows with the same text belong together: a terminal shows it once, and not in each row.
  bool is_group = false;
  bool is_spare = false;  ///< among the first to be left out of a narrow terminal
};

/// Its unit, "share" of what is shown as percent.
std::string unit_of(const Column& column);

struct Table {
  std::vector<Column> columns;
  std::vector<Row> rows;
  std::string heading{};           ///< what all rows share: a line above the table; not in CSV and JSON
  std::vector<std::string> notes;  ///< lines below the table: formulas, units; not in CSV and JSON
};

enum class Format : std::uint8_t { table, md, csv, json };
/// Throws core::UsageError with a suggestion.
Format parse_format(std::string_view name);
/// The names, for help: "table|md|csv|json".
inline constexpr const char* kFormats = "table|md|csv|json";

std::string format_cell(const Cell& cell, Show show);
/// Whether it is a value, and no empty text.
bool says_something(const Cell& cell);
/// "12 more kernels (--top 0 shows all)".
std::string more_rows(std::size_t count, std::string_view what);
/// table, md: the columns, numbers right-aligned, then the notes. csv: every key of any row (RFC
/// 4180), but those that people do not see and that say nothing in any row. json:
/// an array with one object per row and line; numbers stay numbers, what is not finite becomes null.
/// `width`: of the terminal, 0 for no limit; a wider table is printed in blocks of columns that repeat the
/// first ones or, where the first column groups rows, group by group; long texts are wrapped (only table).
std::string format_table(const Table& table, Format format, std::size_t width = 0);
/// One JSON object, {"key": value, ...}.
std::string format_json_row(const Row& row);

}  // namespace rooflm::report
