// Rewrites that are planned with and that nothing runs yet: ring attention, the unfused loss.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "compile/passes/ring_attention.h"
#include "compile/passes/unfused_loss.h"
#include "program/groups.h"
#include "program/ops.h"
#include "tests/compile/passes/recipes.h"

namespace rooflm {
namespace {

namespace ops = program::ops;
using model::Arch;
using program::Op;
using program::Program;

std::size_t count_of(const Program& p, const program::OpDef& def) {
  return static_cast<std::size_t>(std::ranges::count_if(p.ops, [&](const Op& op) { return op.is(def); }));
}

/// Half of the tokens of a rank's sequences.
Program context_step(int parts, passes::Recompute recompute = passes::Recompute::none) {
  compile::StepOptions options{.recompute = recompute, .optimizer = {}};
  options.sharding.context = parts;
  const Program forward = model::forward(tests::small_config(Arch::llama), 2, 16 / parts);
  return compile::training_step(forward, options);
}

TEST(RingAttention, DoesTheWorkOfAPartAndPassesTheRestOn) {
  const Program whole = context_step(1);
  for (const int parts : {2, 4}) {
    const Program p = context_step(parts);
    const auto flop = [](const Program& program) {
      std::int64_t sum = 0;
      for (const Op& op : program.ops)
        if (op.def->work == program::Work::attention) sum += program::cost_of(program, op).matmul_flop;
      return sum;
    };
    EXPECT_EQ(flop(p) * parts, flop(whole));
    const auto n = static_cast<std::size_t>(parts);
    constexpr std::size_t kLayers = 2;
    EXPECT_EQ(count_of(p, passes::kAttentionBlock), kLayers * n);
    EXPECT_EQ(count_of(p, passes::kAttentionBlockBackward), kLayers * n);
    // Keys and values go on n - 1 times in each pass, their gradients n times.
    EXPECT_EQ(count_of(p, passes::kPassOn), kLayers * (2 * (n - 1) + n));
    EXPECT_EQ(count_of(p, ops::kFlashAttention) + count_of(p, ops::kFlashAttentionBackward), 0U);
  }
}

TEST(RingAttention, KeysAndValuesTravelBesideTheAttentionToTheOnesBefore) {
  const Program p = context_step(2);
  for (std::size_t i = 0; i + 1 < p.ops.size(); ++i) {
    if (!p.ops[i].is(passes::kPassOn) || !p.ops[i + 1].is(passes::kAttentionBlock)) continue;
    EXPECT_EQ(p.ops[i].lane, program::Lane::communication);
    EXPECT_EQ(program::group_of(p.ops[i]), program::Group::context);
    EXPECT_TRUE(p.ops[i + 1].waits.empty());
  }
}

TEST(RingAttention, IsDoneAgainWithItsMessagesWhereALayerIsRecomputed) {
  EXPECT_EQ(count_of(context_step(2, passes::Recompute::full), passes::kAttentionBlock),
            2 * count_of(context_step(2), passes::kAttentionBlock));
}

TEST(RingAttention, GradientsAreSummedOverRanksOfASequence) {
  const Program p = context_step(2);
  const auto reduces = std::ranges::count_if(p.ops, [](const Op& op) {
    return op.is(ops::kAllReduce) && program::group_of(op) == program::Group::data &&
           op.attrs.integer("parts") == 2;
  });
  EXPECT_GT(reduces, 2);
}

TEST(RingAttention, WantsFlashAttention) {
  compile::StepOptions options{
      .engine = compile::EngineKind::eager, .attention = passes::AttentionKind::batched, .optimizer = {}};
  options.sharding.context = 2;
  EXPECT_ANY_THROW(compile::training_step(model::forward(tests::small_config(Arch::llama), 2, 8), options));
}

TEST(UnfusedLoss, KeepsWholeLogitsInFp32) {
  const Program p =
      tests::small_step(Arch::llama, {.dtype = core::DType::bf16, .unfused_loss = true, .optimizer = {}});
  EXPECT_EQ(count_of(p, ops::kCrossEntropy) + count_of(p, ops::kCrossEntropyWithGradient), 0U);
  EXPECT_EQ(count_of(p, passes::kLogSoftmax), 1U);
  EXPECT_EQ(count_of(p, passes::kLogSoftmaxBackward), 1U);
  std::size_t whole = 0;
  for (const program::Tensor& tensor : p.tensors) {
    const bool is_logits = tensor.shape.numel() == std::int64_t{2} * 13 * 71;
    whole += static_cast<std::size_t>(is_logits && tensor.dtype == core::DType::f32);
  }
  EXPECT_EQ(whole, 4U);  // logits, their log softmax, two gradients
}

/// A tied and an untied head, with norms on own rows and on all; 71 words cannot be shared by two.
TEST(VocabParallel, RanksHaveAPartOfTheVocabularyWhereItDivides) {
  for (const Arch arch : {Arch::gpt2, Arch::llama}) {
    for (const bool by_rows : {false, true}) {
      for (const std::int64_t vocab : {72, 71}) {
        SCOPED_TRACE(std::string(model::name_of(arch)) + (by_rows ? " rows " : " ") + std::to_string(vocab));
        model::ModelConfig config = tests::small_config(arch);
        config.heads = config.kv_heads = 2;
        config.head_dim = config.d_model / 2;
        config.d_ff = 46;
        config.padded_vocab = vocab;
        compile::StepOptions options{.optimizer = {}};
        options.sharding = {.tensor = 2, .sequence_parallel = by_rows, .vocab_parallel = true};
        const Program p = compile::training_step(model::forward(config, 2, 13), options);
        const std::int64_t own = vocab % 2 == 0 ? vocab / 2 : vocab;
        EXPECT_EQ(p.shape(p.find("wte"))[0], own);
        std::int64_t columns = 0;
        for (const Op& op : p.ops) {
          if (op.is(ops::kMatmul) && op.scope == "lm_head" && op.phase == program::Phase::forward)
            columns = op.attrs.integer("n");
        }
        EXPECT_EQ(columns, own);
      }
    }
  }
}

TEST(ShortEnds, TheFirstAndTheLastPartHaveOneLayerLess) {
  model::ModelConfig config = tests::small_config(Arch::llama);
  config.layers = 6;
  const compile::Sharding sharding{.pipeline = 4, .short_ends = true};
  compile::check(sharding, config, 1, 8, 1);
  std::vector<std::set<std::string>> layers;
  for (int stage = 0; stage < 4; ++stage) {
    compile::StepOptions options{.optimizer = {}};
    options.sharding = sharding;
    options.rank.pipeline = stage;
    layers.emplace_back();
    for (const Op& op : compile::training_step(model::forward(config, 1, 8), options).ops)
      if (op.scope.starts_with("h.")) layers.back().insert(op.scope.substr(0, 3));
  }
  EXPECT_EQ(layers, (std::vector<std::set<std::string>>{{"h.0"}, {"h.1", "h.2"}, {"h.3", "h.4"}, {"h.5"}}));
  EXPECT_ANY_THROW(compile::check({.pipeline = 4}, config, 1, 8, 1));
  EXPECT_ANY_THROW(compile::check({.pipeline = 3, .short_ends = true}, config, 1, 8, 1));
  EXPECT_ANY_THROW(compile::check({.pipeline = 1, .short_ends = true}, config, 1, 8, 1));
}

}  // namespace
}  // namespace rooflm
