// GPT-2's own vocabulary: published ids, and those of tiktoken (tests/tokenizer/make_goldens.cjs).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/text/data_testing.h"
#include "text/tokenizer.h"

namespace rooflm::text {
namespace {

using Ids = std::vector<std::uint32_t>;

class Gpt2Tokenizer : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(gpt2_vocabulary() / "encoder.json")) GTEST_SKIP() << kNoVocabulary;
  }
  static nlohmann::json goldens() {
    const auto path = std::filesystem::path(ROOFLM_TESTS_DIR) / "tokenizer" / "goldens.json";
    auto cases = nlohmann::json::parse(read_text(path))["cases"];
    EXPECT_GT(cases.size(), 300U);
    return cases;
  }
};

TEST_F(Gpt2Tokenizer, PublishedExamples) {
  const auto tokenizer = Tokenizer::load(gpt2_vocabulary());
  EXPECT_EQ(tokenizer.vocab_size(), 50257U);
  EXPECT_EQ(tokenizer.eot(), 50256U);
  EXPECT_EQ(tokenizer.encode("Hello world"), (Ids{15496, 995}));
  EXPECT_EQ(tokenizer.encode(" Hello world"), (Ids{18435, 995}));
  EXPECT_EQ(tokenizer.encode("<|endoftext|>", SpecialTokens::recognise), (Ids{50256}));
  EXPECT_EQ(tokenizer.decode(Ids{15496, 995, 50256}), "Hello world<|endoftext|>");
}

TEST_F(Gpt2Tokenizer, IdsAreTiktokens) {
  const auto tokenizer = Tokenizer::load(gpt2_vocabulary() / "encoder.json");
  TokenStream stream(tokenizer);
  for (const auto& golden : goldens()) {
    const auto text = golden["text"].get<std::string>();
    const auto expected = golden["gpt2"].get<Ids>();
    EXPECT_EQ(tokenizer.encode(text), expected) << golden["text"];
    Ids streamed;
    stream.encode(text, streamed);
    EXPECT_EQ(streamed, expected) << golden["text"];
    EXPECT_EQ(tokenizer.decode(expected), text);
  }
}

TEST_F(Gpt2Tokenizer, PatternInTheFileIsHonoured) {
  const TemporaryFolder folder;
  const auto gpt2 = Tokenizer::load(gpt2_vocabulary());
  gpt2.save(folder / "tokenizer.json");
  auto json = nlohmann::json::parse(read_text(folder / "tokenizer.json"));
  const char* pattern =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  auto byte_level = json["pre_tokenizer"];
  byte_level["use_regex"] = false;
  json["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}},
        byte_level}}};
  json["model"]["ignore_merges"] = true;
  for (auto& merge : json["model"]["merges"]) {  // the newer form
    const auto text = merge.get<std::string>();
    const auto blank = text.find(' ');
    merge = {text.substr(0, blank), text.substr(blank + 1)};
  }
  write_text(folder / "llama3" / "tokenizer.json", json.dump());
  const auto tokenizer = Tokenizer::load(folder / "llama3");
  std::string all;
  for (const auto& golden : goldens()) {
    const auto text = golden["text"].get<std::string>();
    EXPECT_EQ(tokenizer.encode(text), golden["llama3_pattern"].get<Ids>()) << golden["text"];
    all += text + "a word\nand ";
  }
  while (all.size() < 3000000) all += all;
  EXPECT_EQ(tokenizer.encode_parallel(all, 3), tokenizer.encode(all));
  EXPECT_EQ(gpt2.encode_parallel(all, 3), gpt2.encode(all));
}

TEST_F(Gpt2Tokenizer, SavedFileGivesTheSameIds) {
  const TemporaryFolder folder;
  const auto original = Tokenizer::load(gpt2_vocabulary());
  original.save(folder / "tokenizer.json");
  const auto copy = Tokenizer::load(folder / "tokenizer.json");
  EXPECT_EQ(copy.vocab_size(), original.vocab_size());
  EXPECT_EQ(copy.eot(), original.eot());
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    const auto text = random_text(random, i % 2 == 0);
    const auto ids = original.encode(text);
    ASSERT_EQ(copy.encode(text), ids);
    ASSERT_EQ(original.decode(ids), text);
  }
}

}  // namespace
}  // namespace rooflm::text
