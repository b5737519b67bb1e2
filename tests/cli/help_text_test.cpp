// Help is as wide as the terminal.
#include "cli/help_text.h"

#include <gtest/gtest.h>

namespace rooflm::cli {
namespace {

TEST(HelpText, WhatFollowsGoesBelowTheText) {
  EXPECT_EQ(wrapped("  --steps N   Time exactly so many steps\n\nEnd.\n", 30),
            "  --steps N   Time exactly so\n"
            "              many steps\n"
            "\n"
            "End.\n");
  EXPECT_EQ(wrapped("one two three four", 9), "one two\nthree\nfour");
}

TEST(HelpText, TextThatBeginsFarToTheRightGoesBelowTheLinesBeginning) {
  EXPECT_EQ(wrapped("  --a-long-name NAME   does this and that", 24),
            "  --a-long-name NAME\n  does this and that");
  EXPECT_EQ(wrapped("  --op NAME   all_reduce|reduce_scatter, of ranks", 28),
            "  --op NAME\n  all_reduce|reduce_scatter,\n  of ranks");
}

TEST(HelpText, LongWordsAndShortLinesStayWhole) {
  EXPECT_EQ(wrapped("a/path/that/is/long b", 10), "a/path/that/is/long\nb");
  EXPECT_EQ(wrapped("  a/path/that/is/long", 10), "  a/path/that/is/long");
  EXPECT_EQ(wrapped("short\n", 0), "short\n");
  EXPECT_EQ(wrapped("", 10), "");
}

}  // namespace
}  // namespace rooflm::cli
