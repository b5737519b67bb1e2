// Invalid UTF-8 bytes as private-use characters.
#include "core/utf8_bytes.h"

#include <cstddef>
#include <cstdint>

namespace rooflm::core {
namespace {

constexpr std::uint32_t kFirstPrivate = 0x10FF00;
constexpr std::size_t kPrivateBytes = 4;  // UTF-8 length of such a character

constexpr bool is_continuation(unsigned char c) { return (c & 0xC0U) == 0x80; }

/// Length of the character at the beginning of `text`; 0 if it is invalid (RFC 3629: no overlong forms, no
/// surrogates, nothing above U+10FFFF). Sets `code` to its code point.
std::size_t character(std::string_view text, std::uint32_t& code) {
  const auto lead = static_cast<unsigned char>(text[0]);
  code = lead;
  if (lead < 0x80) return 1;
  const std::size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < size) return 0;
  code = lead & (0xFFU >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if (!is_continuation(next)) return 0;
    code = code << 6U | (next & 0x3FU);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code < kLeast[size] || code > 0x10FFFF || is_surrogate ? 0 : size;
}

void append_private(std::string& out, unsigned char byte) {
  const std::uint32_t code = kFirstPrivate + byte;
  out += static_cast<char>(0xF0U | code >> 18U);
  out += static_cast<char>(0x80U | (code >> 12U & 0x3FU));
  out += static_cast<char>(0x80U | (code >> 6U & 0x3FU));
  out += static_cast<char>(0x80U | (code & 0x3FU));
}

}  // namespace

std::string bytes_as_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    std::uint32_t code = 0;
    const std::size_t size = character(bytes, code);
    if (size == 0 || code >= kFirstPrivate) {
      append_private(out, static_cast<unsigned char>(bytes[0]));
      bytes.remove_prefix(1);
    } else {
      out += bytes.substr(0, size);
      bytes.remove_prefix(size);
    }
  }
  return out;
}

std::string bytes_from_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    std::uint32_t code = 0;
    const std::size_t size = character(text, code);
    if (size == kPrivateBytes && code >= kFirstPrivate) {
      out += static_cast<char>(code - kFirstPrivate);
    } else {
      out += text.substr(0, size == 0 ? 1 : size);
    }
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return out;
}

}  // namespace rooflm::core
