// Which columns of a table people see: those that they name, or the most important ones that fit.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "report/tables/table.h"

namespace rooflm::report {

/// What was asked for.
struct ColumnChoice {
  std::vector<std::string> names{};  ///< keys or titles, in this order; empty: all, or those that fit
  bool wide = false;                 ///< all columns, however wide
};

/// Throws core::UsageError with a suggestion for a name that no column and no cell of any table has.
void check_columns(const ColumnChoice& choice, std::span<const Table* const> tables);

/// The table with the columns of the choice; what a table lacks of them is left out. With csv and json the
/// rows hold nothing else. Without names, a table of `Format::table` that is wider than `width` (0: no limit)
/// loses its least important columns, at the most all but four, and says so in a note: first spreads and
/// bounds of intervals, then from the right; never the texts that a row begins with, verdicts and shares.
Table choose_columns(Table table, const ColumnChoice& choice, Format format, std::size_t width);

}  // namespace rooflm::report
