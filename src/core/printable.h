// Text from elsewhere, made fit for messages, terminals and Markdown.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rooflm::core {

/// Most characters that a message shows of one text from a file.
inline constexpr std::size_t kMostShown = 80;
inline constexpr std::size_t kUnlimited = static_cast<std::size_t>(-1);

/// `text` on one line: control characters, bytes that are no UTF-8, and characters that turn the direction of
/// writing become escapes ("\n", "\x1b", "\u{202e}"). What would be longer than `most` characters is cut and
/// ends in "... (12345 bytes)".
std::string printable(std::string_view text, std::size_t most = kMostShown);

/// The same, of whole lines: line feeds and tabs stay, and nothing is cut.
std::string printable_lines(std::string_view text);

}  // namespace rooflm::core
