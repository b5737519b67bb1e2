// Help, as wide as the terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rooflm::cli {

/// Lines of at most `width` columns, broken at spaces; what follows goes below the line's last column of text
/// ("  --name   what it does"), or below its beginning where that would leave less than a third of the width.
/// Words that are longer stay whole. 0: no limit.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t width);

/// Writes help to standard output, broken for the terminal where that is one.
void write_help(std::string_view text);

}  // namespace rooflm::cli
