// Columns of a table that fit the width of a terminal.
#pragma once

#include <cstddef>
#include <vector>

namespace rooflm::report {

/// Columns of a table as blocks that fit below one another.
struct ColumnBlock {
  std::vector<std::size_t> columns;
  std::vector<std::size_t> widths;  ///< of each: cells that are longer are wrapped
};

/// Columns with `widths` (two blanks between them) as blocks of at most `width` columns. The first ones,
/// which say what a row is, stand in every block; a column of text that does not fit is made narrower.
/// `is_number`: of each column.
std::vector<ColumnBlock> column_blocks(const std::vector<std::size_t>& widths,
                                       const std::vector<bool>& is_number, std::size_t width);

}  // namespace rooflm::report
