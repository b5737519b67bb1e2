// Keys and values in blocks: texts are what they would be alone, however they share steps and blocks.
#include "train/paged_decoder.h"

#include <gtest/gtest.h>

#include <map>

#include "batch_testing.h"
#include "core/error.h"

namespace rooflm::train {
namespace {

using testing::BatchCase;
using testing::kPrompts;
using testing::most_likely;
using testing::TokenList;

class Paged : public testing::BatchTest {
 protected:
  /// Chooses the most likely tokens of all slots that have any; guesses that are right count at once.
  static void take(BatchDecoder& decoder, std::map<std::size_t, TokenList>& texts,
                   const std::map<std::size_t, TokenList>& guesses = {}) {
    for (auto& [slot, text] : texts) {
      for (std::size_t i = 0; i < decoder.computed(slot); ++i) {
        text.push_back(most_likely(decoder.next_logits(slot, i)));
        decoder.choose_next(slot, i, text.back());
        if (!guesses.contains(slot) || i >= guesses.at(slot).size() || guesses.at(slot)[i] != text.back())
          break;
      }
    }
  }
};

/// The long prompt is read four tokens a step, beside the others; blocks of a text that left go to the next.
TEST_P(Paged, TextsAreThoseThatAreReadAlone) {
  PagedDecoder decoder(
      *session_, {.slots = 3, .positions = 32, .longest_prompt = 20, .chunk = 4, .block = 4, .pool = 44});
  decoder.warm_up();
  EXPECT_EQ(decoder.free_blocks(), 11U);
  std::map<std::size_t, TokenList> texts;
  const auto steps = [&](int count) {
    for (int i = 0; i < count; ++i) {
      static_cast<void>(decoder.step());
      take(decoder, texts);
    }
  };
  texts[2] = {};
  decoder.add(2, kPrompts[0], 14);
  steps(4);
  EXPECT_EQ(texts[2].size(), 3U) << "five tokens are two steps of four";
  EXPECT_TRUE(decoder.has_room(28));
  EXPECT_FALSE(decoder.has_room(29));
  texts[0] = {};
  decoder.add(0, kPrompts[1], 27);
  EXPECT_EQ(decoder.step().prefill, 4);
  EXPECT_EQ(decoder.computed(0), 0U) << "its prompt is read";
  take(decoder, texts);
  steps(5);
  EXPECT_EQ(texts[2].size(), 9U) << "others do not wait for a prompt";
  EXPECT_EQ(texts[0].size(), 2U);
  const TokenList first = texts[2];
  decoder.leave(2);
  texts[2] = {};
  decoder.add(2, kPrompts[2], 6);
  steps(5);
  EXPECT_EQ(first, alone(kPrompts[0], 9));
  EXPECT_EQ(texts[0], alone(kPrompts[1], 7));
  EXPECT_EQ(texts[2], alone(kPrompts[2], 5));
}

/// Whatever is guessed, the text is the same; right guesses need fewer steps.
TEST_P(Paged, GuessesChangeNoText) {
  const TokenList expected = alone(kPrompts[0], 12);
  for (const bool are_right : {true, false}) {
    PagedDecoder decoder(*session_,
                         {.slots = 2, .positions = 32, .longest_prompt = 20, .block = 4, .guesses = 3});
    decoder.warm_up();
    std::map<std::size_t, TokenList> texts{{1, {}}};
    decoder.add(1, kPrompts[0], 17);
    int steps = 0;
    std::map<std::size_t, TokenList> guesses;
    while (texts[1].size() < expected.size()) {
      static_cast<void>(decoder.step());
      ++steps;
      take(decoder, texts, guesses);
      TokenList guess;
      for (std::size_t i = texts[1].size(); i < expected.size() && guess.size() < 3; ++i)
        guess.push_back(are_right || guess.empty() ? expected[i] : expected[i] + 1);
      guesses[1] = guess;
      if (!guess.empty()) decoder.guess(1, guess);
    }
    texts[1].resize(expected.size());
    EXPECT_EQ(texts[1], expected);
    EXPECT_EQ(steps, are_right ? 4 : 7) << "four, or two tokens a step after the first";
  }
}

TEST_P(Paged, RefusesWhatDoesNotFit) {
  PagedDecoder decoder(*session_, {.slots = 2, .positions = 8, .longest_prompt = 8, .block = 4, .pool = 8});
  EXPECT_THROW(decoder.add(0, TokenList(9, 1), 9), std::logic_error);
  EXPECT_THROW(decoder.add(0, TokenList(), 9), std::logic_error);
  decoder.add(0, TokenList(4, 1), 5);
  EXPECT_THROW(decoder.add(0, TokenList(1, 1), 1), std::logic_error) << "taken";
  EXPECT_THROW(decoder.add(1, TokenList(1, 1), 1), std::logic_error) << "no blocks";
  decoder.leave(0);
  EXPECT_NO_THROW(decoder.add(1, TokenList(1, 1), 1));
  EXPECT_THROW(PagedDecoder(*session_, {.slots = 2, .positions = 8, .longest_prompt = 9}), core::UsageError);
  EXPECT_THROW(PagedDecoder(*session_, {.slots = 2, .positions = 8, .longest_prompt = 8, .pool = 7}),
               core::UsageError);
}

INSTANTIATE_TEST_SUITE_P(Engines, Paged,
                         ::testing::Values(BatchCase{compile::EngineKind::eager, model::Arch::gpt2},
                                           BatchCase{compile::EngineKind::fused, model::Arch::gpt2},
                                           BatchCase{compile::EngineKind::fused, model::Arch::llama}),
                         testing::name_of_case);

}  // namespace
}  // namespace rooflm::train
