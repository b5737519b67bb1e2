// Text from elsewhere: escapes, limits, and what stays as it is.
#include "core/printable.h"

#include <gtest/gtest.h>

namespace rooflm::core {
namespace {

TEST(Printable, LeavesPlainTextAlone) {
  EXPECT_EQ(printable("h.3/attention \"q\""), "h.3/attention \"q\"");
  EXPECT_EQ(printable("gr\xc3\xbc\xc3\x9f"), "gr\xc3\xbc\xc3\x9f");
  EXPECT_EQ(printable(""), "");
}

TEST(Printable, EscapesWhatATerminalObeys) {
  EXPECT_EQ(printable("a\x1b[2Jb\r\n\t\x7f"), "a\\x1b[2Jb\\r\\n\\t\\x7f");
  EXPECT_EQ(printable(std::string_view("\0x", 2)), "\\x00x");
  EXPECT_EQ(printable("\xc2\x9b"), "\\u{9b}") << "a control sequence in one character";
  EXPECT_EQ(printable("\xe2\x80\xae"), "\\u{202e}") << "right to left";
}

TEST(Printable, EscapesBytesThatAreNoUtf8) {
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable("\xc0\x80"), "\\xc0\\x80") << "overlong";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "surrogate";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond Unicode";
}

TEST(Printable, CutsLongText) {
  const std::string cut = printable(std::string(100'000, 'x'));
  EXPECT_EQ(cut, std::string(kMostShown, 'x') + "... (100000 bytes)");
  EXPECT_EQ(printable(std::string(50, '\x1b'), 10), "\\x1b\\x1b... (50 bytes)");
  EXPECT_EQ(printable(std::string(1000, 'x'), kUnlimited), std::string(1000, 'x'));
}

TEST(Printable, KeepsTheLinesOfText) {
  EXPECT_EQ(printable_lines("a\n\tb\x1b[1m\r\n"), "a\n\tb\\x1b[1m\\r\n");
}

}  // namespace
}  // namespace rooflm::core
