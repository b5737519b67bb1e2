// The matmul FLOPs of whole programs against the closed formulas, to the last digit.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "compile/recipe.h"
#include "model/config.h"
#include "model/forward.h"
#include "program/ops.h"
#include "tests/case_names.h"
#include "tests/compile/passes/recipes.h"

namespace rooflm {
namespace {

std::int64_t matmul_flop(const program::Program& program, bool recomputed) {
  std::int64_t flop = 0;
  for (const program::Op& op : program.ops) {
    if (op.recomputed == recomputed) flop += program::cost_of(program, op).matmul_flop;
  }
  return flop;
}

using Case = std::tuple<std::string, compile::EngineKind, passes::AttentionKind, passes::Recompute>;

class PresetFlops : public testing::TestWithParam<Case> {};

/// Over a step: 6 N_matmul + 12 L H D T per token, attention counted in full (PaLM, appendix B).
TEST_P(PresetFlops, StepEqualsClosedFormula) {
  const auto& [name, engine, attention, recompute] = GetParam();
  const model::ModelConfig config = model::preset(name);
  const std::int64_t batch = 2;
  const std::int64_t seq = 128;
  const compile::StepOptions options{
      .engine = engine, .attention = attention, .recompute = recompute, .micro_batches = 2, .optimizer = {}};
  const auto step = compile::training_step(model::forward(config, batch, seq), options);
  const std::int64_t idle = model::parameter_count(config) - model::active_parameter_count(config);
  const std::int64_t per_token = 6 * (model::matmul_parameter_count(config) - idle) +
                                 12 * config.layers * config.heads * config.head_dim * seq;
  EXPECT_EQ(matmul_flop(step, false), 2 * batch * seq * per_token);
  if (recompute == passes::Recompute::none) {
    EXPECT_EQ(matmul_flop(step, true), 0);
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto& name : model::preset_names()) {
    // The formula is of plain attention to all tokens.
    if (const auto config = model::preset(name); config.latent.kv_rank > 0 || config.window > 0) continue;
    cases.emplace_back(name, compile::EngineKind::fused, passes::AttentionKind::flash,
                       passes::Recompute::none);
    cases.emplace_back(name, compile::EngineKind::eager, passes::AttentionKind::batched,
                       passes::Recompute::none);
    cases.emplace_back(name, compile::EngineKind::fused, passes::AttentionKind::looped,
                       passes::Recompute::full);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(AllPresets, PresetFlops, testing::ValuesIn(all_cases()), tests::TupleName());

TEST(Flops, EveryMatmulIsTwoMNK) {
  const auto forward = model::forward(model::preset("gpt2"), 4, 64);
  for (const program::Op& op : forward.ops) {
    if (op.def->name != "matmul") continue;
    const auto& a = op.attrs;
    EXPECT_EQ(program::cost_of(forward, op).matmul_flop,
              2 * a.integer("batch") * a.integer("m") * a.integer("n") * a.integer("k"));
  }
}

TEST(Flops, ElementwiseIsCountedApart) {
  const auto forward = model::forward(model::preset("tiny"), 1, 16);
  for (const program::Op& op : forward.ops) {
    const bool is_matmul = op.def->name == "matmul" || op.def->name == "attention";
    if (!is_matmul) {
      EXPECT_EQ(program::cost_of(forward, op).matmul_flop, 0) << op.def->name;
    }
  }
}

/// Matmul FLOPs of a step.
std::int64_t matmul_flop(const program::Program& step) {
  std::int64_t sum = 0;
  for (const program::Op& op : step.ops) sum += program::cost_of(step, op).matmul_flop;
  return sum;
}

model::ModelConfig expert_config() {
  model::ModelConfig config = tests::small_config(model::Arch::llama);
  config.layers = 3;
  config.experts = {.count = 4, .active = 2, .d_ff = 10, .shared_d_ff = 6, .in_layer = {false, true, true}};
  return config;
}

TEST(Flops, ExpertsComputeTheRowsOfTheirTokens) {
  constexpr std::int64_t kBatch = 1;
  constexpr std::int64_t kSeq = 13;  // 26 rows of 4 experts, however they are spread
  model::ModelConfig config = expert_config();
  const auto flop_of = [&](const model::ModelConfig& c) {
    const auto step = compile::training_step(model::forward(c, kBatch, kSeq), {.loss_chunk_bytes = 1 << 20});
    program::check(step);
    return matmul_flop(step);
  };
  // What a token's matmuls cost beside those of a model without the layers' experts, forward and backward.
  model::ModelConfig bare = config;
  bare.layers = 1;  // the dense one
  const std::int64_t attention = 4 * 3 * kBatch * config.heads * kSeq * kSeq * config.head_dim;
  const std::int64_t projections =
      config.d_model * config.head_dim * (2 * config.heads + 2 * config.kv_heads);
  const std::int64_t active = 3 * config.d_model * (2 * 10 + 6) + 4 * config.d_model;
  EXPECT_EQ(flop_of(config) - flop_of(bare), 2 * (attention + 6 * kBatch * kSeq * (projections + active)));
  EXPECT_EQ(model::parameter_count(config) - model::active_parameter_count(config),
            2 * 2 * 3 * config.d_model * 10);  // of two layers, two of four experts
}

/// Every way to a step takes experts: what passes make of them is consistent.
TEST(Flops, PassesTakeExpertsAndNormsOfHeads) {
  model::ModelConfig config = expert_config();
  config.qk_norm = model::QkNorm::head;
  for (const auto engine : {compile::EngineKind::eager, compile::EngineKind::fused}) {
    for (const auto recompute :
         {passes::Recompute::none, passes::Recompute::selective, passes::Recompute::full}) {
      for (const int zero : {0, 1, 3}) {
        const compile::StepOptions options{.engine = engine,
                                           .dtype = core::DType::bf16,
                                           .recompute = recompute,
                                           .rewrites = {compile::Rewrite::compact_state},
                                           .micro_batches = 2,
                                           .sharding = {.data = 2, .zero = zero}};
        program::check(compile::training_step(model::forward(config, 2, 14), options));
      }
    }
  }
  // Few texts touch few experts: one text, two experts of four.
  const auto decode = compile::inference_step(model::decode(config, {.batch = 1, .positions = 16}, 8), {});
  program::check(decode);
  std::int64_t experts = 0;
  for (const program::Op& op : decode.ops) {
    if (op.is(program::ops::kGroupedMatmul)) experts = std::max(experts, op.attrs.integer("batch"));
  }
  EXPECT_EQ(experts, 2);
}

TEST(Flops, AWindowCountsThePairsWithinIt) {
  model::ModelConfig config = tests::small_config(model::Arch::llama);
  const auto flop_of = [&](std::int64_t window) {
    config.window = window;
    return matmul_flop(compile::training_step(model::forward(config, 1, 16), {}));
  };
  const std::int64_t whole = flop_of(0);
  EXPECT_EQ(flop_of(16), whole);
  EXPECT_EQ(flop_of(20), whole);
  const std::int64_t scores = 2 * 12 * config.heads * config.head_dim;  // of two layers, forward and backward
  EXPECT_EQ(whole - flop_of(4), scores * (16 * 16 - (2 * 4 * 16 - 4 * 4)));
  config.windowed = {true, false};
  EXPECT_EQ(whole - flop_of(4), scores / 2 * (16 * 16 - (2 * 4 * 16 - 4 * 4)));
  EXPECT_EQ(model::model_flop_per_token(config, 16) * 16 * 2,
            2 * 6 * 16 * (model::parameter_count(config) - config.vocab * config.d_model) +
                scores * (16 * 16 + 2 * 4 * 16 - 4 * 4));
}

TEST(Flops, KnownParameterCounts) {
  EXPECT_EQ(model::parameter_count(model::preset("gpt2")), 124439808);
  EXPECT_EQ(model::padding_count(model::preset("gpt2")), 36096);
  EXPECT_EQ(model::parameter_count(model::preset("gpt2-xl")), 1557611200);
  EXPECT_EQ(model::parameter_count(model::preset("llama3-8b")), 8030261248);
  EXPECT_EQ(model::parameter_count(model::preset("llama3-70b")), 70553706496);
}

}  // namespace
}  // namespace rooflm
