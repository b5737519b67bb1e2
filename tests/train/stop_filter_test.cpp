// Stop words in a text that comes in pieces.
#include "train/stop_filter.h"

#include <gtest/gtest.h>

namespace rooflm::train {
namespace {

TEST(StopFilter, HoldsBackWhatMayBeginAWord) {
  StopFilter filter({"STOP", "\n\n"});
  EXPECT_EQ(filter.append("a ST"), "a ");
  EXPECT_EQ(filter.append("AR"), "STAR");
  EXPECT_EQ(filter.append("\n"), "");
  EXPECT_EQ(filter.append("b S"), "\nb ");
  EXPECT_FALSE(filter.has_stopped());
  EXPECT_EQ(filter.append("TOP c"), "");
  EXPECT_TRUE(filter.has_stopped());
  EXPECT_EQ(filter.append("more"), "");
  EXPECT_EQ(filter.finish(), "");
}

TEST(StopFilter, TheFirstWordInTheTextCounts) {
  StopFilter filter({"cd", "b"});
  EXPECT_EQ(filter.append("abcd"), "a");
  EXPECT_TRUE(filter.has_stopped());
}

/// Any way of cutting a text gives the same.
TEST(StopFilter, PiecesDoNotMatter) {
  const std::string text = "aabaabaaabaaaab tail";
  for (std::size_t step = 1; step < text.size(); ++step) {
    StopFilter filter({"aaab"});
    std::string out;
    for (std::size_t at = 0; at < text.size(); at += step) out += filter.append(text.substr(at, step));
    out += filter.finish();
    EXPECT_EQ(out, "aabaab") << step;
    EXPECT_TRUE(filter.has_stopped());
  }
}

TEST(StopFilter, AtTheEndNothingIsHeldBack) {
  StopFilter filter({"STOP"});
  EXPECT_EQ(filter.append("end ST"), "end ");
  EXPECT_EQ(filter.finish(), "ST");
  StopFilter none({});
  EXPECT_EQ(none.append("all"), "all");
}

}  // namespace
}  // namespace rooflm::train
