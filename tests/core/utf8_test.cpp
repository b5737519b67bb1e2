// Decoding UTF-8: each length at both ends of its range, and everything that RFC 3629 forbids.
#include "core/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace rooflm::core {
namespace {

TEST(Utf8, EachLengthAtBothEndsOfItsRange) {
  const std::vector<std::pair<std::string, std::uint32_t>> characters = {
      {std::string(1, '\0'), 0},
      {"\x7f", 0x7F},
      {"\xc2\x80", 0x80},
      {"\xdf\xbf", 0x7FF},
      {"\xe0\xa0\x80", 0x800},
      {"\xed\x9f\xbf", 0xD7FF},
      {"\xee\x80\x80", 0xE000},
      {"\xef\xbf\xbf", 0xFFFF},
      {"\xf0\x90\x80\x80", 0x10000},
      {"\xf4\x8f\xbf\xbf", 0x10FFFF},
  };
  for (const auto& [text, code] : characters) {
    const Utf8Character found = first_character(text + "x");
    EXPECT_EQ(found.code, code);
    EXPECT_EQ(found.bytes, text.size()) << code;
  }
}

TEST(Utf8, WhatIsForbiddenIsNoCharacter) {
  const std::vector<std::string> bad = {
      "\x80",              // a continuation byte alone
      "\xc1\xbf",          // overlong: two bytes
      "\xe0\x9f\xbf",      // overlong: three bytes
      "\xf0\x8f\xbf\xbf",  // overlong: four bytes
      "\xed\xa0\x80",      // a surrogate
      "\xf4\x90\x80\x80",  // above U+10FFFF
      "\xf5\x80\x80\x80",  // no lead byte
      "\xff",
      "\xe2\x82",    // cut
      "\xe2\x28x",   // no continuation byte
      "\xe2\x82(x",  // the same, later
  };
  for (const std::string& text : bad) EXPECT_EQ(first_character(text).bytes, 0U) << text;
}

}  // namespace
}  // namespace rooflm::core
