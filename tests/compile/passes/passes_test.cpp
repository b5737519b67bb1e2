// What each pass promises about the programs it rewrites.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "compile/passes/fuse.h"
#include "compile/passes/plan_memory.h"
#include "program/ops.h"
#include "tests/case_names.h"
#include "tests/compile/passes/recipes.h"

namespace rooflm {
namespace {

namespace ops = program::ops;
using compile::EngineKind;
using compile::StepOptions;
using model::Arch;
using passes::AttentionKind;
using passes::Recompute;
using program::Op;
using program::Program;

std::size_t count(const Program& p, const program::OpDef& def) {
  return static_cast<std::size_t>(
      std::count_if(p.ops.begin(), p.ops.end(), [&](const Op& op) { return op.is(def); }));
}

StepOptions eager(AttentionKind attention = AttentionKind::batched) {
  return {.engine = EngineKind::eager, .attention = attention, .optimizer = {}};
}

class EveryRecipe : public testing::TestWithParam<
                        std::tuple<Arch, EngineKind, AttentionKind, Recompute, core::DType, int>> {};

TEST_P(EveryRecipe, IsAWellFormedProgram) {
  const auto [arch, engine, attention, recompute, dtype, micro_batches] = GetParam();
  const StepOptions options{.engine = engine,
                            .attention = attention,
                            .dtype = dtype,
                            .recompute = recompute,
                            .micro_batches = micro_batches,
                            .optimizer = {}};
  const Program p = tests::small_step(arch, options);
  EXPECT_NO_THROW(program::check(p));
  EXPECT_EQ(count(p, ops::kAttention), 0U);
  std::set<std::string> updated;
  for (const Op& op : p.ops) {
    if (!op.is(ops::kAdamW)) continue;
    for (std::size_t i = 2; i < op.inputs.size(); i += 4) updated.insert(p.tensor(op.inputs[i]).name);
  }
  const auto weights = model::forward(tests::small_config(arch), 1, 1);
  for (const auto& tensor : weights.tensors) {
    if (tensor.role == program::Role::weight) {
      EXPECT_TRUE(updated.contains(tensor.name)) << tensor.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, EveryRecipe,
    testing::Combine(testing::Values(Arch::gpt2, Arch::llama),
                     testing::Values(EngineKind::eager, EngineKind::fused),
                     testing::Values(AttentionKind::looped, AttentionKind::batched, AttentionKind::flash),
                     testing::Values(Recompute::none, Recompute::selective, Recompute::full),
                     testing::Values(core::DType::f32, core::DType::bf16, core::DType::f64),
                     testing::Values(1, 3)),
    tests::TupleName());

/// Of q, k, v, out, gate, up and down every second matmul: here out, and gate and up of the second layer.
TEST(Recompute, EveryOtherMatmulIsRecomputed) {
  const auto again = [](Arch arch) {
    const Program p = tests::small_step(
        arch, {.engine = EngineKind::eager, .recompute = Recompute::every_other, .optimizer = {}});
    std::vector<std::string> scopes;
    for (const Op& op : p.ops) {
      if (op.recomputed && op.is(ops::kMatmul)) scopes.push_back(op.scope);
      EXPECT_FALSE(op.recomputed && op.is(ops::kFlashAttention));
    }
    return scopes;
  };
  EXPECT_EQ(again(Arch::llama),
            (std::vector<std::string>{"h.1/attention/proj", "h.1/feed_forward/fc1", "h.0/attention/proj"}));
  EXPECT_EQ(again(Arch::gpt2), (std::vector<std::string>{"h.1/attention/proj", "h.0/attention/proj"}));
}

TEST(LowerAttention, LoopedLaunchesOneMatmulPerBatchAndHead) {
  const Program looped = tests::small_step(Arch::gpt2, eager(AttentionKind::looped), "lower_attention");
  const Program batched = tests::small_step(Arch::gpt2, eager(), "lower_attention");
  const auto launches = [](const Program& p) {
    std::int64_t n = 0;
    for (const Op& op : p.ops) {
      if (op.scope.starts_with("h.0/attention/qk") && op.is(ops::kMatmul) && op.attrs.integer("batch") > 1) {
        n += program::cost_of(p, op).launches;
      }
    }
    return n;
  };
  EXPECT_EQ(launches(batched), 1);
  EXPECT_EQ(launches(looped), 2 * 3);  // B = 2, H = 3
}

TEST(Differentiate, TiedHeadAccumulatesIntoOneGradient) {
  const Program p = tests::small_step(Arch::gpt2, eager());
  int writers = 0;
  int accumulating = 0;
  for (const Op& op : p.ops) {
    for (const program::TensorId id : op.outputs) {
      if (p.tensor(id).name != "d_wte") continue;
      ++writers;
      accumulating += op.attrs.flag("accumulate") ? 1 : 0;
    }
  }
  EXPECT_EQ(writers, 2);
  EXPECT_EQ(accumulating, 1);
}

TEST(ChunkLoss, NeverHoldsAllLogits) {
  const model::ModelConfig config = model::preset("gpt2");
  const StepOptions options{.optimizer = {}};
  const Program p = compile::training_step(model::forward(config, 4, 1024), options);
  std::int64_t widest = 0;
  for (const auto& tensor : p.tensors) {
    if (tensor.name == "logits" && tensor.shape.rank() == 2) widest = std::max(widest, tensor.shape[0]);
  }
  const auto lifetimes = passes::find_lifetimes(p);
  std::int64_t chunked_rows = 0;
  for (const Op& op : p.ops) {
    if (op.is(ops::kCrossEntropyWithGradient))
      chunked_rows = std::max(chunked_rows, op.attrs.integer("rows"));
  }
  EXPECT_LE(4 * chunked_rows * config.padded_vocab, 128LL << 20U);
  EXPECT_EQ(count(p, ops::kCrossEntropy), 0U);
  EXPECT_EQ(count(p, ops::kCrossEntropyWithGradient), static_cast<std::size_t>(4 * 1024 / chunked_rows));
  for (std::size_t i = 0; i < p.tensors.size(); ++i) {
    const bool alive = lifetimes[i].first >= 0;
    if (alive && p.tensors[i].role == program::Role::activation) {
      EXPECT_LT(p.tensors[i].bytes(), 4LL * 4096 * config.padded_vocab) << p.tensors[i].name;
    }
  }
}

/// Rows of logits are aligned where a device wants it; the weights and their gradients stay as they are.
TEST(ChunkLoss, PadsRowsOfLogits) {
  const Program p = tests::small_step(Arch::gpt2, {.logits_padding = 64, .optimizer = {}});
  std::size_t strided = 0;
  for (const Op& op : p.ops) {
    if (op.is(ops::kCrossEntropyWithGradient)) {
      EXPECT_EQ(p.shape(op.inputs[0])[-1], 128);
      EXPECT_EQ(op.attrs.integer("valid"), 67);
    }
    if (!op.is(ops::kMatmul)) continue;
    const bool writes = op.attrs.has("c_stride");
    const bool reads = op.attrs.has("a_stride");
    strided += static_cast<std::size_t>(writes) + static_cast<std::size_t>(reads);
    if (writes) {
      EXPECT_EQ(op.attrs.integer("n"), 71);
      EXPECT_EQ(op.attrs.integer("c_stride"), 128);
    }
    if (reads) {
      EXPECT_EQ(op.attrs.integer("a_stride"), 128);
    }
  }
  EXPECT_EQ(strided, 3U);  // the head, and both its gradients
  EXPECT_EQ(p.shape(p.find("wte")), (core::Shape{71, 24}));
  for (const Op& op : tests::small_step(Arch::gpt2, {.optimizer = {}}).ops) {
    EXPECT_FALSE(op.attrs.has("a_stride") || op.attrs.has("c_stride"));
  }
}

/// However many tokens there are.
TEST(ChunkLoss, IsCutIntoABoundedNumberOfChunks) {
  model::ModelConfig config = model::preset("llama3-8b");
  config.layers = 1;
  const Program p = compile::training_step(model::forward(config, 10'000'000, 64), {});
  const std::size_t chunks = count(p, ops::kCrossEntropyWithGradient);
  EXPECT_LE(chunks, 4096U);
  EXPECT_GT(chunks, 4000U);
}

TEST(Fuse, LeavesNoPairThatFuses) {
  const Program p = tests::small_step(Arch::gpt2, {.optimizer = {}});
  EXPECT_EQ(count(p, ops::kBiasAdd), 0U);
  EXPECT_EQ(count(p, ops::kAddPositions), 0U);
  EXPECT_EQ(count(p, ops::kAdd), 0U);
  EXPECT_EQ(count(p, ops::kLayerNorm), 1U);     // the first has no residual before it
  EXPECT_EQ(count(p, ops::kAdamW), 2U);         // with and without weight decay
  EXPECT_EQ(count(p, ops::kGeluBackward), 2U);  // one a layer, for devices that gain nothing otherwise
  EXPECT_EQ(count(p, ops::kGelu), 2U);
}

/// GELU's gradient takes the place of the matmul, before the weight gradient between them.
TEST(Fuse, GeluGradientJoinsTheMatmulBeforeIt) {
  for (const Recompute kind : {Recompute::none, Recompute::selective, Recompute::full}) {
    const Program p = tests::small_step(
        Arch::gpt2, {.recompute = kind, .rewrites = {compile::Rewrite::gelu_in_epilogue}, .optimizer = {}});
    EXPECT_EQ(count(p, ops::kGeluBackward), 0U);
    EXPECT_EQ(count(p, ops::kMatmulGelu), kind == Recompute::none ? 2U : 0U);
    for (std::size_t i = 0; i < p.ops.size(); ++i) {
      const Op& op = p.ops[i];
      if (!op.is(ops::kMatmulGeluBackward)) continue;
      EXPECT_TRUE(op.scope.ends_with("feed_forward/fc2")) << op.scope;
      EXPECT_EQ(op.phase, program::Phase::backward);
      const Op& weight_gradient = p.ops.at(i + 1);
      EXPECT_TRUE(weight_gradient.is(ops::kMatmul));
      EXPECT_EQ(p.tensor(weight_gradient.outputs[0]).role, program::Role::gradient);
      EXPECT_EQ(p.tensor(op.inputs[2]).shape.numel(), p.tensor(op.outputs[0]).shape.numel());
    }
  }
}

/// Where it is computed again, it stays an op of its own, kept or not: the same bits. Where nobody needs its
/// input, it takes that input's place.
TEST(Fuse, GeluJoinsTheMatmulOnlyWhereItIsComputedOnce) {
  for (const Recompute kind : {Recompute::selective, Recompute::full}) {
    const Program p = tests::small_step(
        Arch::gpt2, {.recompute = kind, .rewrites = {compile::Rewrite::gelu_in_epilogue}, .optimizer = {}});
    EXPECT_EQ(count(p, ops::kMatmulGelu), 0U);
    EXPECT_EQ(count(p, ops::kGelu), 4U);
  }
  const Program inference =
      compile::inference_step(model::forward(tests::small_config(Arch::gpt2), 2, 13),
                              {.rewrites = {compile::Rewrite::gelu_in_epilogue}, .optimizer = {}});
  EXPECT_EQ(count(inference, ops::kMatmulGelu), 0U);
  EXPECT_EQ(count(inference, ops::kGelu), 2U);
}

/// The gradients of fc1's bias and of those before a norm: proj's in each layer, fc2's in all.
TEST(Fuse, BiasGradientsJoinWhatWritesTheirInput) {
  for (const int micro_batches : {1, 2}) {
    const auto options = [&](bool fuses) {
      return compile::StepOptions{
          .rewrites = fuses ? compile::Rewrites{compile::Rewrite::bias_in_gradients} : compile::Rewrites{},
          .micro_batches = micro_batches,
          .optimizer = {}};
    };
    const Program apart = tests::small_step(Arch::gpt2, options(false));
    const Program p = tests::small_step(Arch::gpt2, options(true));
    const auto each = static_cast<std::size_t>(micro_batches);
    EXPECT_EQ(count(apart, ops::kBiasBackward), 8U * each);
    EXPECT_EQ(count(p, ops::kBiasBackward), 2U * each);  // of q, k and v
    for (const Op& op : p.ops) {
      if (op.is(ops::kBiasBackward)) {
        EXPECT_TRUE(op.scope.ends_with("attention/qkv")) << op.scope;
      }
      if (!op.attrs.flag("bias_gradient")) continue;
      const program::TensorId bias = op.outputs[op.is(ops::kGeluBackward) ? 1 : 3];
      EXPECT_EQ(p.tensor(bias).role, program::Role::gradient);
      EXPECT_TRUE(p.tensor(bias).full_precision);
      EXPECT_EQ(p.shape(bias), (core::Shape{p.shape(op.outputs[0])[-1]}));
      EXPECT_EQ(op.attrs.flag("accumulate"), op.micro_batch > 0);
    }
    EXPECT_NO_THROW(program::check(p));
  }
}

/// What does not sum whole rows of one result stays an op of its own.
TEST(Fuse, BiasGradientsOfPartsStayAlone) {
  Program p = tests::small_step(Arch::gpt2, {.optimizer = {}}, "mark_products");
  for (Op& op : p.ops) {
    if (op.is(ops::kBiasBackward)) op.output_offset = {0};
  }
  passes::fuse(p, {.bias_in_gradients = true});
  EXPECT_EQ(count(p, ops::kBiasBackward), 8U);
}

/// A result that something else reads as well stays one.
TEST(Fuse, GeluGradientOfASharedResultStaysAlone) {
  Program p = tests::small_step(Arch::gpt2, {.optimizer = {}}, "mark_products");
  const auto gelu =
      std::find_if(p.ops.begin(), p.ops.end(), [](const Op& op) { return op.is(ops::kGeluBackward); });
  ASSERT_NE(gelu, p.ops.end());
  Op other = *gelu;
  other.outputs[0] = p.add_tensor(p.tensor(gelu->outputs[0]));
  p.ops.insert(gelu, other);
  passes::fuse(p, {.gelu_gradient_in_epilogue = true});
  EXPECT_NO_THROW(program::check(p));
  EXPECT_EQ(count(p, ops::kGeluBackward), 2U);
  EXPECT_EQ(count(p, ops::kMatmulGeluBackward), 1U);
}

TEST(Fuse, LossWithGradientKeepsTheLossScale) {
  const Program p = tests::small_step(Arch::gpt2, {.dtype = core::DType::f16, .optimizer = {}});
  const auto loss = std::find_if(p.ops.begin(), p.ops.end(),
                                 [](const Op& op) { return op.is(ops::kCrossEntropyWithGradient); });
  ASSERT_NE(loss, p.ops.end());
  ASSERT_EQ(loss->inputs.size(), 3U);
  EXPECT_EQ(p.tensor(loss->inputs[2]).name, "loss_scale");
}

TEST(Cast, WeightsStayFp32AndOneCopyIsMade) {
  StepOptions options = eager();
  options.dtype = core::DType::bf16;
  const Program p = tests::small_step(Arch::gpt2, options);
  std::map<std::string, int> casts;
  for (const Op& op : p.ops) {
    if (op.is(ops::kCast)) ++casts[p.tensor(op.inputs[0]).name];
  }
  EXPECT_EQ(casts.at("wte"), 1);
  EXPECT_FALSE(casts.contains("ln_f.weight"));
  for (const auto& tensor : p.tensors) {
    if (tensor.role == program::Role::weight || tensor.role == program::Role::gradient) {
      EXPECT_EQ(tensor.dtype, core::DType::f32) << tensor.name;
    }
  }
}

TEST(PlanMemory, NoTwoLiveTensorsOverlap) {
  for (const Arch arch : {Arch::gpt2, Arch::llama}) {
    for (const AttentionKind attention : {AttentionKind::batched, AttentionKind::flash}) {
      const Program p =
          tests::small_step(arch, {.attention = attention, .micro_batches = 2, .optimizer = {}});
      const auto plan = passes::plan_memory(p);
      for (std::size_t a = 0; a < p.tensors.size(); ++a) {
        for (std::size_t b = a + 1; b < p.tensors.size(); ++b) {
          if (plan.offsets[a] < 0 || plan.offsets[b] < 0) continue;
          const auto& x = plan.lifetimes[a];
          const auto& y = plan.lifetimes[b];
          // In-place pairs touch in one op: the input dies where the output is born.
          const bool live_together = x.first < y.last && y.first < x.last;
          const bool disjoint = plan.offsets[a] + p.tensors[a].bytes() <= plan.offsets[b] ||
                                plan.offsets[b] + p.tensors[b].bytes() <= plan.offsets[a];
          if (live_together) {
            EXPECT_TRUE(disjoint) << p.tensors[a].name << " and " << p.tensors[b].name;
          }
        }
      }
      EXPECT_GE(plan.arena_bytes, 0);
      EXPECT_EQ(plan.arena_bytes % 64, 0);
    }
  }
}

TEST(Recompute, CutsTheArenaOfALongSequence) {
  const auto forward = model::forward(model::preset("gpt2"), 4, 1024);
  const auto arena = [&](Recompute kind) {
    return passes::plan_memory(compile::training_step(forward, {.recompute = kind, .optimizer = {}}))
        .arena_bytes;
  };
  const auto none = arena(Recompute::none);
  EXPECT_LT(arena(Recompute::selective), none);
  EXPECT_LT(arena(Recompute::full), arena(Recompute::selective));
}

}  // namespace
}  // namespace rooflm
