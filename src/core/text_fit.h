// Text that fits the width of a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rooflm::core {

/// Columns that a terminal uses for a UTF-8 text without combining or wide characters.
std::size_t width_of(std::string_view text);

/// A cell of a table in lines of at most `width` > 0 columns: broken at spaces, longer words anywhere. At
/// least one line.
std::vector<std::string> wrap_cell(std::string_view text, std::size_t width);

/// `text` with its lines broken at spaces where they are wider than `width` columns. What follows goes below
/// the line's last column of text ("  --name   what it does"), or below its beginning where that would leave
/// less than a third of the width. Longer words (paths) stay whole. 0: no limit; other widths count as 40 at
/// least, since a narrower terminal does better by itself.
std::string wrap_lines(std::string_view text, std::size_t width);

}  // namespace rooflm::core
