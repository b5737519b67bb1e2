// Text that fits the width of a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rooflm::report {

/// Columns that a terminal uses for a UTF-8 text without combining or wide characters.
std::size_t width_of(std::string_view text);

/// `text` in lines of at most `width` > 0 columns: broken at spaces, longer words anywhere. At least one
/// line.
std::vector<std::string> wrap(std::string_view text, std::size_t width);

/// Each line of `text` wrapped; lines that fit, and their indents, stay as they are. 0: no limit.
std::string wrap_lines(std::string_view text, std::size_t width);

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
