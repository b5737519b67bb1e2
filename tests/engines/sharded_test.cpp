// A step that is split over ranks gives the losses and the weights of one rank: every kind of splitting, and
// several at once, on both kinds of model and both engines.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "tests/engines/sharded_runner.h"

namespace rooflm::tests {
namespace {

using compile::EngineKind;
using compile::PipelineSchedule;
using compile::Sharding;

/// Sizes of which no vector is full: widths of 24, 5 tokens, 41 words.
model::ModelConfig odd_gpt2(std::int64_t layers) {
  return {.name = "odd gpt2",
          .arch = model::Arch::gpt2,
          .layers = layers,
          .heads = 4,
          .kv_heads = 4,
          .d_model = 24,
          .d_ff = 44,
          .head_dim = 6,
          .vocab = 41,
          .padded_vocab = 44,
          .max_seq = 9,
          .tied_head = true};
}
/// Grouped queries: two heads for each of keys and values.
model::ModelConfig odd_llama(std::int64_t layers) {
  return {.name = "odd llama",
          .arch = model::Arch::llama,
          .layers = layers,
          .heads = 4,
          .kv_heads = 2,
          .d_model = 24,
          .d_ff = 36,
          .head_dim = 6,
          .vocab = 41,
          .padded_vocab = 44,
          .max_seq = 0,
          .tied_head = false};
}

struct Kind {
  std::string name;
  Sharding sharding;
  int micro_batches = 1;
  std::int64_t layers = 2;
};

std::vector<Kind> kinds() {
  constexpr auto kGpipe = PipelineSchedule::gpipe;
  return {
      {"data", {.data = 3}},
      {"data_accumulated", {.data = 2}, 3},
      {"zero1", {.data = 3, .zero = 1}},
      {"zero1_accumulated", {.data = 2, .zero = 1}, 2},
      {"zero2", {.data = 3, .zero = 2}},
      {"zero2_accumulated", {.data = 2, .zero = 2}, 3},
      {"zero3", {.data = 3, .zero = 3}},
      {"zero3_accumulated", {.data = 2, .zero = 3}, 2},
      {"tensor", {.tensor = 2}},
      {"tensor_accumulated", {.tensor = 2}, 2},
      {"sequence", {.tensor = 2, .sequence_parallel = true}},
      {"sequence_accumulated", {.tensor = 2, .sequence_parallel = true}, 2},
      {"gpipe", {.pipeline = 2, .schedule = kGpipe}, 3},
      {"pipeline", {.pipeline = 3}, 5, 3},
      {"pipeline_of_one_micro_batch", {.pipeline = 2}},
      {"interleaved", {.pipeline = 2, .interleave = 2}, 4, 4},
      {"data_tensor", {.data = 2, .tensor = 2, .sequence_parallel = true}},
      {"zero1_tensor", {.data = 2, .zero = 1, .tensor = 2}, 2},
      {"zero3_tensor", {.data = 2, .zero = 3, .tensor = 2, .sequence_parallel = true}},
      {"data_pipeline", {.data = 2, .pipeline = 2}, 3},
      {"zero1_pipeline", {.data = 2, .zero = 1, .pipeline = 2}, 2},
      {"zero3_pipeline", {.data = 2, .zero = 3, .pipeline = 2}, 2},
      {"all", {.data = 2, .zero = 1, .tensor = 2, .sequence_parallel = true, .pipeline = 2}, 2},
      {"context", {.context = 2}},
      {"context_accumulated", {.context = 4}, 2},
      {"context_zero3", {.data = 2, .context = 2, .zero = 3}, 2},
      {"context_tensor_pipeline",
       {.context = 2, .tensor = 2, .sequence_parallel = true, .vocab_parallel = true, .pipeline = 2},
       2},
      {"vocabulary", {.tensor = 2, .vocab_parallel = true}, 2},
      {"vocabulary_sequence", {.tensor = 2, .sequence_parallel = true, .vocab_parallel = true}},
      {"vocabulary_data", {.data = 2, .zero = 3, .tensor = 2, .vocab_parallel = true}, 2},
  };
}

SplitStep split_step(const Kind& kind, model::Arch arch, EngineKind engine, core::DType dtype) {
  SplitStep split{.config = arch == model::Arch::gpt2 ? odd_gpt2(kind.layers) : odd_llama(kind.layers),
                  .batch = 2,
                  .seq = kind.sharding.context > 1 ? 8 : 5};
  split.options.engine = engine;
  const bool has_ring = kind.sharding.context > 1;
  split.options.attention = has_ring ? passes::AttentionKind::flash : compile::default_attention(engine);
  split.options.dtype = dtype;
  split.options.micro_batches = kind.micro_batches;
  split.options.sharding = kind.sharding;
  split.options.optimizer.clip_norm = 0.5;  // less than the norm: every step is clipped
  return split;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double square = 0;
  double scale = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    square += (a[i] - b[i]) * (a[i] - b[i]);
    scale += a[i] * a[i];
  }
  return scale == 0 ? std::sqrt(square) : std::sqrt(square / scale);
}

void expect_same(const Training& actual, const Training& expected, double tolerance) {
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  for (std::size_t i = 0; i < actual.losses.size(); ++i) {
    EXPECT_NEAR(actual.losses[i], expected.losses[i], tolerance * expected.losses[i]) << "step " << i;
  }
  ASSERT_EQ(actual.norms.size(), expected.norms.size());
  for (std::size_t i = 0; i < actual.norms.size(); ++i) {
    EXPECT_NEAR(actual.norms[i], expected.norms[i], tolerance * expected.norms[i]) << "step " << i;
  }
  ASSERT_EQ(actual.weights.size(), expected.weights.size());
}

class ShardedSteps : public testing::TestWithParam<Kind> {};

/// In fp64 what is left of rounding is nothing: each tensor is the same.
TEST_P(ShardedSteps, GiveEachWeightOfOneRank) {
  for (const model::Arch arch : {model::Arch::gpt2, model::Arch::llama}) {
    SCOPED_TRACE(model::name_of(arch));
    const SplitStep split = split_step(GetParam(), arch, EngineKind::eager, core::DType::f64);
    const Training expected = train_whole(split, 3);
    const Training actual = train_split(split, 3);
    expect_same(actual, expected, 1e-12);
    for (const auto& [name, values] : expected.weights) {
      EXPECT_LT(distance(values, actual.weights.at(name)), 1e-9) << name;
    }
  }
}

/// AdamW makes steps of full size of gradients that are nothing but rounding (those of the biases of keys),
/// so weights are compared as one vector.
TEST_P(ShardedSteps, GiveLossesAndWeightsOfOneRankInFp32) {
  for (const model::Arch arch : {model::Arch::gpt2, model::Arch::llama}) {
    for (const auto& [engine, rebuild] :
         {std::pair{EngineKind::eager, false}, std::pair{EngineKind::fused, false},
          std::pair{EngineKind::fused, true}}) {
      SCOPED_TRACE(std::string(model::name_of(arch)) + " " + std::string(compile::name_of(engine)) +
                   (rebuild ? ", rebuilt" : ""));
      SplitStep split = split_step(GetParam(), arch, engine, core::DType::f32);
      split.options.rewrites.set(compile::Rewrite::rebuild, rebuild);
      split.options.rewrites.set(compile::Rewrite::bias_in_gradients, rebuild);
      const Training expected = train_whole(split, 4);
      const Training actual = train_split(split, 4);
      expect_same(actual, expected, 1e-5);
      std::vector<double> all, all_expected;
      for (const auto& [name, values] : expected.weights) {
        all_expected.insert(all_expected.end(), values.begin(), values.end());
        const auto& own = actual.weights.at(name);
        all.insert(all.end(), own.begin(), own.end());
      }
      EXPECT_LT(distance(all_expected, all), 1e-5);
    }
  }
}

/// Blocks of attention are rounded to bf16 before they are joined.
TEST(ShardedSteps, RanksShareSequencesInBf16) {
  for (const model::Arch arch : {model::Arch::gpt2, model::Arch::llama}) {
    for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
      const SplitStep split = split_step({"context", {.context = 2}}, arch, engine, core::DType::bf16);
      expect_same(train_split(split, 4), train_whole(split, 4), 0x1p-6);
    }
  }
}

/// ZeRO moves what data-parallel ranks keep, and changes no number: sums are taken in the order of ranks, and
/// parts begin on borders of vectors.
TEST(ShardedSteps, ZeroGivesTheBitsOfDataParallel) {
  for (const model::Arch arch : {model::Arch::gpt2, model::Arch::llama}) {
    const Training expected =
        train_split(split_step({"data", {.data = 2}}, arch, EngineKind::fused, core::DType::f32), 3);
    for (const int zero : {1, 2, 3}) {
      SCOPED_TRACE(zero);
      const Training actual = train_split(
          split_step({"zero", {.data = 2, .zero = zero}}, arch, EngineKind::fused, core::DType::f32), 3);
      EXPECT_EQ(actual.losses, expected.losses);
      EXPECT_EQ(actual.norms, expected.norms);
      EXPECT_EQ(actual.weights, expected.weights);
    }
  }
}

/// Collectives beside computation, or one after the other: what is summed, and in which order, is the same.
TEST(ShardedSteps, CollectivesBesideComputationChangeNoBit) {
  for (const Kind& kind : kinds()) {
    if (kind.name != "data" && kind.name != "zero3_accumulated" && kind.name != "interleaved" &&
        kind.name != "all" && kind.name != "context_zero3")
      continue;
    for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
      SCOPED_TRACE(kind.name + " " + std::string(compile::name_of(engine)));
      SplitStep split = split_step(kind, model::Arch::llama, engine, core::DType::f32);
      const Training beside = train_split(split, 20);
      split.order = engines::Order::program;
      const Training in_order = train_split(split, 20);
      EXPECT_EQ(beside.losses, in_order.losses);
      EXPECT_EQ(beside.norms, in_order.norms);
      EXPECT_EQ(beside.weights, in_order.weights);
    }
  }
}

/// Updates that read the gradients of all ranks add up what collectives would, in the same order.
TEST(ShardedSteps, SumsInTheUpdateChangeNoBit) {
  const std::vector<Kind> several = {
      {"data", {.data = 2}},
      {"zero", {.data = 3, .zero = 1}},
      {"zero_accumulated", {.data = 2, .zero = 1}, 2},
      {"zero3", {.data = 2, .zero = 3}},
      {"context", {.data = 1, .context = 2, .zero = 1}},
      {"tensor", {.data = 2, .zero = 1, .tensor = 2, .sequence_parallel = true}},
      {"pipeline", {.data = 2, .zero = 1, .pipeline = 2}, 2}};
  for (const Kind& kind : several) {
    for (const model::Arch arch : {model::Arch::gpt2, model::Arch::llama}) {
      for (const double clip : {0.0, 1.0}) {
        SCOPED_TRACE(kind.name + (clip > 0 ? " clipped" : ""));
        SplitStep split = split_step(kind, arch, EngineKind::fused, core::DType::bf16);
        split.options.optimizer.clip_norm = clip;
        const Training by_collectives = train_split(split, 3);
        split.options.rewrites.set(compile::Rewrite::sum_in_update);
        const Training in_update = train_split(split, 3);
        EXPECT_EQ(in_update.losses, by_collectives.losses);
        EXPECT_EQ(in_update.norms, by_collectives.norms);
        EXPECT_EQ(in_update.weights, by_collectives.weights);
      }
    }
  }
}

/// Matrices of no more elements than a part has at least: the first rank has all of them, the others nothing.
TEST(ShardedSteps, SumsInTheUpdateOfMatricesThatOneRankHas) {
  SplitStep split = small_step(1);
  split.config.heads = split.config.kv_heads = 1;
  split.config.d_model = split.config.d_ff = split.config.head_dim = 4;
  split.options.optimizer.clip_norm = 0;
  const Training by_collectives = train_split(split, 3);
  split.options.rewrites.set(compile::Rewrite::sum_in_update);
  const Training in_update = train_split(split, 3);
  EXPECT_EQ(in_update.losses, by_collectives.losses);
  EXPECT_EQ(in_update.weights, by_collectives.weights);
}

/// Ranks whose parts differ in size run the same ops on the same lanes: each barrier has its counterparts.
TEST(ShardedSteps, RanksWithUnevenPartsSumInTheSameOrder) {
  const auto ops_of = [](int rank) {
    SplitStep split = split_step({"uneven", {.data = 3, .zero = 1}}, model::Arch::gpt2, EngineKind::fused,
                                 core::DType::bf16);
    split.config.layers = 12;
    split.config.d_model = split.config.heads * 131;
    split.config.head_dim = 131;
    split.config.d_ff = 4 * split.config.d_model;
    split.config.vocab = split.config.padded_vocab = 50257;
    split.options.optimizer.clip_norm = 0;
    split.options.rewrites.set(compile::Rewrite::sum_in_update);
    split.options.rank = {.data = rank};
    const auto step = compile::training_step(model::forward(split.config, 1, 5), split.options);
    std::vector<std::pair<std::string_view, program::Lane>> ops;
    for (const program::Op& op : step.ops) ops.emplace_back(op.def->name, op.lane);
    return ops;
  };
  const auto first = ops_of(0);
  EXPECT_GT(std::ranges::count(first, "barrier", [](const auto& op) { return op.first; }), 5);
  EXPECT_EQ(ops_of(1), first);
  EXPECT_EQ(ops_of(2), first);
}

/// A rank keeps its part of the state of what is divided, and all of norms and biases.
TEST(ShardedSteps, ZeroDividesWhatIsKept) {
  const auto kept_bytes = [](int zero, program::Role role) {
    SplitStep split = split_step({"zero", {.data = 4, .zero = zero}}, model::Arch::llama, EngineKind::fused,
                                 core::DType::f32);
    const auto step = compile::training_step(model::forward(split.config, 1, 5), split.options);
    std::int64_t bytes = 0;
    for (const program::Tensor& tensor : step.tensors) bytes += tensor.role == role ? tensor.bytes() : 0;
    return static_cast<double>(bytes);
  };
  for (const auto role : {program::Role::weight, program::Role::optimizer_state}) {
    const double norms = 5 * 24 * 4 * (role == program::Role::weight ? 1 : 2);
    EXPECT_NEAR(kept_bytes(1, role) - norms, (kept_bytes(0, role) - norms) / 4, 1024);
  }
}

/// Clipping off, sums of gradients and updates are still in order; recompute redoes what is split.
TEST(ShardedSteps, WorkWithoutClippingAndWithRecompute) {
  for (const auto recompute : {passes::Recompute::selective, passes::Recompute::full}) {
    SplitStep split = split_step({"all", {.data = 2, .zero = 3, .tensor = 2, .sequence_parallel = true}},
                                 model::Arch::llama, EngineKind::fused, core::DType::f32);
    split.options.recompute = recompute;
    split.options.optimizer.clip_norm = 0;
    expect_same(train_split(split, 3), train_whole(split, 3), 1e-5);
  }
}

/// What is gathered again is what was gathered before.
TEST(ShardedSteps, GatheringRowsAgainChangesNoBit) {
  for (const auto recompute : {passes::Recompute::none, passes::Recompute::full}) {
    SplitStep split =
        split_step({"sequence", {.data = 2, .zero = 1, .tensor = 2, .sequence_parallel = true}, 2},
                   model::Arch::llama, EngineKind::fused, core::DType::f32);
    split.options.recompute = recompute;
    const Training kept = train_split(split, 3);
    split.options.rewrites.set(compile::Rewrite::gather_again);
    const Training again = train_split(split, 3);
    EXPECT_EQ(again.losses, kept.losses);
    EXPECT_EQ(again.norms, kept.norms);
    EXPECT_EQ(again.weights, kept.weights);
  }
}

TEST(ShardedSteps, ARankThatFailsEndsTheOthers) {
  EXPECT_THROW(backends::comm::run_ranks({.data = 3},
                                         [](int rank, const auto& communicator) {
                                           if (rank == 1) throw core::InputError("rank 1 has bad input");
                                           float x = 1;
                                           const backends::comm::Transfer sum{
                                               .from = &x, .to = &x, .elements = 1};
                                           communicator->all_reduce(program::Group::data, {&sum, 1});
                                         }),
               core::InputError);
}

TEST(Sharding, RefusesWhatCannotBe) {
  const auto refuses = [](const Sharding& sharding, int micro_batches = 1, std::int64_t layers = 2) {
    EXPECT_THROW(compile::check(sharding, odd_llama(layers), 2, 5, micro_batches), core::UsageError);
  };
  compile::check({.data = 2, .zero = 1, .tensor = 2, .pipeline = 2}, odd_llama(2), 2, 5, 1);
  refuses({.data = 0});
  refuses({.data = 2, .zero = 4});
  refuses({.zero = 1});
  refuses({.tensor = 3});
  refuses({.sequence_parallel = true});
  refuses({.pipeline = 3});
  refuses({.pipeline = 4});
  refuses({.interleave = 2}, 2, 4);
  refuses({.pipeline = 2, .interleave = 2}, 3, 4);
  refuses({.pipeline = 2, .schedule = PipelineSchedule::gpipe, .interleave = 2}, 2, 4);
  refuses({.data = 1 << 30, .tensor = 2});
}

INSTANTIATE_TEST_SUITE_P(All, ShardedSteps, testing::ValuesIn(kinds()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace rooflm::tests
