// The terminal that a stream is.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string_view>

namespace rooflm::core {

/// Columns of the terminal that `stream` is; COLUMNS says otherwise where it is set to a number (0: no
/// limit). 0 for pipes and files.
std::size_t terminal_width(std::FILE* stream);

/// One line, or several, on standard error, at once, after what standard output holds. Control characters
/// become escapes, and lines are wrapped to the width of the terminal.
void write_message(std::string_view text);

}  // namespace rooflm::core
