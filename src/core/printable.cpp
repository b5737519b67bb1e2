// Escapes external text for messages, terminals and Markdown.
#include "core/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "core/utf8.h"

namespace rooflm::core {
namespace {

/// C1 controls, bidirectional controls, line separators.
bool is_hidden(std::uint32_t code) {
  return (code >= 0x80 && code < 0xA0) || code == 0x200E || code == 0x200F ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

std::string control(std::uint32_t code) {
  if (code == '\n') return "\\n";
  if (code == '\r') return "\\r";
  if (code == '\t') return "\\t";
  return fmt::format("\\x{:02x}", code);
}

bool is_plain(char c) { return c >= 0x20 && c < 0x7F; }

/// Removes the next character from `text` and returns it, escaped if necessary.
std::string take_piece(std::string_view& text) {
  const Utf8Character next = first_character(text);
  const std::size_t bytes = std::max<std::size_t>(next.bytes, 1);
  const std::string_view own = text.substr(0, bytes);
  text.remove_prefix(bytes);
  if (next.bytes == 0) return control(static_cast<unsigned char>(own[0]));
  if (next.code < 0x20 || next.code == 0x7F) return control(next.code);
  return is_hidden(next.code) ? fmt::format("\\u{{{:x}}}", next.code) : std::string(own);
}

}  // namespace

std::string printable(std::string_view text, std::size_t most) {
  if (text.size() <= most && std::ranges::all_of(text, is_plain)) return std::string(text);
  std::string out;
  std::size_t shown = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const bool is_character = !is_plain(rest.front());
    const std::string piece = take_piece(rest);
    // An escape takes as many columns as it has bytes, a UTF-8 character one.
    shown += is_character && piece.front() == '\\' ? piece.size() : 1;
    if (shown > most) return out + fmt::format("... ({} bytes)", text.size());
    out += piece;
  }
  return out;
}

std::string printable_lines(std::string_view text) {
  const auto may_stay = [](char c) { return is_plain(c) || c == '\n' || c == '\t'; };
  if (std::ranges::all_of(text, may_stay)) return std::string(text);
  std::string out;
  for (std::string_view rest = text; !rest.empty();) {
    if (may_stay(rest.front())) {
      out += rest.front();
      rest.remove_prefix(1);
    } else {
      out += take_piece(rest);
    }
  }
  return out;
}

}  // namespace rooflm::core
