// BPE over characters, as SentencePiece learns it. The tokens that are expected are those of Hugging Face's
// tokenizers for JavaScript (@huggingface/tokenizers 0.2.0) on the same files.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "tests/text/data_testing.h"
#include "text/tokenizer.h"

namespace rooflm::text {
namespace {

using Json = nlohmann::json;
using Spellings = std::vector<std::string>;

const Json kReplace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}};

Json metaspace(const char* scheme, bool splits) {
  return {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", splits}};
}

/// A vocabulary of three special tokens, all bytes, and a few characters.
class CharacterBpe : public ::testing::Test {
 protected:
  CharacterBpe() : spellings_({"<unk>", "<s>", "</s>"}) {
    for (unsigned byte = 0; byte < 256; ++byte) spellings_.push_back(fmt::format("<0x{:02X}>", byte));
    for (const char* token : {"▁", "a", "b", "é", "\n", "ab", "▁a", "▁ab", "▁▁", "\n\n"})
      spellings_.emplace_back(token);
    Json vocab;
    for (std::size_t id = 0; id < spellings_.size(); ++id) vocab[spellings_[id]] = id;
    Json added = Json::array();
    for (std::size_t id = 0; id < 3; ++id)
      added.push_back({{"id", id}, {"content", spellings_[id]}, {"special", true}});
    file_ = {{"added_tokens", added},
             {"normalizer", nullptr},
             {"pre_tokenizer", nullptr},
             {"post_processor", nullptr},
             {"decoder", nullptr},
             {"model",
              {{"type", "BPE"},
               {"unk_token", "<unk>"},
               {"byte_fallback", true},
               {"vocab", vocab},
               {"merges", {"a b", "▁ ab", "▁ a", "▁ ▁", Json::array({"\n", "\n"})}}}}};
  }

  Tokenizer load() { return Tokenizer::load(write_text(folder_ / "tokenizer.json", file_.dump())); }
  Spellings tokens_of(const Tokenizer& tokenizer, const std::string& text) const {
    Spellings all;
    for (const std::uint32_t id : tokenizer.encode(text)) all.push_back(spellings_.at(id));
    return all;
  }
  void expect_bad(std::initializer_list<std::string_view> says) {
    expect_error<core::InputError>([&] { (void)load(); }, says);
  }

  TemporaryFolder folder_;
  Spellings spellings_;
  Json file_;
};

const Spellings kTexts = {"ab", "ab ab", " ab", "  a", "é\n\nb", "c ä"};

/// Llama 2, Mistral, Phi-3: a mark before every text, and decoding leaves a blank out.
TEST_F(CharacterBpe, AMarkIsPrepended) {
  file_["normalizer"] = {{"type", "Sequence"},
                         {"normalizers", {{{"type", "Prepend"}, {"prepend", "▁"}}, kReplace}}};
  file_["decoder"] = {{"type", "Sequence"},
                      {"decoders", {{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  const Tokenizer tokenizer = load();
  const std::vector<Spellings> expected = {
      {"▁ab"},      {"▁ab", "▁ab"},          {"▁", "▁ab"},
      {"▁▁", "▁a"}, {"▁", "é", "\n\n", "b"}, {"▁", "<0x63>", "▁", "<0xC3>", "<0xA4>"}};
  for (std::size_t i = 0; i < kTexts.size(); ++i) {
    EXPECT_EQ(tokens_of(tokenizer, kTexts[i]), expected[i]) << kTexts[i];
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(kTexts[i])), kTexts[i]);
  }
  EXPECT_TRUE(tokenizer.encode("").empty());
  EXPECT_EQ(tokenizer.eot(), 2U);
  EXPECT_EQ(tokenizer.token_bytes(tokenizer.encode("ab")[0]), " ab");
}

/// Gemma: blanks are marked, and nothing is prepended.
TEST_F(CharacterBpe, BlanksAreReplaced) {
  file_["normalizer"] = kReplace;
  file_["pre_tokenizer"] = {{"type", "Split"},
                            {"pattern", {{"String", " "}}},
                            {"behavior", "MergedWithPrevious"},
                            {"invert", false}};
  const Tokenizer tokenizer = load();
  const std::vector<Spellings> expected = {
      {"ab"}, {"ab", "▁ab"}, {"▁ab"}, {"▁", "▁a"}, {"é", "\n\n", "b"}, {"<0x63>", "▁", "<0xC3>", "<0xA4>"}};
  for (std::size_t i = 0; i < kTexts.size(); ++i) {
    EXPECT_EQ(tokens_of(tokenizer, kTexts[i]), expected[i]) << kTexts[i];
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(kTexts[i])), kTexts[i]);
  }
  EXPECT_EQ(tokenizer.encode_parallel("ab ab", 2), tokenizer.encode("ab ab"));
  const std::string no_utf8 =
      "a\xff"
      "b\xc3 \xe2\x96";
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(no_utf8)), no_utf8);
}

/// Newer files: one mark is enough.
TEST_F(CharacterBpe, MetaspaceSetsAMarkWhereThereIsNone) {
  const std::vector<Spellings> expected = {
      {"▁ab"},     {"▁ab", "▁ab"},          {"▁ab"},
      {"▁", "▁a"}, {"▁", "é", "\n\n", "b"}, {"▁", "<0x63>", "▁", "<0xC3>", "<0xA4>"}};
  for (const Json& part : {metaspace("first", false), metaspace("always", true)}) {
    file_["pre_tokenizer"] = part;
    const Tokenizer tokenizer = load();
    for (std::size_t i = 0; i < kTexts.size(); ++i)
      EXPECT_EQ(tokens_of(tokenizer, kTexts[i]), expected[i]) << kTexts[i];
  }
  file_["pre_tokenizer"] = metaspace("never", false);
  EXPECT_EQ(tokens_of(load(), "ab ab"), (Spellings{"ab", "▁ab"}));
}

/// Between special tokens: "first" marks the beginning of the whole only.
TEST_F(CharacterBpe, WhatFollowsASpecialToken) {
  file_["pre_tokenizer"] = metaspace("first", false);
  const auto names = [&](const std::vector<std::uint32_t>& ids) {
    Spellings all;
    for (const std::uint32_t id : ids) all.push_back(spellings_.at(id));
    return all;
  };
  EXPECT_EQ(names(load().encode("ab</s>ab", SpecialTokens::recognise)), (Spellings{"▁ab", "</s>", "ab"}));
  EXPECT_EQ(names(load().encode("ab", SpecialTokens::as_text, false)), (Spellings{"ab"}));
  file_["pre_tokenizer"] = metaspace("always", false);
  EXPECT_EQ(names(load().encode("ab</s>ab", SpecialTokens::recognise)), (Spellings{"▁ab", "</s>", "▁ab"}));
}

TEST_F(CharacterBpe, ThePromptBeginsWithTheFilesToken) {
  file_["normalizer"] = kReplace;
  EXPECT_FALSE(load().bos().has_value());
  file_["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}}}}}}};
  EXPECT_EQ(load().bos(), 1U);
  EXPECT_EQ(load().encode_prompt("a"), (std::vector<std::uint32_t>{1, load().encode("a")[0]}));
  EXPECT_EQ(load().encode("a").size(), 1U);
}

/// Cutting before marks makes short words of long texts, and no other tokens than one word gives.
TEST_F(CharacterBpe, LongTextsAreThoseOfOneWord) {
  file_["normalizer"] = kReplace;
  const Tokenizer cut = load();
  file_["model"]["vocab"]["b▁"] = spellings_.size();  // now a token has a mark behind another character
  const Tokenizer whole = load();
  std::mt19937 random(7);
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "ab \né"[random() % 5];
  EXPECT_EQ(cut.encode(text), whole.encode(text));
  EXPECT_EQ(whole.decode(whole.encode(text)), text);
}

TEST_F(CharacterBpe, WhatIsNotKnownIsNamed) {
  expect_bad({"does not mark blanks"});
  file_["normalizer"] = {{"type", "NFKC"}};
  expect_bad({"normalizer 'NFKC'"});
  file_["normalizer"] = nullptr;
  file_["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "_"}};
  expect_bad({"'_'"});
  file_["pre_tokenizer"] = {{"type", "Whitespace"}};
  expect_bad({"pre-tokenizer 'Whitespace'"});
  file_["pre_tokenizer"] = metaspace("first", false);
  file_["model"]["vocab"].erase("<0x41>");
  expect_bad({"byte 0x41", "byte fallback"});
}

}  // namespace
}  // namespace rooflm::text
