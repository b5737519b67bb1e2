// Muon and Shampoo with ZeRO: each matrix is of one rank, and nothing but who keeps and updates what differs
// from data-parallel ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compile/passes/division.h"
#include "compile/passes/matrix_optimizer.h"
#include "core/error.h"
#include "tests/engines/sharded_runner.h"

namespace rooflm::tests {
namespace {

using compile::EngineKind;
using passes::OptimizerKind;
using program::Role;

/// Sizes of which no vector is full, and three layers: no number of ranks here divides the 12 matrices of
/// them into equal shares.
SplitStep split_step(OptimizerKind optimizer, int ranks, int zero, EngineKind engine = EngineKind::fused,
                     core::DType dtype = core::DType::f32) {
  SplitStep split = small_step(zero);
  split.config.layers = 3;
  split.config.heads = 4;
  split.config.d_model = 24;
  split.config.head_dim = 6;
  split.config.d_ff = 36;
  split.batch = 2;
  split.options.engine = engine;
  split.options.attention = compile::default_attention(engine);
  split.options.dtype = dtype;
  split.options.rewrites.set(compile::Rewrite::compact_state);  // gradients in 16 bits, where they can be
  split.options.sharding.data = ranks;
  split.options.optimizer.kind = optimizer;
  split.options.optimizer.clip_norm = 0.5;
  return split;
}

program::Program step_of(const SplitStep& split, int rank) {
  compile::StepOptions options = split.options;
  options.rank = options.sharding.mesh().coordinates_of(rank);
  return compile::training_step(model::forward(split.config, split.batch, split.seq), options);
}

void expect_same_bits(const Training& actual, const Training& expected) {
  EXPECT_EQ(actual.losses, expected.losses);
  EXPECT_EQ(actual.norms, expected.norms);
  EXPECT_EQ(actual.weights, expected.weights);
}

class OwnedMatrices : public testing::TestWithParam<OptimizerKind> {};

TEST_P(OwnedMatrices, GiveTheBitsOfDataParallel) {
  for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
    for (const core::DType dtype : {core::DType::f32, core::DType::bf16}) {
      const Training expected = train_split(split_step(GetParam(), 3, 0, engine, dtype), 3);
      for (const int zero : {1, 2, 3}) {
        SCOPED_TRACE(std::string(name_of(engine)) + " " + std::string(core::name_of(dtype)) + " ZeRO " +
                     std::to_string(zero));
        expect_same_bits(train_split(split_step(GetParam(), 3, zero, engine, dtype), 3), expected);
      }
    }
  }
}

/// In fp64 what is left of rounding is nothing. Several micro-batches, more ranks than matrices in a layer,
/// stages of a pipeline, and ranks that share sequences.
TEST_P(OwnedMatrices, GiveTheWeightsOfOneRank) {
  using compile::Sharding;
  const std::vector<std::pair<Sharding, int>> several = {{{.data = 2, .zero = 1}, 2},
                                                         {{.data = 5, .zero = 2}, 2},
                                                         {{.data = 2, .zero = 3}, 3},
                                                         {{.data = 2, .zero = 1, .pipeline = 3}, 2},
                                                         {{.data = 2, .zero = 3, .pipeline = 3}, 2},
                                                         {{.data = 1, .context = 2, .zero = 1}, 1}};
  for (const auto& [sharding, micro_batches] : several) {
    SCOPED_TRACE(testing::Message() << "dp " << sharding.data << " cp " << sharding.context << " pp "
                                    << sharding.pipeline << " ZeRO " << sharding.zero);
    SplitStep split = split_step(GetParam(), 1, 0, EngineKind::eager, core::DType::f64);
    if (sharding.context > 1) split.options.attention = passes::AttentionKind::flash;
    split.options.sharding = sharding;
    split.options.micro_batches = micro_batches;
    const Training expected = train_whole(split, 3);
    const Training actual = train_split(split, 3);
    ASSERT_EQ(actual.weights.size(), expected.weights.size());
    for (std::size_t i = 0; i < expected.losses.size(); ++i)
      EXPECT_NEAR(actual.losses[i], expected.losses[i], 1e-12 * expected.losses[i]);
    for (const auto& [name, values] : expected.weights) {
      for (std::size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(actual.weights.at(name)[i], values[i], 1e-9) << name << " " << i;
    }
  }
}

/// Every matrix and all of its state is of exactly one rank, all else is divided as before.
TEST_P(OwnedMatrices, AreKeptByOneRank) {
  const program::Program whole = step_of(split_step(GetParam(), 1, 0), 0);
  std::map<std::string, std::vector<std::int64_t>> kept;  // elements, by rank
  constexpr int kRanks = 3;
  for (int rank = 0; rank < kRanks; ++rank) {
    for (const program::Tensor& tensor : step_of(split_step(GetParam(), kRanks, 1), rank).tensors) {
      if (tensor.role != Role::weight && tensor.role != Role::optimizer_state) continue;
      kept[tensor.name].push_back(tensor.shape.numel());
    }
  }
  std::size_t matrices = 0, states = 0;
  const std::vector<bool> is_matrix = passes::layer_matrices(whole);
  for (program::TensorId id = 0; id < static_cast<program::TensorId>(whole.tensors.size()); ++id) {
    const program::Tensor& tensor = whole.tensor(id);
    if (tensor.role != Role::weight || !is_matrix[static_cast<std::size_t>(id)]) continue;
    ++matrices;
    std::vector<std::int64_t> elements = kept.at(tensor.name);
    std::ranges::sort(elements);
    EXPECT_EQ(elements, (std::vector<std::int64_t>{0, 0, tensor.shape.numel()})) << tensor.name;
    for (const std::string_view state : {"m.", "left.", "right."}) {
      const auto found = kept.find(std::string(state) + tensor.name);
      if (found == kept.end()) continue;
      ++states;
      EXPECT_EQ(found->second.size(), 1U) << found->first << " is of several ranks";
    }
  }
  EXPECT_EQ(matrices, 12U);
  EXPECT_EQ(states, matrices * (GetParam() == OptimizerKind::shampoo ? 3 : 1));
}

/// Eight layers on four ranks, which have about a quarter of all FLOPs and of all state each.
TEST_P(OwnedMatrices, AreBalanced) {
  std::vector<double> bytes, flop;
  for (int rank = 0; rank < 4; ++rank) {
    SplitStep split = split_step(GetParam(), 4, 1);
    split.config.layers = 8;
    const program::Program step = step_of(split, rank);
    bytes.push_back(0);
    flop.push_back(0);
    for (const program::Tensor& tensor : step.tensors)
      bytes.back() += tensor.role == Role::optimizer_state ? static_cast<double>(tensor.bytes()) : 0;
    for (const program::Op& op : step.ops)
      if (op.phase == program::Phase::optimizer)
        flop.back() += static_cast<double>(program::cost_of(step, op).matmul_flop);
  }
  for (const auto& all : {bytes, flop}) {
    EXPECT_EQ(all.front(), std::ranges::max(all)) << "the first rank, which is planned, has most";
    EXPECT_LT(all.front(), 1.1 * (all[0] + all[1] + all[2] + all[3]) / 4);
  }
}

/// Ranks differ in their updates alone; what they send, in which dtype and where, is the same.
TEST_P(OwnedMatrices, HaveTheSameCollectivesOnAllRanks) {
  using Sent = std::pair<std::string, core::DType>;
  const auto collectives = [&](int rank, int zero) {
    std::vector<Sent> all;
    const auto step = step_of(split_step(GetParam(), 3, zero, EngineKind::fused, core::DType::bf16), rank);
    for (const program::Op& op : step.ops) {
      if (!program::is_collective(op)) continue;
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        EXPECT_EQ(step.tensor(op.inputs[i]).dtype, step.tensor(op.outputs[i]).dtype) << op.scope;
        all.emplace_back(std::string(op.def->name) + " in " + op.scope, step.tensor(op.inputs[i]).dtype);
      }
    }
    return all;
  };
  for (const int zero : {1, 2, 3}) {
    const auto first = collectives(0, zero);
    EXPECT_GT(first.size(), 24U);
    for (const int rank : {1, 2}) EXPECT_EQ(collectives(rank, zero), first) << "ZeRO " << zero;
  }
}

TEST(OwnedMatrices, GoToTheRankWithTheLeast) {
  SplitStep split = split_step(OptimizerKind::muon, 1, 0);
  split.config.layers = 2;
  const auto forward = model::forward(split.config, 1, 4);
  const std::vector<bool> is_matrix = passes::layer_matrices(forward);
  const auto owned = [&](int ranks) {
    const auto owners = passes::matrix_owners(forward, split.options.optimizer, ranks);
    std::vector<int> count(static_cast<std::size_t>(ranks));
    for (std::size_t id = 0; id < owners.size(); ++id) {
      EXPECT_EQ(owners[id] != program::Cut::kNobody, is_matrix[id]) << forward.tensors[id].name;
      if (is_matrix[id]) ++count.at(static_cast<std::size_t>(owners[id]));
    }
    return count;
  };
  EXPECT_EQ(owned(1), (std::vector{8}));
  EXPECT_EQ(owned(2), (std::vector{4, 4}));
  EXPECT_EQ(owned(8), std::vector(8, 1));
  EXPECT_EQ(owned(10), (std::vector{1, 1, 1, 1, 1, 1, 1, 1, 0, 0})) << "more ranks than matrices";
}

/// Newton-Schulz: five times two products of the smaller side and one of both, each 2 FLOP an element.
TEST(OwnedMatrices, CostWhatTheirUpdateDoes) {
  passes::OptimizerOptions muon{.kind = OptimizerKind::muon};
  EXPECT_EQ(passes::matrix_update_flop({8, 12}, muon), 5 * 2 * (8 * 8 * 12 + 8 * 8 * 8 + 8 * 8 * 12));
  EXPECT_EQ(passes::matrix_update_flop({8, 24}, muon),
            2 * 2 * (8 * 8 * 24 + 8 * 8 * 24) + 14 * 2 * 8 * 8 * 8);
  EXPECT_EQ(passes::matrix_update_flop({24, 8}, muon), passes::matrix_update_flop({8, 24}, muon));
  EXPECT_EQ(passes::matrix_update_flop({3, 24, 8}, muon), 3 * passes::matrix_update_flop({24, 8}, muon));
}

TEST(OwnedMatrices, AreRefusedWhereTheyCannotBe) {
  SplitStep split = split_step(OptimizerKind::muon, 2, 1);
  split.options.rewrites.set(compile::Rewrite::sum_in_update);
  EXPECT_THROW(step_of(split, 0), core::Unavailable);
  split = split_step(OptimizerKind::muon, 2, 1);
  split.options.sharding.tensor = 2;
  EXPECT_THROW(step_of(split, 0), core::Unavailable);
  split = split_step(OptimizerKind::muon, 2, 3);
  split.options.unit_buffers = passes::UnitKind::copied;
  EXPECT_THROW(step_of(split, 0), core::Unavailable);
}

INSTANTIATE_TEST_SUITE_P(All, OwnedMatrices, testing::Values(OptimizerKind::muon, OptimizerKind::shampoo),
                         [](const auto& kind) { return std::string(name_of(kind.param)); });

}  // namespace
}  // namespace rooflm::tests
