// UTF-8 as the tokenizer needs it: replacing what is invalid, and GPT-2's printable names of bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rooflm::text {

/// Nothing when `text` is valid UTF-8 (RFC 3629: no surrogates, no overlong forms). Otherwise a copy of the
/// same length in which every byte that is not part of a valid sequence is U+0001: a character that is no
/// letter, digit or white space, so a splitting pattern can be applied, and the places where it cuts hold for
/// `text` too.
std::optional<std::string> replace_invalid_utf8(std::string_view text);

/// Bytes of the UTF-8 sequence that begins at `text[at]`, `text` being valid.
constexpr std::size_t utf8_length(unsigned char first) {
  return first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

/// GPT-2's printable spelling of bytes: printable Latin-1 characters stand for themselves, the other 68 bytes
/// for U+0100 and on. Returns UTF-8.
std::string spell_bytes(std::string_view bytes);

/// The inverse of spell_bytes; nothing when `spelling` has another character or is not UTF-8.
std::optional<std::string> unspell_bytes(std::string_view spelling);

/// The byte with place `i` in GPT-2's order: the 188 that stand for themselves, ascending, then the others.
std::uint8_t byte_in_gpt2_order(unsigned i);

}  // namespace rooflm::text
