// Evaluation against a computation by hand from logits.
#include "train/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "train/decoder.h"
#include "training_testing.h"

namespace rooflm::train {
namespace {

/// -log softmax(logits)[target], in double.
double cross_entropy(const std::vector<float>& logits, std::int32_t target) {
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x));
  return std::log(sum) - logits[static_cast<std::size_t>(target)];
}

class EvaluateTest : public ::testing::TestWithParam<compile::EngineKind> {};

TEST_P(EvaluateTest, EqualsTheMeanOverAllTokens) {
  const testing::ScratchDirectory directory;
  const auto path = testing::write_shard(directory / "val.bin", 2 * 3 * 8 + 5, 57);
  const auto backend = testing::backend_for(GetParam());
  const compile::StepOptions step{.engine = GetParam(), .attention = compile::default_attention(GetParam())};
  Session session(*backend, testing::tiny_model(), step);
  session.make_loss_engine(3, 8);
  session.initialise(1);
  for (const auto& name : {"wte", "h.0.attention.qkv.weight"}) {  // far from uniform
    auto values = session.weight(name);
    for (float& x : values) x *= 20;
    session.store().write<float>(name, values);
  }
  const EvalBatches batches({path}, 3, 8, 57);
  const Evaluation result = evaluate(session, batches);
  EXPECT_EQ(result.batches, 2U);
  EXPECT_EQ(result.tokens, 48U);

  std::vector<std::int32_t> all(53);
  text::Shard(path).read(0, all);
  double sum = 0;
  Decoder decoder(session, {.batch = 1, .positions = 16});
  for (std::size_t row = 0; row < 6; ++row) {
    for (std::size_t t = 0; t < 8; ++t) {
      const auto seen = std::span<const std::int32_t>(all).subspan(row * 8, t + 1);
      sum += cross_entropy(decoder.prefill({&seen, 1}).at(0), all[row * 8 + t + 1]);
    }
  }
  EXPECT_NEAR(result.loss, sum / 48, 1e-5);
  EXPECT_NEAR(result.perplexity, std::exp(sum / 48), 1e-3 * std::exp(sum / 48));
  EXPECT_GT(std::abs(result.loss - std::log(57.0)), 0.1) << "the weights should matter";

  const Evaluation first = evaluate(session, batches, 1);
  EXPECT_EQ(first.batches, 1U);
  EXPECT_EQ(first.tokens, 24U);
}

TEST_P(EvaluateTest, ShortValidationGetsSmallerBatches) {
  const testing::ScratchDirectory directory;
  const auto path = testing::write_shard(directory / "val.bin", 20, 57);
  std::int64_t batch = 8;
  const auto batches = open_validation({path}, batch, 8, 57);
  ASSERT_NE(batches, nullptr);
  EXPECT_EQ(batch, 2);
  batch = 8;
  EXPECT_EQ(open_validation({path}, batch, 20, 57), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Engines, EvaluateTest,
                         ::testing::Values(compile::EngineKind::eager, compile::EngineKind::fused),
                         [](const auto& test) { return std::string(compile::name_of(test.param)); });

}  // namespace
}  // namespace rooflm::train
