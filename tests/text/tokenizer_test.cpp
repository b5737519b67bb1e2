// Tokenizers that need no published vocabulary: round trips, special tokens, damaged and foreign files.
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/text/data_testing.h"
#include "text/bpe_encode.h"
#include "text/bpe_trainer.h"
#include "text/tokenizer_json.h"

namespace rooflm::text {
namespace {

using Ids = std::vector<std::uint32_t>;
using Json = nlohmann::json;

Tokenizer small_tokenizer(std::uint32_t vocab_size = 600) {
  BpeTrainer trainer({.vocab_size = vocab_size, .special = {"<|endoftext|>", "<|pad|>"}});
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) trainer.add(random_text(random, false));
  return trainer.train();
}

TEST(Tokenizer, BytesComeBackWhateverTheyAre) {
  const auto tokenizer = small_tokenizer();
  std::mt19937 random(5);
  for (int i = 0; i < 5000; ++i) {
    const auto text = random_text(random, i % 2 == 0);
    const auto ids = tokenizer.encode(text);
    ASSERT_EQ(tokenizer.decode(ids), text);
    for (const auto id : ids) ASSERT_LT(id, tokenizer.vocab_size());
  }
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(all)), all);
}

TEST(Tokenizer, InvalidBytesDoNotMoveTheCutsAroundThem) {
  const std::string texts[] = {
      "abc\xff"
      "def",
      "12\xc3", " \xfe ", "\xf0\x9f\x98 x"};
  const auto tokenizer = Tokenizer::from_merges({}, {});
  for (const auto& text : texts) {
    EXPECT_EQ(tokenizer.encode(text).size(), text.size());
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
}

TEST(Tokenizer, AnotherVocabularyOrAnotherOrderOfMergesEncodesOtherwise) {
  using Merges = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
  const Merges merges = {{0, 1}, {2, 3}};
  const Merges swapped = {{2, 3}, {0, 1}};
  const std::vector<std::string> special = {"<|endoftext|>"};
  const auto tokenizer = Tokenizer::from_merges(merges, special);
  EXPECT_TRUE(tokenizer.encodes_as(Tokenizer::from_merges(merges, special)));
  EXPECT_FALSE(tokenizer.encodes_as(Tokenizer::from_merges(swapped, special)));
  EXPECT_FALSE(tokenizer.encodes_as(Tokenizer::from_merges(merges, {})));
  EXPECT_FALSE(tokenizer.encodes_as(small_tokenizer()));
}

TEST(Tokenizer, SpecialTokensOnlyWhenAsked) {
  const auto tokenizer = small_tokenizer();
  const auto eot = tokenizer.eot();
  ASSERT_TRUE(eot);
  EXPECT_EQ(tokenizer.special_id("<|pad|>"), *eot + 1);
  EXPECT_EQ(tokenizer.special_id("<|nope|>"), std::nullopt);
  const std::string text = "one<|endoftext|><|pad|>two";
  const auto as_text = tokenizer.encode(text);
  EXPECT_EQ(std::count(as_text.begin(), as_text.end(), *eot), 0);
  Ids expected = tokenizer.encode("one");
  expected.insert(expected.end(), {*eot, *eot + 1});
  for (const auto id : tokenizer.encode("two")) expected.push_back(id);
  EXPECT_EQ(tokenizer.encode(text, SpecialTokens::recognise), expected);
  EXPECT_EQ(tokenizer.decode(expected), text);
}

TEST(Tokenizer, LongAndShortWordsMergeAlike) {
  const TemporaryFolder folder;
  small_tokenizer().save(folder / "tokenizer.json");
  const auto model = read_tokenizer(folder.path());
  std::mt19937 random(11);
  for (int i = 0; i < 500; ++i) {
    std::string word;
    for (unsigned n = 30 + random() % 100; n > 0; --n)
      word  // up to 64 bytes are short
          += "aing'catsthe"[random() % 12];
    Ids fast;
    merge_word(*model, word, fast);
    // The definition: the pair of lowest rank, leftmost first, until none merges.
    Ids slow;
    for (const char c : word) slow.push_back(model->byte_ids[static_cast<unsigned char>(c)]);
    for (;;) {
      Merge best;
      std::size_t at = 0;
      for (std::size_t k = 0; k + 1 < slow.size(); ++k) {
        const auto merge = model->merge_table.find(slow[k], slow[k + 1]);
        if (merge.rank < best.rank) {
          best = merge;
          at = k;
        }
      }
      if (best.rank == kNoRank) break;
      slow[at] = best.id;
      slow.erase(slow.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    ASSERT_EQ(fast, slow) << word;
  }
}

TEST(Tokenizer, ParallelIsTheSame) {
  const auto tokenizer = small_tokenizer();
  std::mt19937 random(13);
  std::string text;
  while (text.size() < 5000000) text += random_text(random, true) + "word one\ntwo ";
  const auto ids = tokenizer.encode(text);
  EXPECT_EQ(tokenizer.decode(ids), text);
  for (const int threads : {1, 2, 5}) EXPECT_EQ(tokenizer.encode_parallel(text, threads), ids);
  EXPECT_EQ(tokenizer.encode_parallel(""), Ids{});
  EXPECT_THROW((void)tokenizer.encode_parallel("a", -1), core::UsageError);
}

TEST(Tokenizer, IdBeyondTheVocabulary) {
  const auto tokenizer = small_tokenizer();
  const auto size = tokenizer.vocab_size();
  expect_error<core::InputError>(
      [&] {
        (void)tokenizer.decode(Ids{1, size});
      },
      {std::to_string(size), "not in the vocabulary of " + std::to_string(size)});
}

class TokenizerFiles : public testing::Test {
 protected:
  void SetUp() override {
    small_tokenizer(300).save(good());
    json_ = Json::parse(read_text(good()));
  }
  [[nodiscard]] std::filesystem::path good() const { return folder_ / "good.json"; }
  void expect_bad(const Json& json, std::initializer_list<std::string_view> words) {
    const auto path = write_text(folder_ / "bad.json", json.dump());
    expect_error<core::InputError>([&] { (void)Tokenizer::load(path); }, {"bad.json"});
    expect_error<core::InputError>([&] { (void)Tokenizer::load(path); }, words);
  }
  TemporaryFolder folder_;
  Json json_;
};

TEST_F(TokenizerFiles, VocabularyWithMergesBesideIt) {
  Json vocab = json_["model"]["vocab"];
  std::string merges = "#version: 0.2\r\n";
  for (const auto& merge : json_["model"]["merges"]) merges += merge.get<std::string>() + "\r\n";
  write_text(folder_ / "dir/vocab.json", vocab.dump());
  expect_error<core::InputError>([&] { (void)Tokenizer::load(folder_ / "dir"); },
                                 {"vocab.json", "merges.txt"});
  write_text(folder_ / "dir/merges.txt", merges);
  const auto whole = Tokenizer::load(good());
  for (const auto* path : {"dir", "dir/vocab.json"}) {
    const auto tokenizer = Tokenizer::load(folder_ / path);
    EXPECT_EQ(tokenizer.encode("the cat's 12"), whole.encode("the cat's 12"));
    EXPECT_EQ(tokenizer.eot(), whole.eot());
  }
  write_text(folder_ / "dir/merges.txt", merges + "a b c\n");
  expect_error<core::InputError>([&] { (void)Tokenizer::load(folder_ / "dir"); },
                                 {"merges.txt: line", "a b c", "two tokens"});
}

TEST_F(TokenizerFiles, TheClassSaysHowVocabularyAndMergesSplit) {
  // One merge, of a bracket and a line feed: GPT-2's split keeps them apart, Qwen2's does not.
  Json vocab = Json::object();
  for (const auto& [token, id] : json_["model"]["vocab"].items())
    if (id.get<int>() < 256) vocab[token] = id;
  vocab[")\u010a"] = 256;
  write_text(folder_ / "dir/vocab.json", vocab.dump());
  write_text(folder_ / "dir/merges.txt", "#version: 0.2\n) \u010a\n");
  const std::string text = "f(a)\ng(b)\nh(c)\ni(d)\n";
  const auto count = [&](const Json& config) {
    write_text(folder_ / "dir/tokenizer_config.json", config.dump());
    return Tokenizer::load(folder_ / "dir").encode(text).size();
  };
  EXPECT_EQ(count(Json::object()), 20U);
  EXPECT_EQ(count({{"tokenizer_class", "GPT2Tokenizer"}}), 20U);
  EXPECT_EQ(count({{"tokenizer_class", "Qwen2Tokenizer"}}), 16U);
  EXPECT_EQ(count({{"tokenizer_class", "Qwen2TokenizerFast"}}), 16U);
  expect_error<core::InputError>(
      [&] {
        count({{"tokenizer_class", "OtherTokenizer"}});
      },
      {"tokenizer_config.json", "'OtherTokenizer'", "tokenizer.json"});
  expect_error<core::InputError>(
      [&] {
        count({{"add_prefix_space", true}});
      },
      {"tokenizer_config.json", "add_prefix_space"});
  const Json added = {{"257", {{"content", "<|endoftext|>"}, {"special", true}}}};
  EXPECT_EQ(count({{"tokenizer_class", "Qwen2Tokenizer"}, {"added_tokens_decoder", added}}), 16U);
  const auto tokenizer = Tokenizer::load(folder_ / "dir");
  EXPECT_EQ(tokenizer.eot(), 257U);
  tokenizer.save(folder_ / "saved.json");  // says all that two files said
  EXPECT_TRUE(Tokenizer::load(folder_ / "saved.json").encodes_as(tokenizer));
}

TEST_F(TokenizerFiles, PatternsOfKnownFamiliesAreExecuted) {
  const auto words = [&](std::initializer_list<const char*> patterns, const std::string& text) {
    Json steps = Json::array();
    for (const char* pattern : patterns) {
      steps.push_back({{"type", "Split"},
                       {"pattern", {{"Regex", pattern}}},
                       {"behavior", "Isolated"},
                       {"invert", false}});
    }
    steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
    // With every pair a merge, each word becomes one token.
    json_["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
    const auto tokenizer = Tokenizer::load(write_text(folder_ / "t.json", json_.dump()));
    const auto model = read_tokenizer(folder_ / "t.json");
    WordSplitter splitter(model->rules);
    splitter.begin(text);
    std::vector<std::string> found;
    std::array<std::size_t, 4> ends{};
    std::size_t first = 0;
    for (std::size_t n = splitter.next(ends); n > 0; n = splitter.next(ends)) {
      for (std::size_t i = 0; i < n; first = ends[i++]) found.push_back(text.substr(first, ends[i] - first));
    }
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
    return found;
  };
  using Cuts = std::vector<std::string>;
  const std::string text = "HelloWorld's 12345 \u6587\u5b57x!\n";
  // o200k: words end where capitals begin, and take their contraction.
  EXPECT_EQ(
      words(
          {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
          text),
      (Cuts{"Hello", "World's", " ", "123", "45", " \u6587\u5b57x", "!\n"}));
  // DeepSeek V3: numbers, then Chinese and Japanese, then the rest.
  EXPECT_EQ(
      words(
          {R"(\p{N}{1,3})", R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)",
           R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
          text),
      (Cuts{"HelloWorld", "'s", " ", "123", "45", " ", "\u6587\u5b57", "x", "!\n"}));
  EXPECT_EQ(words({kLlama3Pattern.data()}, text),
            (Cuts{"HelloWorld", "'s", " ", "123", "45", " \u6587\u5b57x", "!\n"}));
  EXPECT_EQ(words({kQwen2Pattern.data()}, text),
            (Cuts{"HelloWorld", "'s", " ", "1", "2", "3", "4", "5", " \u6587\u5b57x", "!\n"}));
}

TEST_F(TokenizerFiles, BytesThatUtf8NeverHasNeedNoToken) {
  for (const char* byte : {"\u00c0", "\u00c1", "\u00f5", "\u00ff"}) json_["model"]["vocab"].erase(byte);
  const auto tokenizer = Tokenizer::load(write_text(folder_ / "few.json", json_.dump()));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("caf\u00e9")), "caf\u00e9");
  expect_error<core::InputError>([&] { (void)tokenizer.encode("a\xf5"); }, {"byte 0xf5", "no token"});
  expect_error<core::InputError>([&] { (void)tokenizer.encode(std::string(100, '\xff')); }, {"byte 0xff"});
  json_["model"]["vocab"].erase("\u00f4");
  expect_bad(json_, {"byte 0xf4"});
}

TEST_F(TokenizerFiles, TextThatNfcMayChangeIsRefusedWhereTheFileAsksForNfc) {
  json_["normalizer"] = {{"type", "NFC"}};
  const auto tokenizer = Tokenizer::load(write_text(folder_ / "nfc.json", json_.dump()));
  for (const std::string text :
       {"plain", "caf\u00e9 \u6587\u5b57 \uac00 \u0939\u093f\u0902 1\ufe0f\u20e3 \xff"})
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  for (const std::string text : {"cafe\u0301", "\u212b", "q\u0323\u0307", "q\u0331\u0318", "\u1100\u1161"}) {
    expect_error<core::InputError>([&] { (void)tokenizer.encode("ab " + text); }, {"NFC", "byte "});
    EXPECT_NO_THROW((void)small_tokenizer(300).encode(text));
  }
}

TEST_F(TokenizerFiles, ForeignKindsAreNamed) {
  auto unigram = json_;
  unigram["model"] = {{"type", "Unigram"}, {"vocab", Json::array()}};
  expect_bad(unigram, {"'Unigram'", "BPE"});
  auto sentencepiece = json_;
  sentencepiece["model"]["byte_fallback"] = true;
  expect_bad(sentencepiece, {"'ByteLevel'", "byte fallback"});
  auto metaspace = json_;
  metaspace["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "_"}};
  expect_bad(metaspace, {"'Metaspace'", "byte-level"});
  auto none = json_;
  none["pre_tokenizer"] = nullptr;
  expect_bad(none, {"no pre-tokenizer"});
  auto normalizer = json_;
  normalizer["normalizer"] = {{"type", "NFKC"}};
  expect_bad(normalizer, {"normalizer 'NFKC'"});
  auto prefix = json_;
  prefix["pre_tokenizer"]["add_prefix_space"] = true;
  expect_bad(prefix, {"add_prefix_space"});
  auto suffix = json_;
  suffix["model"]["end_of_word_suffix"] = "</w>";
  expect_bad(suffix, {"</w>"});
  auto spelled = json_;
  spelled["model"]["vocab"]["\u2581the"] = 300;
  expect_bad(spelled, {"\u2581the", "SentencePiece"});
}

TEST_F(TokenizerFiles, DamageIsPlaced) {
  expect_error<core::InputError>([&] { (void)Tokenizer::load(folder_ / "none.json"); },
                                 {"none.json", "No such file"});
  expect_error<core::InputError>([&] { (void)Tokenizer::load(folder_.path()); },
                                 {"tokenizer.json", "directory"});
  const auto text = read_text(good());
  const auto cut = write_text(folder_ / "cut.json", text.substr(0, text.size() / 2));
  expect_error<core::InputError>([&] { (void)Tokenizer::load(cut); }, {"cut.json", "not valid JSON", "line"});
  expect_bad(Json::array({1, 2}), {"no object 'model'"});
  auto no_vocab = json_;
  no_vocab["model"].erase("vocab");
  expect_bad(no_vocab, {"model.vocab", "missing"});
  auto no_byte = json_;
  no_byte["model"]["vocab"].erase("A");
  expect_bad(no_byte, {"byte 0x41", "'A'"});
  auto bad_id = json_;
  bad_id["model"]["vocab"]["A"] = -4;
  expect_bad(bad_id, {"'A'", "-4"});
  bad_id["model"]["vocab"]["A"] = 4000000000U;
  expect_bad(bad_id, {"'A'", "4000000000"});
  auto twice = json_;
  twice["model"]["vocab"]["A"] = json_["model"]["vocab"]["B"];
  expect_bad(twice, {"'A'", "'B'"});
  auto merge = json_;
  merge["model"]["merges"].push_back("q \u0120zz");
  expect_bad(merge, {"merge", "'\u0120zz'", "not in the vocabulary"});
  merge = json_;
  merge["model"]["merges"].push_back({"Q", "Z"});
  expect_bad(merge, {"merge", "'Q' + 'Z'", "no token"});
  merge["model"]["merges"].push_back(7);
  expect_bad(merge, {"merge", "is 7"});
  auto pattern = json_;
  pattern["pre_tokenizer"] = {{"type", "Sequence"},
                              {"pretokenizers",
                               {{{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}},
                                {{"type", "ByteLevel"}, {"use_regex", false}}}}};
  expect_bad(pattern, {"pattern '(a'"});
}

TEST_F(TokenizerFiles, AddedTokensThatAreNotSpecialAlwaysCount) {
  json_["added_tokens"].push_back({{"id", 300}, {"content", "    "}, {"special", false}});
  const auto tokenizer = Tokenizer::load(write_text(folder_ / "added.json", json_.dump()));
  EXPECT_EQ(tokenizer.vocab_size(), 301U);
  const auto ids = tokenizer.encode("x    y");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 300U), 1);
  EXPECT_EQ(tokenizer.decode(ids), "x    y");
  EXPECT_EQ(tokenizer.encode_parallel("x    y", 2), ids);
}

TEST(Tokenizer, NamesAFormatThatItDoesNotRead) {
  for (const char* name : {"tokenizer.model", "qwen.tiktoken", "tekken.json", "vocab.txt"}) {
    const TemporaryFolder folder;
    write_text(folder / name, "IQ== 0\n");
    try {
      static_cast<void>(Tokenizer::load(folder.path()));
      FAIL() << name;
    } catch (const core::InputError& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("save_pretrained"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace rooflm::text
