// Invalid UTF-8, and the map between bytes and printable characters.
#include "text/bpe_utf8.h"

#include <array>
#include <cstring>

#include "core/utf8.h"

namespace rooflm::text {
namespace {

constexpr std::size_t kByteCount = 256;
constexpr unsigned kSpelledAsThemselves = 188;

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

struct ByteSpelling {
  std::array<std::uint8_t, kByteCount> order{};     ///< place -> byte
  std::array<std::uint16_t, kByteCount> code{};     ///< byte -> code point
  std::array<std::int16_t, kByteCount * 2> byte{};  ///< code point -> byte, -1 for none
};

constexpr ByteSpelling make_spelling() {
  ByteSpelling s;
  s.byte.fill(-1);
  unsigned plain = 0;
  unsigned other = 0;
  for (unsigned b = 0; b < kByteCount; ++b) {
    const bool itself = stands_for_itself(b);
    const unsigned code = itself ? b : static_cast<unsigned>(kByteCount) + other;
    const unsigned place = itself ? plain++ : kSpelledAsThemselves + other++;
    s.order[place] = static_cast<std::uint8_t>(b);
    s.code[b] = static_cast<std::uint16_t>(code);
    s.byte[code] = static_cast<std::int16_t>(b);
  }
  return s;
}

constexpr ByteSpelling kSpelling = make_spelling();

/// The first place at or after `at` that is no valid sequence, or text.size().
std::size_t find_invalid(std::string_view text, std::size_t at) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080U;
  while (at < text.size()) {
    std::uint64_t eight = 0;
    if (at + sizeof eight <= text.size()) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & kHighBits) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const std::size_t length = core::first_character(text.substr(at)).bytes;
    if (length == 0) return at;
    at += length;
  }
  return at;
}

}  // namespace

std::optional<std::string> replace_invalid_utf8(std::string_view text) {
  std::size_t at = find_invalid(text, 0);
  if (at == text.size()) return std::nullopt;
  std::string copy(text);
  while (at < text.size()) {
    copy[at] = '\x01';
    at = find_invalid(text, at + 1);
  }
  return copy;
}

std::string spell_bytes(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    const unsigned code = kSpelling.code[static_cast<unsigned char>(c)];
    if (code < 0x80) {
      out += static_cast<char>(code);
    } else {
      out += static_cast<char>(0xC0U | (code >> 6U));
      out += static_cast<char>(0x80U | (code & 0x3FU));
    }
  }
  return out;
}

std::optional<std::string> unspell_bytes(std::string_view spelling) {
  std::string out;
  for (std::size_t at = 0; at < spelling.size();) {
    const core::Utf8Character character = core::first_character(spelling.substr(at));
    const std::uint32_t code = character.code;
    if (character.bytes == 0 || code >= kSpelling.byte.size() || kSpelling.byte[code] < 0)
      return std::nullopt;
    out += static_cast<char>(kSpelling.byte[code]);
    at += character.bytes;
  }
  return out;
}

std::uint8_t byte_in_gpt2_order(unsigned i) { return kSpelling.order.at(i); }

}  // namespace rooflm::text
