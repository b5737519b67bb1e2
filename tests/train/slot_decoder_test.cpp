// Texts that join and leave a batch: each is what it would be alone.
#include "train/slot_decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "train/decoder.h"
#include "training_testing.h"

namespace rooflm::train {
namespace {

using TokenList = std::vector<std::int32_t>;

struct SlotCase {
  compile::EngineKind engine;
  model::Arch arch;
};

class Slots : public ::testing::TestWithParam<SlotCase> {
 protected:
  Slots() : backend_(testing::backend_for(GetParam().engine)) {
    model::ModelConfig config = testing::tiny_model(GetParam().arch);
    config.vocab = 257;
    config.padded_vocab = 320;
    const compile::StepOptions step{.engine = GetParam().engine,
                                    .attention = compile::default_attention(GetParam().engine)};
    session_ = std::make_unique<Session>(*backend_, config, step);
    session_->initialise(3);
  }

  /// `count` tokens after the prompt, the most likely one each time, read alone.
  TokenList alone(const TokenList& prompt, std::size_t count) {
    Decoder decoder(*session_, {.batch = 1, .positions = 32});
    const std::span<const std::int32_t> seen(prompt);
    const auto most_likely = [](const std::vector<float>& logits) {
      return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
    };
    TokenList text = {most_likely(decoder.prefill({&seen, 1}).at(0))};
    while (text.size() < count) text.push_back(most_likely(decoder.decode({&text.back(), 1}).at(0)));
    return text;
  }

  std::unique_ptr<backends::Backend> backend_;
  std::unique_ptr<Session> session_;
};

/// The second text joins while the first is read on, the third takes the first's slot while the second stays.
TEST_P(Slots, TextsAreThoseThatAreReadAlone) {
  const std::vector<TokenList> prompts = {
      {5, 9, 200, 31, 7}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}, {250}};
  SlotDecoder decoder(*session_, {.batch = 3, .positions = 32}, 20);
  decoder.warm_up();
  std::vector<TokenList> texts(3);
  std::map<std::size_t, std::size_t> in_slot;  // text by slot
  const auto join = [&](std::size_t text, std::size_t slot) {
    texts[text].push_back(decoder.join(slot, prompts[text]));
    in_slot[slot] = text;
  };
  const auto decode = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      const TokenList& next = decoder.decode();
      for (std::size_t slot = 0; slot < next.size(); ++slot) {
        EXPECT_EQ(next[slot] != SlotDecoder::kNoToken, in_slot.contains(slot));
        if (in_slot.contains(slot)) texts[in_slot.at(slot)].push_back(next[slot]);
      }
    }
  };
  join(0, 2);
  decode(3);
  join(1, 0);
  decode(2);
  EXPECT_EQ(decoder.length(2), 5 + 5);
  decoder.leave(2);
  in_slot.erase(2);
  decode(1);
  join(2, 2);
  decode(4);
  EXPECT_EQ(texts[0], alone(prompts[0], 6));
  EXPECT_EQ(texts[1], alone(prompts[1], 8));
  EXPECT_EQ(texts[2], alone(prompts[2], 5));
}

TEST_P(Slots, RefusesWhatDoesNotFit) {
  SlotDecoder decoder(*session_, {.batch = 2, .positions = 8}, 8);
  EXPECT_THROW(decoder.join(0, TokenList(9, 1)), std::logic_error);
  EXPECT_THROW(decoder.join(0, TokenList()), std::logic_error);
  static_cast<void>(decoder.join(0, TokenList(8, 1)));
  EXPECT_THROW(decoder.join(0, TokenList(1, 1)), std::logic_error);
  EXPECT_THROW(decoder.decode(), std::logic_error);
  decoder.leave(0);
  EXPECT_NO_THROW(decoder.decode());
  EXPECT_THROW(SlotDecoder(*session_, {.batch = 2, .positions = 8}, 9), core::UsageError);
}

INSTANTIATE_TEST_SUITE_P(Engines, Slots,
                         ::testing::Values(SlotCase{compile::EngineKind::eager, model::Arch::gpt2},
                                           SlotCase{compile::EngineKind::fused, model::Arch::gpt2},
                                           SlotCase{compile::EngineKind::fused, model::Arch::llama}),
                         [](const auto& test) {
                           return std::string(compile::name_of(test.param.engine)) + "_" +
                                  std::string(model::name_of(test.param.arch));
                         });

}  // namespace
}  // namespace rooflm::train
