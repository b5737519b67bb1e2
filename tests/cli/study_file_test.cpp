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
answer = "growth"
views = ["sweep", "growth"]
gpu_views = ["launches"]
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
  EXPECT_EQ(study.answer, "growth");
  EXPECT_EQ(study.options.at("seq"), "128,256");
  EXPECT_EQ(study.options.at("batch"), "4");
  EXPECT_EQ(study.options.at("engine"), "eager,fused");
  EXPECT_EQ(study.large.at("model"), "gpt2");
  EXPECT_EQ(study.views.size(), 2U);
  EXPECT_EQ(study.gpu_views, std::vector<std::string>{"launches"});
}

TEST(StudyFile, ErrorsNameLineAndKey) {
  const std::string head = "title = \"a\"\nquestion = \"b\"\nviews = [\"sweep\"]\n";
  EXPECT_EQ(error_of(head + "[options]\nseqs = 4\n").find("mine.toml:5: unknown option 'seqs'"), 0U);
  EXPECT_NE(error_of(head + "[options]\nseqs = 4\n").find("did you mean 'seq'"), std::string::npos);
  EXPECT_EQ(error_of("titel = \"a\"\n").find("mine.toml:1: unknown key 'titel'"), 0U);
  EXPECT_EQ(error_of(head + "answer = \"growt\"\n").find("mine.toml:4: unknown answer 'growt'"), 0U);
  EXPECT_EQ(error_of(head + "kind = \"gem\"\n").find("mine.toml:4: unknown kind 'gem'"), 0U);
  EXPECT_EQ(error_of(head + "[options]\nseq = true\n").find("mine.toml:5: 'seq' must be"), 0U);
  EXPECT_EQ(error_of(head + "options = 3\n").find("mine.toml:4: 'options' must be a table"), 0U);
  EXPECT_EQ(error_of("title = \"a\nquestion = 3").find("mine.toml:1: "), 0U);
  EXPECT_NE(error_of("question = \"b\"\nviews = [\"a\"]\n").find("'title' is missing"), std::string::npos);
}

/// What becomes of an error about a study's values.
std::string blamed(const std::string& message) {
  const auto study = cli::parse_study(
      "title = \"a\"\nquestion = \"b\"\nviews = [\"sweep\"]\n[options]\nbatch = 0\nmodel = \"gtp2\"\n",
      "mine", "mine.toml");
  try {
    cli::blame(study, {.tables = {{"batch", "options"}, {"model", "options"}}}, core::UsageError(message));
  } catch (const core::InputError& error) {
    return error.what();
  } catch (const core::UsageError&) {
    return "typed";
  }
}

TEST(StudyFile, BadValuesNameLineAndKey) {
  EXPECT_EQ(blamed("--batch must be at least 1, got 0"),
            "mine.toml:5: batch: --batch must be at least 1, got 0");
  EXPECT_EQ(blamed("unknown model 'gtp2'").find("mine.toml:6: model: "), 0U);
  EXPECT_EQ(blamed("sizes beyond 2^50 elements").find("mine.toml:4: [options]: "), 0U);
  EXPECT_EQ(blamed("--seq must be at least 1, got 0"), "typed");
  EXPECT_EQ(blamed("--batches 3"), "typed") << "another option";
  auto study = cli::parse_study("title = \"a\"\nquestion = \"b\"\nviews = [\"nosuch\"]\n", "m", "m.toml");
  EXPECT_THROW(cli::check_views(study), core::InputError);
  auto of_gpus = cli::parse_study(
      "title = \"a\"\nquestion = \"b\"\nviews = [\"sweep\"]\ngpu_views = [\"nosuch\"]\n", "m", "m.toml");
  EXPECT_THROW(cli::check_views(of_gpus), core::InputError);
}

TEST(StudyFile, MessagesAreShort) {
  const std::string head = "title = \"a\"\nquestion = \"b\"\nviews = [\"sweep\"]\n[options]\n";
  EXPECT_LT(error_of(head + std::string(100'000, 'x') + " = 4\n").size(), 1500U);
  EXPECT_LT(error_of(head + "a = [" + std::string(100'000, '[')).size(), 500U);
  EXPECT_EQ(error_of(head + "\"\\u001b[2J\" = 4\n").find('\x1b'), std::string::npos);
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
