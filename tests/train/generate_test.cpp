// Sampling: one token, whole characters, whole texts.
#include "train/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "train/decoder.h"
#include "training_testing.h"

namespace rooflm::train {
namespace {

const std::vector<float> kLogits = {std::log(0.1F), std::log(0.5F), std::log(0.15F), std::log(0.25F)};

TEST(SampleToken, GreedyTakesTheFirstOfTheLargest) {
  EXPECT_EQ(sample_token(kLogits, {.temperature = 0}, 0.99), 1);
  EXPECT_EQ(sample_token(std::vector<float>{1, 3, 3}, {.temperature = 0}, 0.5), 1);
}

TEST(SampleToken, FollowsTheCumulativeProbability) {
  const SamplingOptions o{.temperature = 1};
  EXPECT_EQ(sample_token(kLogits, o, 0.0), 1);
  EXPECT_EQ(sample_token(kLogits, o, 0.49), 1);
  EXPECT_EQ(sample_token(kLogits, o, 0.51), 3);
  EXPECT_EQ(sample_token(kLogits, o, 0.74), 3);
  EXPECT_EQ(sample_token(kLogits, o, 0.76), 2);
  EXPECT_EQ(sample_token(kLogits, o, 0.91), 0);
  EXPECT_EQ(sample_token(kLogits, o, 0.999999999), 0);
}

TEST(SampleToken, TopKAndTopPCutTheTail) {
  const SamplingOptions k{.temperature = 1, .top_k = 2};  // 0.5 and 0.25 become 2/3 and 1/3
  EXPECT_EQ(sample_token(kLogits, k, 0.66), 1);
  EXPECT_EQ(sample_token(kLogits, k, 0.67), 3);
  EXPECT_EQ(sample_token(kLogits, k, 0.9999), 3);
  const SamplingOptions p{.temperature = 1, .top_p = 0.7};
  EXPECT_EQ(sample_token(kLogits, p, 0.9999), 3);
  EXPECT_EQ(sample_token(kLogits, {.temperature = 1, .top_p = 0.4}, 0.9999), 1);
  EXPECT_EQ(sample_token(kLogits, {.temperature = 1, .top_k = 100}, 0.9999), 0);
}

TEST(SampleToken, MinPLeavesWhatIsLikelyEnough) {
  const SamplingOptions o{.temperature = 1, .min_p = 0.4};  // of 0.5: 0.2
  EXPECT_EQ(sample_token(kLogits, o, 0.66), 1);
  EXPECT_EQ(sample_token(kLogits, o, 0.9999), 3);
  EXPECT_EQ(sample_token(kLogits, {.temperature = 1, .min_p = 1}, 0.9999), 1);
}

/// Of many tokens, as if all were sorted.
TEST(SampleToken, OfManyTokensTheSameAsSortedOnes) {
  constexpr int kTokens = 1000;
  std::vector<float> logits;
  for (int i = 0; i < kTokens; ++i) logits.push_back(static_cast<float>((i * 7919) % kTokens) * 0.004F);
  std::vector<std::int32_t> sorted(kTokens);
  std::iota(sorted.begin(), sorted.end(), 0);
  std::ranges::stable_sort(sorted, std::greater<>{},
                           [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; });
  for (const double top_p : {0.05, 0.3, 0.9, 1.0}) {
    std::vector<double> cumulative;
    double sum = 0;
    for (const std::int32_t id : sorted)
      cumulative.push_back(sum += std::exp(logits[static_cast<std::size_t>(id)]));
    const auto kept = static_cast<std::size_t>(
        std::ranges::lower_bound(cumulative, top_p * sum * (1 - 1e-12)) - cumulative.begin());
    for (int i = 0; i < 200; ++i) {
      const double number = (i + 0.5) / 200;
      const auto at =
          std::upper_bound(cumulative.begin(), cumulative.begin() + static_cast<std::ptrdiff_t>(kept),
                           number * cumulative[kept]);
      EXPECT_EQ(sample_token(logits, {.temperature = 1, .top_p = top_p}, number),
                sorted[static_cast<std::size_t>(at - cumulative.begin())])
          << top_p << " " << number;
    }
  }
}

TEST(SampleToken, LowTemperatureSharpensAndNanIsRefused) {
  EXPECT_EQ(sample_token(kLogits, {.temperature = 0.05}, 0.99), 1);
  auto bad = kLogits;
  bad[2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(sample_token(bad, {}, 0.5), core::CheckFailed);
}

TEST(Utf8Stream, GivesOutWholeCharacters) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z";  // a é € 😀 z
  Utf8Stream stream;
  std::string all;
  for (const char byte : text) {
    const std::string piece = stream.append(std::string(1, byte));
    EXPECT_TRUE(piece.empty() || static_cast<unsigned char>(piece.back()) < 0x80 || piece.size() > 1);
    all += piece;
  }
  EXPECT_EQ(all + stream.finish(), text);
}

TEST(Utf8Stream, ReplacesWhatIsNoUtf8) {
  const std::string r = "\xEF\xBF\xBD";
  const auto whole = [](const std::string& bytes) {
    Utf8Stream stream;
    const std::string text = stream.append(bytes);
    return text + stream.finish();
  };
  EXPECT_EQ(whole("\x80x"), r + "x");
  EXPECT_EQ(whole("\xE2\x82"), r);  // unfinished
  EXPECT_EQ(whole("\xE2\x82"
                  "A"),
            r + "A");                           // broken off
  EXPECT_EQ(whole("\xC0\xAF"), r + r);          // overlong
  EXPECT_EQ(whole("\xED\xA0\x80"), r + r + r);  // a surrogate
  EXPECT_EQ(whole("\xF5\x80"), r + r);          // beyond U+10FFFF
}

class Generate : public ::testing::TestWithParam<compile::EngineKind> {
 protected:
  Generate() : backend_(testing::backend_for(GetParam())) {
    model::ModelConfig config = testing::tiny_model();
    config.vocab = 257;
    config.padded_vocab = 320;
    const compile::StepOptions step{.engine = GetParam(),
                                    .attention = compile::default_attention(GetParam())};
    session_ = std::make_unique<Session>(*backend_, config, step);
    session_->initialise(3);
  }
  std::string text(const std::string& prompt, const SamplingOptions& options) {
    std::string result;
    generate(*session_, testing::byte_tokenizer(), {&prompt, 1}, options,
             [&](std::size_t, const std::string& more) { result += more; });
    return result;
  }
  std::vector<std::string> texts(const std::vector<std::string>& prompts, const SamplingOptions& options,
                                 Generation* made = nullptr) {
    std::vector<std::string> results(prompts.size());
    Generation generation = generate(*session_, testing::byte_tokenizer(), prompts, options,
                                     [&](std::size_t i, const std::string& more) { results[i] += more; });
    if (made != nullptr) *made = generation;
    return results;
  }
  std::unique_ptr<backends::Backend> backend_;
  std::unique_ptr<Session> session_;
};

TEST_P(Generate, IsDeterminedByTheSeed) {
  const SamplingOptions o{.tokens = 40, .temperature = 1, .seed = 5, .stop_at_eot = false};
  SamplingOptions other = o;
  other.seed = 6;
  const std::string first = text("abc", o);
  EXPECT_EQ(text("abc", o), first);
  EXPECT_NE(text("abc", other), first);
}

TEST_P(Generate, GoesOnBeyondThePositionsOfTheModel) {
  const SamplingOptions o{.tokens = 45, .temperature = 1, .stop_at_eot = false};
  const std::string prompt;
  std::int64_t pieces = 0;
  const Generation made = generate(*session_, testing::byte_tokenizer(), {&prompt, 1}, o,
                                   [&](std::size_t, const std::string&) { ++pieces; });
  EXPECT_EQ(made.tokens, std::vector<std::int64_t>{45});
  EXPECT_EQ(pieces, 45);
  ASSERT_EQ(made.size.positions, 32);
  // The prompt is one token: 31 fit behind it, and from then on the window is read anew.
  for (std::size_t i = 0; i < made.steps.size(); ++i)
    EXPECT_EQ(made.steps[i].is_prefill, i == 0 || i > 31) << i;
}

/// Prompts of different lengths, one of which ends beyond the window, and a text that ends early.
TEST_P(Generate, TextsAreThoseThatReadEverythingAnewOneByOne) {
  const std::vector<std::string> prompts = {"abc", "", "a longer beginning of a text, to"};
  for (const double temperature : {0.0, 0.9}) {
    SamplingOptions o{.tokens = 20, .temperature = temperature, .seed = 5, .stop_at_eot = false};
    Generation made;
    const std::vector<std::string> together = texts(prompts, o, &made);
    EXPECT_EQ(made.prompt_tokens, (std::vector<std::int64_t>{3, 1, 32}));
    EXPECT_TRUE(std::ranges::any_of(made.steps, &GenerationStep::is_prefill));
    o.cache = false;
    EXPECT_EQ(texts(prompts, o, &made), together);
    EXPECT_TRUE(std::ranges::all_of(made.steps, &GenerationStep::is_prefill));
    EXPECT_EQ(text(prompts[0], o), together[0]);
    if (temperature == 0) {
      EXPECT_EQ(text(prompts[2], o), together[2]);
    }
  }
}

TEST_P(Generate, KeepsOnWhereOtherTextsAreDone) {
  SamplingOptions o{.tokens = 12, .temperature = 1, .seed = 1};
  for (; o.seed < 200; ++o.seed) {  // until one text ends before the other
    Generation made;
    static_cast<void>(texts({"ab", "cd"}, o, &made));
    if (made.tokens[0] == made.tokens[1]) continue;
    EXPECT_EQ(static_cast<std::int64_t>(made.steps.size()), std::max(made.tokens[0], made.tokens[1]));
    EXPECT_EQ(made.steps.back().texts, 1);
    return;
  }
  FAIL() << "no text ended";
}

TEST_P(Generate, PaddingDoesNotMatter) {
  const std::vector<std::int32_t> tokens = {5, 9, 200, 31, 7};
  const std::vector<std::int32_t> longer(20, 1);
  Decoder decoder(*session_, {.batch = 1, .positions = 32});
  const auto read = [&](const std::vector<std::int32_t>& text) {
    const std::span<const std::int32_t> seen(text);
    return decoder.prefill({&seen, 1}).at(0);
  };
  const auto in_short_program = read(tokens);
  static_cast<void>(read(longer));  // now the program is 32 long
  const auto in_long_program = read(tokens);
  ASSERT_EQ(in_short_program.size(), 257U);
  for (std::size_t i = 0; i < 257; ++i) EXPECT_NEAR(in_short_program[i], in_long_program[i], 1e-5);
}

TEST_P(Generate, ADecoderRefusesWhatDoesNotFit) {
  Decoder decoder(*session_, {.batch = 1, .positions = 16});
  const std::vector<std::int32_t> long_text(17, 1);
  const std::vector<std::int32_t> full_text(16, 1);
  const std::span<const std::int32_t> too_long(long_text);
  const std::span<const std::int32_t> full(full_text);
  EXPECT_THROW(decoder.prefill({&too_long, 1}), std::logic_error);
  static_cast<void>(decoder.prefill({&full, 1}));
  EXPECT_THROW(decoder.decode(std::vector<std::int32_t>{1}), std::logic_error);
  EXPECT_NO_THROW(decoder.decode(std::vector<std::int32_t>{Decoder::kNoToken}));
}

TEST_P(Generate, RefusesBadOptions) {
  EXPECT_THROW(text("a", {.tokens = 0}), core::UsageError);
  EXPECT_THROW(text("a", {.temperature = -1}), core::UsageError);
  EXPECT_THROW(text("a", {.top_p = 0}), core::UsageError);
}

INSTANTIATE_TEST_SUITE_P(Engines, Generate,
                         ::testing::Values(compile::EngineKind::eager, compile::EngineKind::fused),
                         [](const auto& test) { return std::string(compile::name_of(test.param)); });

}  // namespace
}  // namespace rooflm::train
