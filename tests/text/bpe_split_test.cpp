// Words: the hand-written path against PCRE2, and known cuts.
#include "text/bpe_split.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/text/data_testing.h"
#include "text/bpe_pattern.h"
#include "text/bpe_utf8.h"

namespace rooflm::text {
namespace {

std::vector<std::string> words_of(const SplitRules& rules, std::string_view text) {
  WordSplitter splitter(rules);
  splitter.begin(text);
  std::vector<std::string> words;
  std::array<std::size_t, 3> ends;  // small, so that words span calls
  std::size_t first = 0;
  for (std::size_t n = splitter.next(ends); n > 0; n = splitter.next(ends)) {
    for (std::size_t i = 0; i < n; first = ends[i++]) words.emplace_back(text.substr(first, ends[i] - first));
  }
  return words;
}

const SplitRules& gpt2_rules() {
  static const SplitRules rules({std::string(kGpt2Pattern)}, "test");
  return rules;
}

using Words = std::vector<std::string>;

TEST(BpeSplit, KnownCuts) {
  EXPECT_EQ(words_of(gpt2_rules(), ""), Words{});
  EXPECT_EQ(words_of(gpt2_rules(), "I'll  go."), (Words{"I", "'ll", " ", " go", "."}));
  EXPECT_EQ(words_of(gpt2_rules(), "'sa DON'T"), (Words{"'s", "a", " DON", "'", "T"}));
  EXPECT_EQ(words_of(gpt2_rules(), "a \n\n b\n"), (Words{"a", " \n\n", " b", "\n"}));
  EXPECT_EQ(words_of(gpt2_rules(), "x1 2y  "), (Words{"x", "1", " 2", "y", "  "}));
  EXPECT_EQ(words_of(gpt2_rules(), "caf\u00e9s\u00a0\u00a0x"),
            (Words{"caf\u00e9s", "\u00a0", "\u00a0", "x"}));
}

TEST(BpeSplit, WhiteSpaceIsUnicodesWhiteSpace) {
  // U+180E is none since Unicode 6.3, U+0085 and U+3000 are; U+001C..1F are for Python's str.isspace only.
  EXPECT_EQ(words_of(gpt2_rules(), "a\u180e"), (Words{"a", "\u180e"}));
  EXPECT_EQ(words_of(gpt2_rules(), ".\u180e"), (Words{".\u180e"}));
  EXPECT_EQ(words_of(gpt2_rules(), ".\u0085"), (Words{".", "\u0085"}));
  EXPECT_EQ(words_of(gpt2_rules(), ".\u3000"), (Words{".", "\u3000"}));
  EXPECT_EQ(words_of(gpt2_rules(), ".\x1c"), (Words{".\x1c"}));
  EXPECT_EQ(spell_out_white_space(R"(\s[\s]\\s)").substr(0, 8), R"([\x{9}-\)");
  EXPECT_EQ(spell_out_white_space(R"(\\s)"), R"(\\s)");
}

TEST(BpeSplit, AsciiPathCutsAsPcre2Does) {
  const CompiledPattern pattern(kGpt2Pattern, "test");
  PatternMatcher matcher;
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string text = random_text(random, false);
    if (round % 2 == 0) {  // any ASCII
      text.clear();
      for (unsigned n = random() % 12; n > 0; --n) text += " \n'stve1a.\t'l"[random() % 13];
    }
    Words expected;
    for (std::size_t at = 0; at < text.size();) {
      const auto match = matcher.find(pattern, text, at);
      ASSERT_TRUE(match && match->first == at);
      expected.push_back(text.substr(at, match->second - at));
      at = match->second;
    }
    ASSERT_EQ(words_of(gpt2_rules(), text), expected) << text;
  }
}

TEST(BpeSplit, PatternsInSequenceCutPiecesAgain) {
  const SplitRules rules({R"(\p{N})", std::string(kGpt2Pattern)}, "test");
  EXPECT_EQ(words_of(rules, "ab 12c d"), (Words{"ab", " ", "1", "2", "c", " d"}));
  EXPECT_EQ(words_of(SplitRules(), "ab c"), (Words{"ab c"}));
  EXPECT_EQ(words_of(SplitRules({"x*"}, "test"), "axxb"), (Words{"a", "xx", "b"}));
}

TEST(BpeSplit, LongRunsDoNotExhaustTheMatcher) {
  std::string text;
  for (int i = 0; i < 2000000; ++i) text += "\u6587";
  EXPECT_EQ(words_of(gpt2_rules(), text).size(), 1U);
  EXPECT_EQ(words_of(gpt2_rules(), std::string(3000000, '\n') + "\u6587").size(), 3U);
  EXPECT_EQ(words_of(SplitRules({std::string(kLlama3Pattern)}, "test"), text).size(), 1U);
}

TEST(BpeSplit, DamagedPatternIsNamed) {
  expect_error<core::InputError>([] { SplitRules({"a(b"}, "t.json"); }, {"t.json", "a(b", "character 3"});
}

TEST(BpeUtf8, InvalidBytesBecomeOneCharacterEach) {
  EXPECT_EQ(replace_invalid_utf8("plain \u00e9\u6587\U0001F600 \U0010FFFF"), std::nullopt);
  EXPECT_EQ(replace_invalid_utf8("a\xff"
                                 "b\xc3"),
            "a\x01"
            "b\x01");
  EXPECT_EQ(replace_invalid_utf8("\xc0\xaf"), "\x01\x01");          // overlong
  EXPECT_EQ(replace_invalid_utf8("\xed\xa0\x80"), "\x01\x01\x01");  // a surrogate
  EXPECT_EQ(replace_invalid_utf8("\xf4\x90\x80\x80"), "\x01\x01\x01\x01");
  EXPECT_EQ(replace_invalid_utf8("12345678\xe6\x96"
                                 "x"),
            "12345678\x01\x01x");
}

TEST(BpeUtf8, SpellingOfBytes) {
  EXPECT_EQ(spell_bytes(" the\n"), "\u0120the\u010a");
  EXPECT_EQ(unspell_bytes("\u0120the\u010a"), " the\n");
  EXPECT_EQ(unspell_bytes("a b"), std::nullopt);
  EXPECT_EQ(unspell_bytes("\u2581the"), std::nullopt);
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  EXPECT_EQ(unspell_bytes(spell_bytes(all)), all);
  EXPECT_EQ(byte_in_gpt2_order(0), '!');
  EXPECT_EQ(byte_in_gpt2_order(188), 0);
}

}  // namespace
}  // namespace rooflm::text
