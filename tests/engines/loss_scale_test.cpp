// fp16 with dynamic loss scaling: it follows fp32, skips steps whose gradients overflow, and keeps its scale.
#include "program/loss_scale.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/compile/passes/recipes.h"
#include "tests/engines/step_runner.h"

namespace rooflm::loss_scale {
namespace {

using compile::EngineKind;
using compile::StepOptions;
using model::Arch;
using tests::StepRunner;

constexpr std::int64_t kBatch = 4;
constexpr std::int64_t kSeq = 13;
constexpr const char* kWeight = "h.1.feed_forward.fc1.weight";

compile::StepOptions make(compile::EngineKind engine, core::DType dtype, int micro_batches = 1) {
  return {.engine = engine,
          .attention = compile::default_attention(engine),
          .dtype = dtype,
          .micro_batches = micro_batches};
}

tests::Batch batch_of(const model::ModelConfig& config, int step) {
  return tests::random_batch(kBatch * kSeq, config.vocab, static_cast<std::uint64_t>(step % 3));
}

class LossScale : public testing::TestWithParam<Arch> {
 protected:
  [[nodiscard]] StepRunner runner(const compile::StepOptions& options) const {
    const auto config = tests::small_config(GetParam());
    return {config, kBatch / options.micro_batches, kSeq, options, tests::initial_weights(config)};
  }
  [[nodiscard]] std::vector<double> losses(const compile::StepOptions& options) const {
    constexpr int kSteps = 20;
    StepRunner model = runner(options);
    std::vector<double> result;
    for (int i = 0; i < kSteps; ++i) {
      result.push_back(model.step(batch_of(tests::small_config(GetParam()), i), 3e-3));
    }
    return result;
  }
};

std::vector<float> state_of(StepRunner& model) { return model.engine().store().read<float>("loss_scale"); }

/// fp16 has three bits of mantissa more than bf16, whose losses stay within 2 %.
TEST_P(LossScale, Fp16StaysNearFp32) {
  const auto expected = losses(make(compile::EngineKind::eager, core::DType::f32));
  for (const compile::EngineKind engine : {compile::EngineKind::eager, compile::EngineKind::fused}) {
    for (const int splits : {1, 2}) {
      const auto actual = losses(make(engine, core::DType::f16, splits));
      for (std::size_t i = 0; i < actual.size(); ++i) {
        EXPECT_NEAR(actual[i], expected[i], 3e-3 * expected[i]) << compile::name_of(engine) << " step " << i;
      }
    }
  }
}

TEST_P(LossScale, TheNormIsThatOfTheGradientsThemselves) {
  const auto config = tests::small_config(GetParam());
  StepRunner exact = runner(make(compile::EngineKind::eager, core::DType::f32));
  StepRunner scaled = runner(make(compile::EngineKind::eager, core::DType::f16));
  exact.step(batch_of(config, 0));
  scaled.step(batch_of(config, 0));
  EXPECT_NEAR(scaled.gradient_norm(), exact.gradient_norm(), 3e-3 * exact.gradient_norm());
}

/// At 2^40 every gradient overflows: nothing may change but the scale, until it fits again.
TEST_P(LossScale, StepsThatOverflowAreSkipped) {
  constexpr float kTooHigh = 24;
  const auto config = tests::small_config(GetParam());
  for (const compile::EngineKind engine : {compile::EngineKind::eager, compile::EngineKind::fused}) {
    StepRunner model = runner(make(engine, core::DType::f16));
    model.step(batch_of(config, 0));
    model.engine().store().write<float>("loss_scale", std::vector<float>{kTooHigh, 5, 0});
    const auto before = model.weight(kWeight);
    const auto moments = model.weight(std::string("m.") + kWeight);
    const double loss = model.step(batch_of(config, 1));
    EXPECT_TRUE(std::isfinite(loss));
    EXPECT_FALSE(std::isfinite(model.gradient_norm()));
    EXPECT_EQ(model.weight(kWeight), before);
    EXPECT_EQ(model.weight(std::string("m.") + kWeight), moments);
    EXPECT_EQ(state_of(model), (std::vector<float>{kTooHigh - 1, 0, 1}));
    int skipped = 1;
    while (model.weight(kWeight) == before && skipped < 60) {
      model.step(batch_of(config, 1));
      ++skipped;
    }
    EXPECT_TRUE(std::isfinite(model.gradient_norm()));
    const auto state = state_of(model);
    EXPECT_EQ(state[program::kSkippedUpdates], static_cast<float>(skipped - 1));
    EXPECT_EQ(state[program::kScaleExponent], kTooHigh - static_cast<float>(skipped - 1));
    EXPECT_EQ(state[program::kGoodUpdates], 1.0F);
  }
}

TEST_P(LossScale, TheScaleGrowsAfterManyGoodSteps) {
  const auto config = tests::small_config(GetParam());
  StepRunner model = runner(make(compile::EngineKind::fused, core::DType::f16));
  model.engine().store().write<float>("loss_scale",
                                      std::vector<float>{-4, program::kUpdatesUntilGrowth - 2, 0});
  model.step(batch_of(config, 0));
  EXPECT_EQ(state_of(model).at(program::kScaleExponent), -4.0F);
  model.step(batch_of(config, 1));
  EXPECT_EQ(state_of(model), (std::vector<float>{-3, 0, 0}));
}

/// Without clipping nobody asks for the norm, but overflow has to be noticed all the same.
TEST_P(LossScale, OverflowIsNoticedWithoutClipping) {
  const auto config = tests::small_config(GetParam());
  compile::StepOptions options = make(compile::EngineKind::fused, core::DType::f16);
  options.optimizer.clip_norm = 0;
  StepRunner model = runner(options);
  const auto start = model.weight(kWeight);
  model.step(batch_of(config, 0));
  const auto moved = model.weight(kWeight);
  EXPECT_NE(moved, start);
  model.engine().store().write<float>("loss_scale", std::vector<float>{24, 0, 0});
  model.step(batch_of(config, 1));
  EXPECT_EQ(model.weight(kWeight), moved);
}

INSTANTIATE_TEST_SUITE_P(BothKinds, LossScale, testing::Values(Arch::gpt2, Arch::llama),
                         [](const auto& kind) { return std::string(model::name_of(kind.param)); });

}  // namespace
}  // namespace rooflm::loss_scale
