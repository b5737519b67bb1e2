// Rewrites of split steps, and those that are planned with and that nothing runs: the unfused loss, dropout.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "compile/passes/part_ops.h"
#include "compile/planned/collective_copies.h"
#include "compile/planned/dropout.h"
#include "compile/planned/gradient_sums.h"
#include "compile/planned/unfused_loss.h"
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
Program context_step(int parts, passes::Recompute recompute = passes::Recompute::none,
                     bool gathered_ring = false) {
  compile::StepOptions options{
      .recompute = recompute,
      .rewrites = gathered_ring ? compile::Rewrites{compile::Rewrite::gathered_ring} : compile::Rewrites{},
      .optimizer = {}};
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
    EXPECT_EQ(count_of(p, ops::kAttentionBlock), kLayers * n);
    EXPECT_EQ(count_of(p, ops::kAttentionBlockBackward), kLayers * n);
    // Keys and values go on n - 1 times in each pass, their gradients n times.
    EXPECT_EQ(count_of(p, ops::kPassOn), kLayers * (2 * (n - 1) + n));
    EXPECT_EQ(count_of(p, ops::kFlashAttention) + count_of(p, ops::kFlashAttentionBackward), 0U);
  }
}

/// Each collective is read by the next op of the computation, so that nothing runs beside it.
TEST(RingAttention, GatheredKeysAndValuesOfAllHeadsAreAwaitedAtOnce) {
  for (const int parts : {2, 4}) {
    const Program p = context_step(parts, passes::Recompute::none, true);
    constexpr std::size_t kLayers = 2;
    const auto n = static_cast<std::size_t>(parts);
    EXPECT_EQ(count_of(p, ops::kAttentionBlock), kLayers * n);
    EXPECT_EQ(count_of(p, ops::kPassOn), kLayers * n);
    EXPECT_EQ(count_of(p, passes::kAddGradient), kLayers * 2 * (n - 1));
    std::size_t gathers = 0;
    for (std::size_t i = 0; i + 1 < p.ops.size(); ++i) {
      const Op& op = p.ops[i];
      const bool is_ring = program::is_collective(op) && program::group_of(op) == program::Group::context;
      if (!is_ring) continue;
      const auto& next = p.ops[i + 1].inputs;
      EXPECT_NE(std::ranges::find(next, op.outputs[0]), next.end()) << op.def->name;
      EXPECT_NE(std::ranges::find(p.ops[i + 1].waits, static_cast<int>(i)), p.ops[i + 1].waits.end());
      if (!op.is(ops::kAllGather)) continue;
      ++gathers;
      // [B, T, 2 H D] of a config with fewer key and value heads than query heads, of each rank.
      const auto config = tests::small_config(Arch::llama);
      EXPECT_LT(config.kv_heads, config.heads);
      EXPECT_EQ(p.shape(op.outputs[0]).numel(), 2 * 16 * 2 * config.heads * config.head_dim);
    }
    EXPECT_EQ(gathers, 2 * kLayers);
  }
}

TEST(RingAttention, KeysAndValuesTravelBesideTheAttentionToTheOnesBefore) {
  const Program p = context_step(2);
  for (std::size_t i = 0; i + 1 < p.ops.size(); ++i) {
    if (!p.ops[i].is(ops::kPassOn) || !p.ops[i + 1].is(ops::kAttentionBlock)) continue;
    EXPECT_EQ(p.ops[i].lane, program::Lane::communication);
    EXPECT_EQ(program::group_of(p.ops[i]), program::Group::context);
    EXPECT_TRUE(p.ops[i + 1].waits.empty());
  }
}

TEST(RingAttention, IsDoneAgainWithItsMessagesWhereALayerIsRecomputed) {
  EXPECT_EQ(count_of(context_step(2, passes::Recompute::full), ops::kAttentionBlock),
            2 * count_of(context_step(2), ops::kAttentionBlock));
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
  const Program p = tests::small_step(
      Arch::llama,
      {.dtype = core::DType::bf16, .rewrites = {compile::Rewrite::unfused_loss}, .optimizer = {}});
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

/// On a part of the vocabulary it takes more steps, and more of them are alive at once.
TEST(UnfusedLoss, OfAPartRunsWhatLossParallelRuns) {
  model::ModelConfig config = tests::small_config(Arch::gpt2);
  config.heads = config.kv_heads = 2;
  config.head_dim = config.d_model / 2;
  config.d_ff = 46;
  config.padded_vocab = 72;
  compile::StepOptions options{
      .dtype = core::DType::bf16, .rewrites = {compile::Rewrite::unfused_loss}, .optimizer = {}};
  options.sharding = {.tensor = 2, .vocab_parallel = true};
  const Program p = compile::training_step(model::forward(config, 2, 13), options);
  EXPECT_EQ(count_of(p, passes::kLogSoftmax) + count_of(p, passes::kLogSoftmaxBackward), 0U);
  EXPECT_EQ(count_of(p, passes::kLossStep), 5U);
  // Zeros, log softmax, their sum and the gradient are alive at once; one of them is read.
  const auto last = std::ranges::find_if(p.ops, [](const Op& op) { return op.is(passes::kLossLastStep); });
  ASSERT_NE(last, p.ops.end());
  EXPECT_EQ(last->inputs.size(), 3U);
  EXPECT_EQ(program::cost_of(p, *last).bytes_read, p.tensor(last->inputs[0]).bytes());
  EXPECT_EQ(count_of(p, passes::kJoinLosses), 1U);
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

/// What parts have is put together before the gradient reads it, so the two are no longer one op.
TEST(VocabParallel, LossesOfPartsAreJoinedBeforeTheirGradient) {
  model::ModelConfig config = tests::small_config(Arch::llama);
  config.padded_vocab = 72;
  config.d_ff = 46;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_dim = 4;
  compile::StepOptions options{.optimizer = {}};
  options.sharding = {.tensor = 2, .vocab_parallel = true};
  options.rank.tensor = 1;
  const Program p = compile::training_step(model::forward(config, 2, 13), options);
  EXPECT_EQ(count_of(p, passes::kJoinLosses), 1U);
  EXPECT_EQ(count_of(p, ops::kCrossEntropyWithGradient), 0U);
  for (const Op& op : p.ops) {
    if (!op.is(passes::kCrossEntropyOfPart)) continue;
    EXPECT_EQ(op.attrs.integer("first"), 36);
    EXPECT_EQ(op.attrs.integer("valid"), 67 - 36);
  }
  EXPECT_EQ(count_of(p, passes::kEmbeddingBackwardOfPart), 1U);
}

compile::StepOptions fsdp_options() {
  compile::StepOptions options{
      .dtype = core::DType::bf16, .unit_buffers = passes::UnitKind::copied, .optimizer = {}};
  options.sharding.data = 4;
  options.sharding.zero = 3;
  return options;
}

TEST(UnitBuffers, WeightsAreCopiedOutWhenTheyAreWantedAndGradientsBeforeTheyAreReduced) {
  const Program p = tests::small_step(Arch::llama, fsdp_options());
  std::size_t gathers = 0;
  std::size_t reduces = 0;
  std::set<program::TensorId> copied;
  for (std::size_t i = 0; i < p.ops.size(); ++i) {
    const Op& op = p.ops[i];
    const bool is_data = program::is_collective(op) && program::group_of(op) == program::Group::data;
    if (is_data && op.is(ops::kAllGather)) {
      ++gathers;
      for (const program::TensorId id : op.inputs) EXPECT_EQ(p.tensor(id).role, program::Role::workspace);
    }
    if (is_data && op.is(ops::kReduceScatter)) {
      ++reduces;
      ASSERT_TRUE(p.ops[i - 1].is(passes::kRearrange));
      for (const program::TensorId id : p.ops[i - 1].inputs) EXPECT_EQ(p.tensor(id).dtype, core::DType::bf16);
      for (const program::TensorId id : op.inputs) EXPECT_EQ(p.tensor(id).dtype, core::DType::f32);
    }
    if (op.is(passes::kRearrange)) copied.insert(op.outputs.begin(), op.outputs.end());
    for (const program::TensorId id : op.inputs) {
      const bool is_gathered = id != program::kNone && p.tensor(id).role == program::Role::gathered_weight;
      EXPECT_TRUE(!is_gathered || copied.contains(id)) << op.def->name;
    }
  }
  EXPECT_EQ(count_of(p, passes::kRearrange), gathers + reduces);
  EXPECT_GT(gathers, reduces);
}

/// In a pipeline gradients are added up over micro-batches before they are reduced: in fp32.
TEST(UnitBuffers, GradientsThatAreAddedUpStayInFp32) {
  compile::StepOptions options = fsdp_options();
  options.sharding.zero = 1;
  options.micro_batches = 2;
  const Program p = tests::small_step(Arch::llama, options);
  std::size_t reduces = 0;
  for (std::size_t i = 1; i < p.ops.size(); ++i) {
    if (!p.ops[i].is(ops::kReduceScatter) || !p.ops[i - 1].is(passes::kRearrange)) continue;
    ++reduces;
    for (const program::TensorId id : p.ops[i - 1].inputs) EXPECT_EQ(p.tensor(id).dtype, core::DType::f32);
  }
  EXPECT_GT(reduces, 0U);
}

/// FSDP1: weights are views, gradients of each micro-batch are put together and reduced.
TEST(UnitBuffers, FlatTensorsAreOfGradientsOnly) {
  for (const auto kind : {passes::UnitKind::flat, passes::UnitKind::flat_halves}) {
    compile::StepOptions options = fsdp_options();
    options.unit_buffers = kind;
    options.micro_batches = 2;
    const Program p = tests::small_step(Arch::llama, options);
    const core::DType reduced = kind == passes::UnitKind::flat ? core::DType::f32 : core::DType::bf16;
    std::size_t reduces = 0;
    for (std::size_t i = 1; i < p.ops.size(); ++i) {
      if (!p.ops[i].is(ops::kReduceScatter)) continue;
      ++reduces;
      ASSERT_TRUE(p.ops[i - 1].is(passes::kRearrange));
      for (const program::TensorId id : p.ops[i - 1].inputs) EXPECT_EQ(p.tensor(id).dtype, core::DType::bf16);
      for (const program::TensorId id : p.ops[i].inputs) EXPECT_EQ(p.tensor(id).dtype, reduced);
    }
    EXPECT_EQ(count_of(p, passes::kRearrange), reduces);
    EXPECT_EQ(reduces, 2U * (2 + 2));  // of two micro-batches: layers, embedding and head
  }
}

/// Parts in 16 bits are made for each gathering, and are no copies that stay.
TEST(UnitBuffers, NoCopiesOfMastersAreKept) {
  const Program p = tests::small_step(Arch::llama, fsdp_options());
  for (const program::Tensor& tensor : p.tensors) {
    const bool is_copy = tensor.role == program::Role::weight && tensor.dtype == core::DType::bf16;
    EXPECT_TRUE(!is_copy || tensor.own_bytes() == 0) << tensor.name;
  }
}

TEST(RowCopies, StandBesideEachExchangeOfRows) {
  model::ModelConfig config = tests::small_config(Arch::llama);
  config.heads = 6;
  config.kv_heads = 2;
  config.head_dim = 4;
  config.d_ff = 46;
  compile::StepOptions options{.rewrites = {compile::Rewrite::row_copies}, .optimizer = {}};
  options.sharding = {.tensor = 2, .sequence_parallel = true};
  const Program p = compile::training_step(model::forward(config, 2, 13), options);
  std::size_t exchanges = 0;
  for (std::size_t i = 0; i < p.ops.size(); ++i) {
    const bool gathers = p.ops[i].is(ops::kAllGather);
    const bool scatters = p.ops[i].is(ops::kReduceScatter);
    if (!gathers && !scatters) continue;
    ++exchanges;
    const Op& copy = p.ops[gathers ? i + 1 : i - 1];
    ASSERT_TRUE(copy.is(passes::kRearrange));
    EXPECT_EQ((gathers ? copy.inputs : copy.outputs), (gathers ? p.ops[i].outputs : p.ops[i].inputs));
  }
  EXPECT_EQ(count_of(p, passes::kRearrange), exchanges);
  EXPECT_GT(exchanges, 8U);
}

/// Behind the softmax and the two matmuls that end in the residual, each with one gradient.
TEST(Dropout, StandsBehindEachSoftmaxAndEachBranch) {
  constexpr std::size_t kLayers = 2;
  for (const auto recompute : {passes::Recompute::none, passes::Recompute::full}) {
    const bool again = recompute == passes::Recompute::full;
    const Program p = tests::small_step(
        Arch::gpt2, {.attention = passes::AttentionKind::batched,
                     .recompute = recompute,
                     .rewrites = {compile::Rewrite::dropout, compile::Rewrite::whole_recompute},
                     .optimizer = {}});
    EXPECT_EQ(count_of(p, passes::kDropout), kLayers * 3 * (again ? 2 : 1));
    EXPECT_EQ(count_of(p, passes::kDropoutBackward), kLayers * 3);
    for (const Op& op : p.ops) {
      if (!op.is(ops::kCausalSoftmaxBackward)) continue;
      EXPECT_TRUE(p.tensor(op.inputs[0]).name.ends_with(".dropout"));
      EXPECT_FALSE(p.tensor(op.inputs[1]).name.ends_with(".dropout"));
    }
  }
}

TEST(WholeRecompute, RedoesALayerToItsEnd) {
  const auto redone = [](bool is_whole) {
    const Program p = tests::small_step(
        Arch::gpt2,
        {.recompute = passes::Recompute::full,
         .rewrites = is_whole ? compile::Rewrites{compile::Rewrite::whole_recompute} : compile::Rewrites{},
         .optimizer = {}});
    return std::ranges::count_if(p.ops, [](const Op& op) {
      return op.recomputed && op.is(ops::kMatmul) && op.scope.ends_with("fc2");
    });
  };
  EXPECT_EQ(redone(false), 0);
  EXPECT_EQ(redone(true), 2);
}

/// Each weight of a matmul once for each micro-batch but the first; nothing adds up inside of a matmul.
TEST(GradientSums, AreOpsOfTheirOwn) {
  compile::StepOptions options{.dtype = core::DType::bf16,
                               .rewrites = {compile::Rewrite::gradient_sums},
                               .micro_batches = 3,
                               .optimizer = {}};
  const Program p = tests::small_step(Arch::llama, options);
  EXPECT_EQ(count_of(p, passes::kAddGradient), (2 * 4 + 1) * 2U);
  for (const Op& op : p.ops) {
    EXPECT_FALSE(op.is(ops::kMatmul) && op.attrs.flag("accumulate")) << op.scope;
    if (!op.is(passes::kAddGradient)) continue;
    EXPECT_EQ(p.tensor(op.inputs[1]).dtype, core::DType::bf16);
    EXPECT_EQ(p.tensor(op.outputs[0]).role, program::Role::gradient);
  }
}

TEST(LateSums, ComeAfterTheBackwardPass) {
  compile::StepOptions options{.optimizer = {}};
  options.sharding.data = 2;
  for (const bool is_late : {false, true}) {
    options.sharding.late_sums = is_late;
    const Program p = tests::small_step(Arch::gpt2, options);
    std::size_t last_backward = 0;
    std::size_t early = 0;
    for (std::size_t i = 0; i < p.ops.size(); ++i)
      if (p.ops[i].phase == program::Phase::backward && !program::is_collective(p.ops[i])) last_backward = i;
    for (std::size_t i = 0; i < last_backward; ++i)
      early +=
          static_cast<std::size_t>(p.ops[i].is(ops::kAllReduce) && p.ops[i].scope.ends_with("/gradients"));
    EXPECT_EQ(early == 0, is_late);
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
