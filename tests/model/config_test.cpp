// Presets, overrides and initial values.
#include "model/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "core/error.h"
#include "model/flop_conventions.h"
#include "model/forward.h"
#include "model/parameters.h"

namespace rooflm::model {
namespace {

TEST(Config, UnknownPresetSuggests) {
  try {
    (void)preset("gtp2");
    FAIL();
  } catch (const core::UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'gpt2'"), std::string::npos) << error.what();
  }
}

TEST(Config, HeadsMustDivide) {
  EXPECT_THROW((void)with_overrides(preset("xl"), {.heads = 24}), core::UsageError);
  EXPECT_THROW((void)with_overrides(preset("tiny"), {.kv_heads = 3}), core::UsageError);
  EXPECT_THROW((void)with_overrides(preset("tiny"), {.layers = 0}), core::UsageError);
  EXPECT_THROW((void)with_overrides(preset("tiny"), {.heads = -4}), core::UsageError);
}

/// Frozen weights have a forward product (2 N) and a gradient of their input (2 N), and no gradient of their
/// own.
TEST(Config, FrozenWeightsCountFourPerParameter) {
  const ModelConfig config = preset("gpt2");
  const std::int64_t n = parameter_count(config) - 1024 * 768;  // positions are looked up
  const std::int64_t attention = std::int64_t{12} * 12 * 768 * 64;
  EXPECT_EQ(model_flop_per_token(config, 64, Trained::all), 6 * n + attention);
  EXPECT_EQ(model_flop_per_token(config, 64, Trained::adapters), 4 * n + attention);
  EXPECT_EQ(trained_beside("8,alpha=16"), Trained::adapters);
  EXPECT_EQ(trained_beside(""), Trained::all);
}

TEST(Config, MorePositionsAndOtherHeadSizes) {
  const ModelConfig plain = preset("gpt2");
  const ModelConfig more = with_overrides(plain, {.positions = 1536});
  EXPECT_EQ(parameter_count(more) - parameter_count(plain), 512 * 768);
  EXPECT_EQ(model_flop_per_token(more, 64), model_flop_per_token(plain, 64)) << "positions are looked up";
  EXPECT_NO_THROW((void)forward(more, 1, 1536));
  const ModelConfig wide = with_overrides(plain, {.heads = 16, .head_dim = 64});
  EXPECT_EQ(wide.d_model, 768);
  EXPECT_EQ(wide.head_dim, 64);
  EXPECT_NO_THROW((void)forward(wide, 1, 64));
  EXPECT_EQ(with_overrides(plain, {.heads = 16}).head_dim, 48) << "constant width";
  EXPECT_NO_THROW((void)with_overrides(plain, {.heads = 5, .head_dim = 64})) << "no need to divide the width";
  EXPECT_THROW((void)with_overrides(plain, {.head_dim = 0}), core::UsageError);
}

TEST(Config, AnySizeInTheOtherKind) {
  const ModelConfig c = with_overrides(preset("tiny"), {.arch = Arch::gpt2, .seq = 4096});
  EXPECT_TRUE(c.tied_head);
  EXPECT_EQ(c.max_seq, 4096);
  EXPECT_NO_THROW((void)forward(c, 1, 4096));
  const ModelConfig l = with_overrides(preset("gpt2"), {.arch = Arch::llama});
  EXPECT_FALSE(l.tied_head);
  EXPECT_NO_THROW((void)forward(l, 1, 4096));
}

TEST(Config, SequenceBeyondPositionsIsRefused) {
  EXPECT_THROW((void)forward(preset("gpt2"), 1, 1025), core::UsageError);
  EXPECT_THROW((void)forward(preset("gpt2"), 0, 8), core::UsageError);
}

TEST(Parameters, InitialValuesHaveTheStatedSpreadAndDependOnNameAndSeed) {
  const ModelConfig config = with_overrides(preset("gpt2"), {.layers = 2});
  for (const Parameter& p : parameters(config)) {
    if (p.init != Parameter::Init::normal || p.name == "wte") continue;
    const auto values = initial_values(p, config, 1);
    double sum = 0;
    for (const float v : values) sum += static_cast<double>(v) * v;
    EXPECT_NEAR(std::sqrt(sum / static_cast<double>(values.size())), p.std, 0.02 * p.std) << p.name;
    EXPECT_NE(values, initial_values(p, config, 2));
  }
}

TEST(Parameters, PiecesAreThoseOfTheWhole) {
  const ModelConfig config = preset("tiny");
  const Parameter wte = parameters(config).front();
  const auto whole = initial_values(wte, config, 7);
  for (const std::size_t first : {0U, 1U, 2U, 7U, 4096U}) {
    for (const std::size_t count : {0U, 1U, 3U, 4U, 6U, 1001U}) {
      std::vector<float> piece(count);
      initial_values(wte, config, 7, static_cast<std::int64_t>(first), piece);
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(piece[i], whole[first + i]) << first << " + " << i;
    }
  }
}

TEST(Parameters, PaddingRowsAreZero) {
  const ModelConfig config = preset("gpt2");
  const Parameter wte = parameters(config).front();
  const auto values = initial_values(wte, config, 7);
  const auto first_padding = static_cast<std::size_t>(config.vocab * config.d_model);
  EXPECT_NE(values[first_padding - 1], 0.0F);
  for (std::size_t i = first_padding; i < values.size(); ++i) ASSERT_EQ(values[i], 0.0F);
}

}  // namespace
}  // namespace rooflm::model
