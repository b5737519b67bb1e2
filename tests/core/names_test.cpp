// Suggestions for names that are not known.
#include "core/names.h"

#include <gtest/gtest.h>

namespace rooflm::core {
namespace {

const std::vector<std::string> kModels = {"gpt2", "gpt2-medium", "tiny"};

TEST(Names, NearestIsASmallEditAway) {
  EXPECT_EQ(nearest_name("gtp2", kModels), "gpt2");
  EXPECT_EQ(nearest_name("gpt2-meduim", kModels), "gpt2-medium");
  EXPECT_EQ(nearest_name("tiny", kModels), "tiny");
}

TEST(Names, ABeginningMeansTheFirstNameThatHasIt) {
  const std::vector<std::string> commands{"profile", "program", "peaks", "report"};
  EXPECT_EQ(nearest_name("prof", commands), "profile");
  EXPECT_EQ(nearest_name("repo", commands), "report");
  EXPECT_EQ(nearest_name("pro", commands), "profile") << "the first of two";
}

TEST(Names, NothingIsSuggestedForAStranger) {
  EXPECT_EQ(nearest_name("transformer", kModels), "");
  EXPECT_EQ(nearest_name("gpt2", {}), "");
}

TEST(Names, MessageNamesKindSuggestionAndCandidates) {
  const std::string message = unknown_name("model", "gtp2", kModels);
  EXPECT_NE(message.find("unknown model 'gtp2'"), std::string::npos) << message;
  EXPECT_NE(message.find("did you mean 'gpt2'?"), std::string::npos) << message;
  EXPECT_NE(message.find("tiny"), std::string::npos) << message;
  EXPECT_EQ(unknown_name("model", "transformer", kModels).find("did you mean"), std::string::npos);
}

}  // namespace
}  // namespace rooflm::core
