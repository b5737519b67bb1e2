// The norm of gradients, added up in parts while the backward pass runs, is that of one sum behind it.
#include <gtest/gtest.h>

#include <algorithm>

#include "program/ops.h"
#include "tests/compile/passes/recipes.h"
#include "tests/engines/step_runner.h"

namespace rooflm {
namespace {

/// Embedding and head have as many parameters as make a part of the sum.
TEST(NormInParts, IsThatOfOneSum) {
  model::ModelConfig config = tests::even_config(model::Arch::llama);
  config.d_model = 64;
  config.head_dim = 16;
  config.vocab = config.padded_vocab = (std::int64_t{1} << 16U) + 64;
  constexpr std::int64_t kTexts = 1;
  constexpr std::int64_t kLength = 16;
  const auto weights = tests::initial_weights(config);
  const auto batch = tests::random_batch(kTexts * kLength, config.vocab, 3);
  const auto norm_of = [&](compile::EngineKind engine) {
    compile::StepOptions options{.engine = engine,
                                 .attention = compile::default_attention(engine),
                                 .rewrites = {compile::Rewrite::early_norm}};
    options.optimizer.clip_norm = 1.0;
    tests::StepRunner runner(config, kTexts, kLength, options, weights);
    const auto& ops = runner.engine().program().ops;
    const auto sums =
        std::ranges::count_if(ops, [](const program::Op& op) { return op.is(program::ops::kSquareSum); });
    EXPECT_EQ(sums, engine == compile::EngineKind::fused ? 2 : 0);
    runner.step(batch);
    return runner.gradient_norm();
  };
  const double one = norm_of(compile::EngineKind::eager);
  EXPECT_GT(one, 0.1);
  EXPECT_NEAR(norm_of(compile::EngineKind::fused), one, 1e-5 * one);
}

}  // namespace
}  // namespace rooflm
