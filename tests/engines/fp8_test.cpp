// Training in fp8: it follows bf16, engines agree, and its scales are state that a run continues with.
#include "program/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/compile/passes/recipes.h"
#include "tests/engines/step_runner.h"

namespace rooflm::fp8 {
namespace {

using compile::EngineKind;
using compile::StepOptions;
using model::Arch;
using tests::StepRunner;

constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kSeq = 16;
constexpr double kRate = 3e-3;
constexpr const char* kState = "fp8_scales";

StepOptions make(EngineKind engine, bool fp8 = true) {
  return {.engine = engine,
          .attention = compile::default_attention(engine),
          .dtype = core::DType::bf16,
          .fp8 = fp8};
}

tests::Batch batch_of(const model::ModelConfig& config, int step) {
  return tests::random_batch(kBatch * kSeq, config.vocab, static_cast<std::uint64_t>(step % 3));
}

class Fp8 : public testing::TestWithParam<Arch> {
 protected:
  [[nodiscard]] StepRunner runner(const StepOptions& options) const {
    const auto config = tests::even_config(GetParam());
    return {config, kBatch / options.micro_batches, kSeq, options, tests::initial_weights(config)};
  }
  double step(StepRunner& model, int index) const {
    return model.step(batch_of(tests::even_config(GetParam()), index), kRate);
  }
  [[nodiscard]] std::vector<double> losses(const StepOptions& options, int steps = 8) const {
    StepRunner model = runner(options);
    std::vector<double> result;
    for (int i = 0; i < steps; ++i) result.push_back(step(model, i));
    return result;
  }
};

std::map<std::string, std::vector<float>> contents_of(StepRunner& model) {
  std::map<std::string, std::vector<float>> contents;
  const engines::TensorStore& store = model.engine().store();
  for (const auto& [name, entry] : store.entries()) {
    if (entry.tensor.dtype == core::DType::f32) contents[name] = store.read<float>(name);
  }
  return contents;
}

/// e4m3 has 3 bits of mantissa, e5m2 2: a factor is off by 2^-5 and 2^-4 on average at most, sums of many by
/// less. bf16 stays within 2 % of fp32.
TEST_P(Fp8, StaysNearBf16OnEitherEngine) {
  const auto expected = losses(make(EngineKind::eager, false));
  StepOptions e5m2 = make(EngineKind::fused);
  e5m2.fp8_options.gradients = passes::Fp8Gradients::e5m2;
  StepOptions current = make(EngineKind::fused);
  current.fp8_options.scaling = passes::Fp8Scaling::current;
  for (const StepOptions& options : {make(EngineKind::eager), make(EngineKind::fused), e5m2, current}) {
    const auto actual = losses(options);
    for (std::size_t i = 0; i < actual.size(); ++i) {
      EXPECT_NEAR(actual[i], expected[i], 2e-2 * expected[i])
          << name_of(options.engine) << " " << name_of(options.fp8_options.gradients) << " "
          << name_of(options.fp8_options.scaling) << " step " << i;
    }
    EXPECT_NE(actual, expected);
  }
}

TEST_P(Fp8, RecomputeKindsGiveTheSameBits) {
  for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
    StepRunner plain = runner(make(engine));
    for (int i = 0; i < 2; ++i) step(plain, i);
    for (const auto kind : {passes::Recompute::selective, passes::Recompute::full}) {
      StepOptions options = make(engine);
      options.recompute = kind;
      options.fp8_options.weights = passes::Fp8Weights::recast;
      StepRunner again = runner(options);
      for (int i = 0; i < 2; ++i) step(again, i);
      EXPECT_EQ(contents_of(again), contents_of(plain)) << name_of(engine) << " " << name_of(kind);
    }
  }
}

/// What a store holds is all that a run continues with.
TEST_P(Fp8, ContinuesBitForBit) {
  for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
    StepRunner whole = runner(make(engine));
    for (int i = 0; i < 3; ++i) step(whole, i);
    const auto saved = contents_of(whole);
    StepRunner rest = runner(make(engine));
    for (int i = 0; i < 3; ++i) step(rest, i + 7);  // bias corrections count steps
    for (const auto& [name, values] : saved) rest.engine().store().write<float>(name, values);
    rest.engine().setup();
    for (int i = 3; i < 6; ++i) EXPECT_EQ(step(rest, i), step(whole, i));
    EXPECT_EQ(contents_of(rest), contents_of(whole));
  }
}

/// The largest number of a step is at the top of its history; scales take the largest of it into the last
/// binade of e4m3, and are powers of two.
TEST_P(Fp8, ScalesFollowTheHistory) {
  StepRunner model = runner(make(EngineKind::fused));
  std::vector<float> before;
  for (int i = 0; i < 3; ++i) {
    step(model, i);
    const auto state = model.engine().store().read<float>(kState);
    ASSERT_EQ(state.size(), 2U * 4 * program::kFp8Operands * program::kFp8Slot);
    for (std::size_t slot = 0; slot < state.size(); slot += program::kFp8Slot) {
      const float scale = state.at(slot + program::kFp8Scale);
      const float largest = *std::max_element(&state[slot + program::kFp8FirstAmax],
                                              &state[slot + program::kFp8FirstAmax] + program::kFp8History);
      EXPECT_EQ(state.at(slot + program::kFp8Amax), 0.0F);
      EXPECT_EQ(scale * state.at(slot + program::kFp8Inverse), 1.0F);
      EXPECT_EQ(scale, std::exp2(std::round(std::log2(scale))));
      EXPECT_LE(scale * largest, 448.0F);
      EXPECT_GT(scale * largest, 223.0F);
      if (before.empty()) continue;
      EXPECT_EQ(state.at(slot + program::kFp8FirstAmax + 1), before.at(slot + program::kFp8FirstAmax));
    }
    before = state;
  }
}

INSTANTIATE_TEST_SUITE_P(BothKinds, Fp8, testing::Values(Arch::gpt2, Arch::llama),
                         [](const auto& kind) { return std::string(model::name_of(kind.param)); });

TEST(Fp8Scale, IsTheLargestPowerOfTwoThatFits) {
  for (const float largest : {448.0F, 57344.0F}) {
    for (float amax = 1e-12F; amax < 1e12F; amax *= 1.07F) {
      const float scale = program::fp8_scale_for(amax, largest);
      EXPECT_LE(scale * amax, largest);
      EXPECT_GT(2 * scale * amax, largest);
    }
    EXPECT_EQ(program::fp8_scale_for(largest, largest), 1.0F);
    EXPECT_EQ(program::fp8_scale_for(std::nextafter(largest, 1e9F), largest), 0.5F);
  }
}

TEST(Fp8Scale, StaysFiniteForAnyMagnitude) {
  for (const float amax : {1e-44F, 1e-38F, 1e38F}) {
    std::vector<float> slot(program::kFp8Slot, 0.0F);
    slot[program::kFp8Amax] = amax;
    program::fp8_next_scale(slot.data(), 448);
    EXPECT_TRUE(std::isnormal(slot[program::kFp8Scale]) && std::isnormal(slot[program::kFp8Inverse])) << amax;
  }
}

/// A step whose numbers were none keeps the scale and the history.
TEST(Fp8Scale, ForgetsWhatIsNoNumber) {
  std::vector<float> slot(program::kFp8Slot, 0.0F);
  slot[program::kFp8Amax] = 3;
  program::fp8_next_scale(slot.data(), 448);
  const auto good = slot;
  for (const float bad : {HUGE_VALF, std::nanf("")}) {
    slot[program::kFp8Amax] = bad;
    program::fp8_next_scale(slot.data(), 448);
    EXPECT_EQ(slot, good);
  }
}

}  // namespace
}  // namespace rooflm::fp8
