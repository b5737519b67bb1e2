// Bytes that are no UTF-8 survive the way through text.
#include "core/utf8_bytes.h"

#include <gtest/gtest.h>

#include <string>

#include "core/rng.h"

namespace rooflm::core {
namespace {

TEST(Utf8Bytes, TextStaysAsItIs) {
  for (const std::string text : {"", "out/data", "/tmp/größe/数据", "\xF0\x9F\x98\x80"}) {
    EXPECT_EQ(bytes_as_utf8(text), text);
    EXPECT_EQ(bytes_from_utf8(text), text);
  }
}

TEST(Utf8Bytes, AnyBytesComeBack) {
  for (std::uint64_t i = 0; i < 3000; ++i) {
    std::string bytes;
    for (std::uint64_t j = 0; j < i % 12; ++j) {
      // Leads and continuations often, so that characters, halves of them and impossible ones occur.
      const std::uint32_t random = philox(1, i, j)[0];
      bytes += static_cast<char>(random % 3 == 0 ? random >> 8U : 0x80U | random >> 8U);
    }
    const std::string text = bytes_as_utf8(bytes);
    EXPECT_EQ(bytes_as_utf8(bytes_from_utf8(text)), text);
    EXPECT_EQ(bytes_from_utf8(text), bytes);
  }
}

TEST(Utf8Bytes, ThePrivateCharactersThemselvesComeBack) {
  const std::string character = "\xF4\x8F\xBC\x80";  // U+10FF00
  EXPECT_NE(bytes_as_utf8(character), character);
  EXPECT_EQ(bytes_from_utf8(bytes_as_utf8(character)), character);
}

}  // namespace
}  // namespace rooflm::core
