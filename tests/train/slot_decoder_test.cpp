// Texts that join and leave a batch: each is what it would be alone.
#include "train/slot_decoder.h"

#include <gtest/gtest.h>

#include <map>

#include "batch_testing.h"
#include "core/error.h"

namespace rooflm::train {
namespace {

using testing::BatchCase;
using testing::kPrompts;
using testing::TokenList;

class Slots : public testing::BatchTest {};

/// The second text joins while the first is read on, the third takes the first's slot while the second stays.
TEST_P(Slots, TextsAreThoseThatAreReadAlone) {
  SlotDecoder decoder(*session_, {.batch = 3, .positions = 32}, 20);
  decoder.warm_up();
  std::vector<TokenList> texts(3);
  std::map<std::size_t, std::size_t> in_slot;  // text by slot
  const auto join = [&](std::size_t text, std::size_t slot) {
    texts[text].push_back(decoder.join(slot, kPrompts[text]));
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
  EXPECT_EQ(texts[0], alone(kPrompts[0], 6));
  EXPECT_EQ(texts[1], alone(kPrompts[1], 8));
  EXPECT_EQ(texts[2], alone(kPrompts[2], 5));
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
                         ::testing::Values(BatchCase{compile::EngineKind::eager, model::Arch::gpt2},
                                           BatchCase{compile::EngineKind::fused, model::Arch::gpt2},
                                           BatchCase{compile::EngineKind::fused, model::Arch::llama}),
                         testing::name_of_case);

}  // namespace
}  // namespace rooflm::train
