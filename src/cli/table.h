// The tables of src/report under the names by which the commands know them.
#pragma once

#include <string>

#include "cli/output.h"
#include "report/table.h"  // IWYU pragma: export

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

/// report::format_table in the width of the terminal.
inline std::string show_table(const Table& table, Format format) {
  return report::format_table(table, format, terminal_width());
}

}  // namespace rooflm::cli
