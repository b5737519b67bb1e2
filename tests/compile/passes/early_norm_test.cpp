// The norm of gradients in parts: each gradient once, when it is final, and the root of all behind them.
#include "compile/passes/early_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "compile/passes/plan_memory.h"
#include "program/ops.h"
#include "tests/compile/passes/recipes.h"

namespace rooflm {
namespace {

namespace ops = program::ops;
using program::Lane;
using program::Op;
using program::Program;
using program::TensorId;

/// About 4 M parameters in each layer, so that each is a sum of its own.
Program wide_step(double clip, int micro_batches = 1) {
  model::ModelConfig config = tests::even_config(model::Arch::llama);
  config.d_model = 512;
  config.head_dim = 128;
  config.d_ff = 2048;
  config.layers = 4;
  compile::StepOptions options{.dtype = core::DType::bf16,
                               .rewrites = {compile::Rewrite::compact_state, compile::Rewrite::early_norm}};
  options.optimizer.clip_norm = clip;
  options.micro_batches = micro_batches;
  return compile::training_step(model::forward(config, 2, 16), options);
}

std::vector<std::size_t> places_of(const Program& p, const program::OpDef& def) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < p.ops.size(); ++i) {
    if (p.ops[i].is(def)) places.push_back(i);
  }
  return places;
}

TEST(EarlyNorm, AddsUpEachGradientOnceWhenItIsFinal) {
  for (const int micro_batches : {1, 2}) {
    const Program p = wide_step(1.0, micro_batches);
    EXPECT_TRUE(places_of(p, ops::kGlobalNorm).empty());
    const auto sums = places_of(p, ops::kSquareSum);
    ASSERT_GE(sums.size(), 4U);
    std::map<TensorId, std::size_t> added;
    std::set<std::int64_t> elements;
    for (const std::size_t place : sums) {
      for (const TensorId id : p.ops[place].inputs) EXPECT_TRUE(added.emplace(id, place).second);
      EXPECT_TRUE(elements.insert(p.ops[place].output_offset.at(0)).second);
    }
    EXPECT_EQ(p.shape(p.ops[sums[0]].outputs[0]).numel(), std::ssize(sums));
    EXPECT_EQ(*elements.rbegin(), std::ssize(sums) - 1);
    for (std::size_t i = 0; i < p.ops.size(); ++i) {
      for (const TensorId id : p.ops[i].outputs) {
        const auto found = added.find(id);
        if (found == added.end()) continue;
        EXPECT_LT(i, found->second) << p.tensor(id).name;
      }
    }
    std::size_t gradients = 0;
    for (const program::Tensor& tensor : p.tensors)
      gradients += tensor.name.starts_with("d_") && tensor.role == program::Role::gradient ? 1 : 0;
    EXPECT_EQ(added.size(), gradients);
  }
}

/// All but the last run beside the backward pass; the root waits for them, and what clips reads it.
TEST(EarlyNorm, RunsBesideTheBackwardPass) {
  const Program p = wide_step(1.0);
  const auto sums = places_of(p, ops::kSquareSum);
  const auto root = places_of(p, ops::kNormOfSquares);
  ASSERT_EQ(root.size(), 1U);
  for (const std::size_t place : sums)
    EXPECT_EQ(p.ops[place].lane, place == sums.back() ? Lane::compute : Lane::background);
  EXPECT_EQ(p.ops[root[0]].waits, std::vector<int>{static_cast<int>(sums[sums.size() - 2])});
  EXPECT_EQ(p.tensor(p.ops[root[0]].outputs[0]).name, "grad_norm");
  const auto matmuls = places_of(p, ops::kMatmul);
  EXPECT_LT(sums.front(), matmuls.back());
}

TEST(EarlyNorm, LeavesSmallStepsAndStepsWithoutClippingAsTheyAre) {
  const Program small = tests::small_step(model::Arch::llama, {.rewrites = {compile::Rewrite::early_norm}});
  EXPECT_EQ(places_of(small, ops::kGlobalNorm).size(), 1U);
  EXPECT_TRUE(places_of(small, ops::kSquareSum).empty());
  EXPECT_TRUE(places_of(wide_step(0), ops::kSquareSum).empty());
}

}  // namespace
}  // namespace rooflm
