// Every way of running a step computes the same numbers: engines, attention kinds, recompute kinds, splits of
// the batch, thread counts.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/compile/passes/recipes.h"
#include "tests/engines/step_runner.h"

namespace rooflm {
namespace {

using compile::EngineKind;
using compile::StepOptions;
using model::Arch;
using passes::AttentionKind;
using passes::Recompute;
using tests::StepRunner;

constexpr int kSteps = 20;
constexpr std::int64_t kBatch = 4;
constexpr std::int64_t kSeq = 13;

compile::StepOptions make(compile::EngineKind engine, AttentionKind attention,
                          Recompute recompute = Recompute::none, int micro_batches = 1,
                          core::DType dtype = core::DType::f32) {
  return {.engine = engine,
          .attention = attention,
          .dtype = dtype,
          .recompute = recompute,
          .micro_batches = micro_batches};
}

struct Outcome {
  std::vector<double> losses;
  std::vector<double> last_weight;
};

/// Learning to repeat one of three batches, so the loss moves far within 20 steps.
Outcome train(const model::ModelConfig& config, const compile::StepOptions& options, int threads = 2) {
  StepRunner runner(config, kBatch / options.micro_batches, kSeq, options, tests::initial_weights(config),
                    threads);
  Outcome outcome;
  for (int i = 0; i < kSteps; ++i) {
    outcome.losses.push_back(runner.step(
        tests::random_batch(kBatch * kSeq, config.vocab, static_cast<std::uint64_t>(i % 3)), 3e-3));
  }
  outcome.last_weight = runner.weight("h.1.feed_forward.fc1.weight");
  return outcome;
}

Outcome train(Arch arch, const compile::StepOptions& options, int threads = 2) {
  return train(tests::small_config(arch), options, threads);
}

/// A llama with every bias that a relative of it may have.
model::ModelConfig biased_config() {
  model::ModelConfig config = tests::small_config(Arch::llama);
  config.qkv_bias = config.proj_bias = config.mlp_bias = true;
  return config;
}

void expect_close(const Outcome& a, const Outcome& b, double relative) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_NEAR(a.losses[i], b.losses[i], relative * std::abs(b.losses[i])) << "step " << i;
  }
}

class Equivalence : public testing::TestWithParam<Arch> {};

/// fp32 accumulates in another order, nothing else: 1e-4 relative over 20 steps.
TEST_P(Equivalence, EnginesAndAttentionKindsAgreeInFp32) {
  const Outcome reference = train(GetParam(), make(compile::EngineKind::eager, AttentionKind::batched));
  EXPECT_LT(reference.losses.back(), reference.losses.front() - 0.5) << "the model does not learn";
  for (const compile::EngineKind engine : {compile::EngineKind::eager, compile::EngineKind::fused}) {
    for (const AttentionKind attention :
         {AttentionKind::looped, AttentionKind::batched, AttentionKind::flash}) {
      SCOPED_TRACE(std::string(compile::name_of(engine)) + " " + std::string(passes::name_of(attention)));
      expect_close(train(GetParam(), make(engine, attention)), reference, 1e-4);
    }
  }
}

/// Single precision against double precision of the same program.
TEST_P(Equivalence, Fp32FollowsFp64) {
  const Outcome fp64 = train(GetParam(), make(compile::EngineKind::eager, AttentionKind::batched,
                                              Recompute::none, 1, core::DType::f64));
  expect_close(train(GetParam(), make(compile::EngineKind::fused, AttentionKind::flash)), fp64, 1e-4);
}

TEST_P(Equivalence, SplitsOfTheBatchAgree) {
  for (const compile::EngineKind engine : {compile::EngineKind::eager, compile::EngineKind::fused}) {
    const Outcome whole = train(GetParam(), make(engine, compile::default_attention(engine)));
    for (const int splits : {2, 4}) {
      SCOPED_TRACE(std::string(compile::name_of(engine)) + " in " + std::to_string(splits));
      expect_close(
          train(GetParam(), make(engine, compile::default_attention(engine), Recompute::none, splits)), whole,
          1e-4);
    }
  }
}

/// Logits of 71 columns in rows of 128: the same matmuls, and nothing else takes part.
TEST_P(Equivalence, PaddedLogitsAgree) {
  for (const core::DType dtype : {core::DType::f32, core::DType::bf16}) {
    for (const int splits : {1, 2}) {
      auto options = make(compile::EngineKind::fused, AttentionKind::flash, Recompute::none, splits, dtype);
      const Outcome dense = train(GetParam(), options);
      options.logits_padding = 64;
      expect_close(train(GetParam(), options), dense, dtype == core::DType::f32 ? 1e-4 : 1e-2);
    }
  }
}

TEST_P(Equivalence, ThreadCountsAgree) {
  for (const compile::EngineKind engine : {compile::EngineKind::eager, compile::EngineKind::fused}) {
    const auto options = make(engine, compile::default_attention(engine));
    expect_close(train(GetParam(), options, 1), train(GetParam(), options, 3), 1e-4);
  }
}

TEST_P(Equivalence, RecomputeKindsAndRunsAreBitIdentical) {
  for (const core::DType dtype : {core::DType::f32, core::DType::bf16}) {
    for (const compile::EngineKind engine : {compile::EngineKind::eager, compile::EngineKind::fused}) {
      for (const AttentionKind attention : {AttentionKind::batched, AttentionKind::flash}) {
        const Outcome none = train(GetParam(), make(engine, attention, Recompute::none, 1, dtype));
        for (const Recompute kind :
             {Recompute::none, Recompute::selective, Recompute::every_other, Recompute::full}) {
          SCOPED_TRACE(std::string(compile::name_of(engine)) + " " + std::string(passes::name_of(attention)) +
                       " " + std::string(passes::name_of(kind)));
          const Outcome other = train(GetParam(), make(engine, attention, kind, 1, dtype));
          EXPECT_EQ(none.losses, other.losses);
          EXPECT_EQ(none.last_weight, other.last_weight);
        }
      }
    }
  }
}

/// An activation that a gradient writes again is the one that the forward pass wrote.
TEST_P(Equivalence, RebuiltActivationsAreBitIdentical) {
  const auto config = tests::small_config(GetParam());
  for (const core::DType dtype : {core::DType::f32, core::DType::bf16}) {
    for (const int splits : {1, 2}) {
      std::vector<std::vector<double>> seen;
      for (const Recompute kind :
           {Recompute::none, Recompute::selective, Recompute::every_other, Recompute::full}) {
        for (const bool rebuild : {false, true}) {
          auto options = make(compile::EngineKind::fused, AttentionKind::flash, kind, splits, dtype);
          options.rewrites.set(compile::Rewrite::rebuild, rebuild);
          options.rewrites.set(compile::Rewrite::bias_in_gradients, rebuild);
          StepRunner runner(config, kBatch / splits, kSeq, options, tests::initial_weights(config),
                            backends::make_cpu_backend(backends::CpuKernels::reference, 2));
          std::vector<double> numbers;
          for (int i = 0; i < 5; ++i)
            numbers.push_back(runner.step(tests::random_batch(kBatch * kSeq, config.vocab, 1), 3e-3));
          for (const double weight : runner.weight("h.0.feed_forward.fc2.weight")) numbers.push_back(weight);
          seen.push_back(std::move(numbers));
          EXPECT_EQ(seen.front(), seen.back())
              << passes::name_of(kind) << (rebuild ? ", rebuilt" : "") << " in " << splits;
        }
      }
    }
  }
}

/// bf16 has 8 bits of mantissa; losses of this small model stay within 2 % of fp32 over 20 steps.
TEST_P(Equivalence, Bf16StaysNearFp32) {
  const Outcome fp32 = train(GetParam(), make(compile::EngineKind::eager, AttentionKind::batched));
  for (const compile::EngineKind engine : {compile::EngineKind::eager, compile::EngineKind::fused}) {
    for (const AttentionKind attention : {AttentionKind::batched, AttentionKind::flash}) {
      expect_close(train(GetParam(), make(engine, attention, Recompute::none, 1, core::DType::bf16)), fp32,
                   2e-2);
    }
  }
}

/// Where gradients are added up they stay fp32, and halves lose nothing: what is left is another kernel's
/// last bits, ties, and biases that are rounded before matmuls add them. Where gradients have 16 bits, losses
/// stay as near to fp32 as without that.
TEST_P(Equivalence, CompactStateIsAsGood) {
  const Outcome fp32 = train(GetParam(), make(compile::EngineKind::eager, AttentionKind::batched));
  for (const core::DType dtype : {core::DType::bf16, core::DType::f16}) {
    const auto options = [&](int micro_batches, bool compact) {
      compile::StepOptions step =
          make(compile::EngineKind::fused, AttentionKind::flash, Recompute::none, micro_batches, dtype);
      step.rewrites.set(compile::Rewrite::compact_state, compact);
      return step;
    };
    const Outcome plain = train(GetParam(), options(2, false));
    const Outcome halved = train(GetParam(), options(2, true));
    expect_close(halved, plain, 1e-3);
    expect_close(train(GetParam(), options(1, true)), fp32, 2e-2);
  }
}

TEST(Biases, AllWaysOfRunningALlamaWithBiasesAgree) {
  const Outcome reference = train(biased_config(), make(EngineKind::eager, AttentionKind::batched));
  EXPECT_LT(reference.losses.back(), reference.losses.front() - 0.5) << "the model does not learn";
  for (const AttentionKind attention : {AttentionKind::batched, AttentionKind::flash})
    expect_close(train(biased_config(), make(EngineKind::fused, attention)), reference, 1e-4);
  expect_close(train(biased_config(), make(EngineKind::fused, AttentionKind::flash, Recompute::full, 2)),
               reference, 1e-4);
  expect_close(train(biased_config(),
                     make(EngineKind::fused, AttentionKind::flash, Recompute::none, 1, core::DType::bf16)),
               reference, 2e-2);
}

/// An SGD step moves a weight by lr times its gradient: compared with central differences of the loss in
/// fp64.
TEST(Biases, GradientsAreThoseOfTheLoss) {
  const model::ModelConfig config = biased_config();
  StepOptions options = make(EngineKind::eager, AttentionKind::batched, Recompute::none, 1, core::DType::f64);
  options.optimizer = {.kind = passes::OptimizerKind::sgd, .weight_decay = 0, .clip_norm = 0};
  StepRunner::Weights weights = tests::initial_weights(config);
  for (auto& [name, values] : weights) {
    for (std::size_t i = 0; name.ends_with(".bias") && i < values.size(); ++i)
      values[i] = 0.1 * std::sin(static_cast<double>(i + name.size()));
  }
  const tests::Batch batch = tests::random_batch(kBatch * kSeq, config.vocab, 1);
  const auto loss = [&](const StepRunner::Weights& at) {
    return StepRunner(config, kBatch, kSeq, options, at, 1).step(batch, 0);
  };
  StepRunner moved(config, kBatch, kSeq, options, weights, 1);
  constexpr double kRate = 1e-3;
  static_cast<void>(moved.step(batch, kRate));
  for (const char* name : {"h.0.attention.qkv.bias", "h.1.attention.proj.bias", "h.0.feed_forward.fc1.bias",
                           "h.1.feed_forward.fc2.bias"}) {
    const std::vector<double> after = moved.weight(name);
    for (const std::size_t i : {std::size_t{1}, after.size() - 1}) {
      constexpr double kShift = 1e-5;
      StepRunner::Weights more = weights;
      StepRunner::Weights less = weights;
      more[name][i] += kShift;
      less[name][i] -= kShift;
      const double gradient = (weights[name][i] - after[i]) / kRate;
      EXPECT_GT(std::abs(gradient), 1e-6) << name << " " << i;
      EXPECT_NEAR(gradient, (loss(more) - loss(less)) / (2 * kShift), 1e-7 + 1e-5 * std::abs(gradient))
          << name << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(BothKinds, Equivalence, testing::Values(Arch::gpt2, Arch::llama),
                         [](const auto& kind) { return std::string(model::name_of(kind.param)); });

}  // namespace
}  // namespace rooflm
