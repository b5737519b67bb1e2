// The tables of src/report as commands print them.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/output.h"
#include "report/tables/column_choice.h"
#include "report/tables/table.h"  // IWYU pragma: export

namespace rooflm::cli {

using report::Cell;
using report::Column;
using report::Format;
using report::Row;
using report::Show;
using report::Table;

using report::format_cell;
using report::format_json_row;
using report::kFormats;
using report::parse_format;

/// How tables look.
struct TableStyle {
  Format format = Format::table;
  report::ColumnChoice columns{};
};

/// `--format`, `--columns` and `--wide`, as typed.
struct TableOptions {
  std::string format = "table", columns;
  bool wide = false;
  /// `help`: of --format; `group`: the heading of all three, "" for none.
  /// `known`: the columns that a shell offers; none where records name them.
  void add_to(CommandLine& line, const std::string& help, const std::string& group = "",
              const std::function<std::vector<Column>()>& known = {});
  /// Throws core::UsageError. Columns are looked at by the functions below.
  [[nodiscard]] TableStyle style() const;
};

/// The names of all views, for completion.
std::vector<std::string> view_names();
/// The columns of all views, each once, where no record is needed to name them.
std::vector<Column> columns_of_all_views();

/// Throws core::UsageError for columns other than these: before anything is measured.
void require_columns(std::vector<Column> columns, const TableStyle& style);
/// Columns that none of the views has. A view whose columns are named by what was recorded has any.
/// `is_ours`: tensors have roles of programs of ours.
void require_columns_of_views(std::span<const std::string> views, const TableStyle& style, bool is_ours);

/// In the width of the terminal, with colours where it has them. Throws core::UsageError for columns that the
/// table does not have.
std::string show_table(const Table& table, const TableStyle& style);
/// Several, with an empty line between them; a column must be in one of them.
std::string show_tables(std::span<const Table> tables, const TableStyle& style);
inline std::string show_table(const Table& table, Format format) {
  return show_table(table, {.format = format, .columns = {}});
}

/// Text for people with titles in bold and verdicts in colour, where standard output is a terminal that takes
/// them (coloured_output()).
std::string coloured(const std::string& text);

}  // namespace rooflm::cli
