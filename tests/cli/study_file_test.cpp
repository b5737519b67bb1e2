// Study files: what they may say, and where they are wrong.
#include "cli/study_file.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "core/error.h"

namespace rooflm {
namespace {

std::string error_of(const std::string& text) {
  try {
    cli::parse_study(text, "mine", "mine.toml");
  } catch (const core::InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(StudyFile, TextsNumbersAndListsAreOptionsAsTyped) {
  const auto study = cli::parse_study(R"(
title = "One"
question = "What?"
views = ["sweep", "growth"]
[options]
model = "tiny"
seq = [128, 256]
batch = 4
engine = ["eager", "fused"]
[large]
model = "gpt2"
)",
                                      "mine", "mine.toml");
  EXPECT_EQ(study.kind, "profile");
  EXPECT_EQ(study.options.at("seq"), "128,256");
  EXPECT_EQ(study.options.at("batch"), "4");
  EXPECT_EQ(study.options.at("engine"), "eager,fused");
  EXPECT_EQ(study.large.at("model"), "gpt2");
  EXPECT_EQ(study.views.size(), 2U);
}

TEST(StudyFile, ErrorsNameLineAndKey) {
  const std::string head = "title = \"a\"\nquestion = \"b\"\nviews = [\"sweep\"]\n";
  EXPECT_EQ(error_of(head + "[options]\nseqs = 4\n").find("mine.toml:5: unknown option 'seqs'"), 0U);
  EXPECT_NE(error_of(head + "[options]\nseqs = 4\n").find("did you mean 'seq'"), std::string::npos);
  EXPECT_EQ(error_of("titel = \"a\"\n").find("mine.toml:1: unknown key 'titel'"), 0U);
  EXPECT_EQ(error_of(head + "kind = \"gem\"\n").find("mine.toml:4: unknown kind 'gem'"), 0U);
  EXPECT_EQ(error_of(head + "[options]\nseq = true\n").find("mine.toml:5: 'seq' must be"), 0U);
  EXPECT_EQ(error_of(head + "options = 3\n").find("mine.toml:4: 'options' must be a table"), 0U);
  EXPECT_EQ(error_of("title = \"a\nquestion = 3").find("mine.toml:1: "), 0U);
  EXPECT_NE(error_of("question = \"b\"\nviews = [\"a\"]\n").find("'title' is missing"), std::string::npos);
}

TEST(StudyFile, ShippedStudiesParseAndHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const auto& study : cli::shipped_studies()) {
    EXPECT_TRUE(names.insert(study.name).second) << study.name;
    EXPECT_FALSE(study.views.empty()) << study.name;
  }
  EXPECT_GE(names.size(), 19U);
  EXPECT_THROW(cli::find_study("contxt"), core::UsageError);
  EXPECT_THROW(cli::find_study("/nowhere/mine.toml"), core::InputError);
}

}  // namespace
}  // namespace rooflm
