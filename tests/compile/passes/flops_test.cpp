// The matmul FLOPs of whole programs against the closed formulas, to the last digit.
#include <gtest/gtest.h>

#include <tuple>

#include "compile/recipe.h"
#include "model/config.h"
#include "model/forward.h"
#include "tests/case_names.h"

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
  const std::int64_t per_token =
      6 * model::matmul_parameter_count(config) + 12 * config.layers * config.heads * config.head_dim * seq;
  EXPECT_EQ(matmul_flop(step, false), 2 * batch * seq * per_token);
  if (recompute == passes::Recompute::none) {
    EXPECT_EQ(matmul_flop(step, true), 0);
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto& name : model::preset_names()) {
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

TEST(Flops, KnownParameterCounts) {
  EXPECT_EQ(model::parameter_count(model::preset("gpt2")), 124475904);  // 124,439,808 with V = 50257
  EXPECT_EQ(model::parameter_count(model::preset("llama3-8b")), 8030261248);
  EXPECT_EQ(model::parameter_count(model::preset("llama3-70b")), 70553706496);
}

}  // namespace
}  // namespace rooflm
