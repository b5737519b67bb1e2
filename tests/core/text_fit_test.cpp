// Lines are as wide as the terminal.
#include "core/text_fit.h"

#include <gtest/gtest.h>

namespace rooflm::core {
namespace {

TEST(TextFit, WhatFollowsGoesBelowTheText) {
  EXPECT_EQ(wrap_lines("  --steps N   Time exactly so many steps, and no more\n\nEnd.\n", 40),
            "  --steps N   Time exactly so many\n"
            "              steps, and no more\n"
            "\n"
            "End.\n");
  EXPECT_EQ(wrap_lines("one two three four five six seven eight nine ten", 40),
            "one two three four five six seven eight\nnine ten");
}

TEST(TextFit, TextThatBeginsFarToTheRightGoesBelowTheLinesBeginning) {
  EXPECT_EQ(wrap_lines("  --a-name-that-is-long NAME   does this and that", 40),
            "  --a-name-that-is-long NAME   does this\n  and that");
  EXPECT_EQ(wrap_lines("  --op NAME   all_reduce|reduce_scatter|all_gather, of ranks", 40),
            "  --op NAME\n  all_reduce|reduce_scatter|all_gather,\n  of ranks");
}

TEST(TextFit, LongWordsAndShortLinesStayWhole) {
  const std::string path = "/a/path/that/is/longer/than/forty/columns.rooflm";
  EXPECT_EQ(wrap_lines("record: " + path + " b", 40), "record:\n" + path + "\nb");
  EXPECT_EQ(wrap_lines("  " + path, 40), "  " + path);
  EXPECT_EQ(wrap_lines(path + " and b\n", 0), path + " and b\n");
  EXPECT_EQ(wrap_lines("", 40), "");
}

TEST(TextFit, CountsCharactersAndNotBytes) {
  const std::string forty = "äöü äöü äöü äöü äöü äöü äöü äöü äöü äöüß";
  EXPECT_EQ(width_of(forty), 40U);
  EXPECT_EQ(wrap_lines(forty, 40), forty);
  EXPECT_EQ(wrap_lines(forty + "ß", 40), "äöü äöü äöü äöü äöü äöü äöü äöü äöü\näöüßß");
}

TEST(TextFit, TerminalsThatAreNarrowerThanFortyColumnsWrapByThemselves) {
  EXPECT_EQ(wrap_lines("one two three four", 9), "one two three four");
}

TEST(TextFit, CellsAreBrokenAnywhereWhereWordsAreLong) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(wrap_cell("", 5), Lines{""});
  EXPECT_EQ(wrap_cell("one two three", 7), (Lines{"one two", "three"}));
  EXPECT_EQ(wrap_cell("äöüäöüäöü", 4), (Lines{"äöüä", "öüäö", "ü"}));
}

}  // namespace
}  // namespace rooflm::core
