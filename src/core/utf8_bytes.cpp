// Invalid UTF-8 bytes as private-use characters.
#include "core/utf8_bytes.h"

#include <cstddef>
#include <cstdint>

#include "core/utf8.h"

namespace rooflm::core {
namespace {

constexpr std::uint32_t kFirstPrivate = 0x10FF00;
constexpr std::size_t kPrivateBytes = 4;  // UTF-8 length of such a character

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
    const auto [code, size] = first_character(bytes);
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
    const auto [code, size] = first_character(text);
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
