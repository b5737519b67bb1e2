// The tables of src/report under the names by which the commands know them.
#pragma once

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
using report::format_table;
using report::kFormats;
using report::parse_format;

}  // namespace rooflm::cli
