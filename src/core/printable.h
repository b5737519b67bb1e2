// Escapes external text for messages, terminals and Markdown.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rooflm::core {

/// Most characters of one external text in a message.
inline constexpr std::size_t kMostShown = 80;
inline constexpr std::size_t kUnlimited = static_cast<std::size_t>(-1);

/// `text` on one line: control characters, invalid UTF-8 and bidirectional control characters become escapes
/// ("\n", "\x1b", "\u{202e}"). Text longer than `most` characters is cut and ends in "... (12345 bytes)".
std::string printable(std::string_view text, std::size_t most = kMostShown);

/// The same for several lines: line feeds and tabs stay, and nothing is cut.
std::string printable_lines(std::string_view text);

}  // namespace rooflm::core
