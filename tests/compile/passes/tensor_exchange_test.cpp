// How tensor-parallel ranks of other frameworks exchange rows: in fp8, and beside their matmuls.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "compile/planned/async_tensor.h"
#include "compile/planned/collective_copies.h"
#include "program/fp8.h"
#include "program/groups.h"
#include "program/ops.h"
#include "tests/compile/passes/recipes.h"

namespace rooflm {
namespace {

namespace ops = program::ops;
using model::Arch;
using program::Op;
using program::Program;

std::size_t number_of(const Program& p, const program::OpDef& def) {
  return static_cast<std::size_t>(std::ranges::count_if(p.ops, [&](const Op& op) { return op.is(def); }));
}

compile::StepOptions tensor_options(bool fp8) {
  compile::StepOptions options{.dtype = core::DType::bf16,
                               .fp8 = fp8,
                               .rewrites = {compile::Rewrite::fp8_own_scales},
                               .optimizer = {}};
  options.sharding = {.tensor = 2, .sequence_parallel = true};
  return options;
}

Program tensor_step(const compile::StepOptions& options, std::int64_t batch = 2) {
  model::ModelConfig config = tests::even_config(Arch::llama);
  config.d_ff = 64;  // halves are multiples of 16, too
  return compile::training_step(model::forward(config, batch, 16), options);
}

/// Of rows that a layer's matmuls read; the embedding's gradient is gathered, too.
bool is_row_gather(const Program& p, const Op& op) {
  if (!op.is(ops::kAllGather) || !op.scope.starts_with("h.")) return false;
  return std::ranges::none_of(p.ops, [&](const Op& other) {
    return other.is(ops::kEmbeddingBackward) &&
           std::ranges::find(other.inputs, op.outputs[0]) != other.inputs.end();
  });
}

TEST(Fp8Gathers, RowsOfLayersTravelInOneByte) {
  compile::StepOptions options = tensor_options(true);
  const Program plain = tensor_step(options);
  options.rewrites.set(compile::Rewrite::fp8_gathers);
  const Program p = tensor_step(options);
  std::int64_t plain_bytes = 0;
  std::int64_t bytes = 0;
  for (const Op& op : plain.ops)
    if (is_row_gather(plain, op)) plain_bytes += program::payload_bytes(plain, op);
  for (const Op& op : p.ops) {
    if (!is_row_gather(p, op)) continue;
    bytes += program::payload_bytes(p, op);
    EXPECT_EQ(core::size_of(p.tensor(op.outputs[0]).dtype), 1U) << op.scope;
  }
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(2 * bytes, plain_bytes);
}

/// The scale is the same on all ranks, and each layout of what was gathered is there once.
TEST(Fp8Gathers, RanksAgreeOnScalesAndNothingIsCastAgain) {
  compile::StepOptions options = tensor_options(true);
  options.rewrites.set(compile::Rewrite::fp8_gathers);
  const Program p = tensor_step(options);
  for (std::size_t i = 0; i < p.ops.size(); ++i) {
    if (!is_row_gather(p, p.ops[i])) continue;
    ASSERT_GE(i, 2U);
    EXPECT_TRUE(p.ops[i - 1].is(ops::kAllReduce));
    EXPECT_EQ(p.shape(p.ops[i - 1].inputs[0]).numel(), program::kFp8Slot);
    EXPECT_TRUE(p.ops[i - 2].is(ops::kFp8Cast));
    EXPECT_EQ(p.ops[i - 2].outputs[0], p.ops[i].inputs[0]);
    for (const Op& op : p.ops) {
      const bool reads = std::ranges::find(op.inputs, p.ops[i].outputs[0]) != op.inputs.end();
      EXPECT_TRUE(!reads || op.is(ops::kMatmul) || op.is(passes::kRearrange)) << op.def->name;
    }
  }
}

/// The same matmuls, in as many parts as there are ranks; what the backward pass sums up stays a collective.
TEST(AsyncTensor, MatmulsAreDoneInPartsBesideCopies) {
  for (const bool fp8 : {false, true}) {
    compile::StepOptions options = tensor_options(fp8);
    options.rewrites.set(compile::Rewrite::fp8_gathers, fp8);
    const Program plain = tensor_step(options);
    options.rewrites.set(compile::Rewrite::async_tensor);
    const Program p = tensor_step(options);
    const auto flop = [](const Program& program) {
      std::int64_t sum = 0;
      for (const Op& op : program.ops) sum += program::cost_of(program, op).matmul_flop;
      return sum;
    };
    EXPECT_EQ(flop(p), flop(plain));
    // Of two layers: qkv and fc1 forward, proj and fc2 backward read what is gathered, proj and fc2 forward
    // make what is reduced; each with one other rank.
    constexpr std::size_t kLayers = 2;
    EXPECT_EQ(number_of(p, passes::kPlaceRows), kLayers * 4);
    EXPECT_EQ(number_of(p, passes::kSumRows), kLayers * 2);
    EXPECT_EQ(number_of(p, passes::kCopyRows), kLayers * 6);
    EXPECT_EQ(number_of(plain, ops::kReduceScatter) - number_of(p, ops::kReduceScatter), kLayers * 2);
  }
}

/// A rank begins with its own rows and waits for those of others one by one.
TEST(AsyncTensor, OwnRowsComeFirst) {
  compile::StepOptions options = tensor_options(false);
  options.rewrites.set(compile::Rewrite::async_tensor);
  const Program p = tensor_step(options);
  std::size_t waits = 0;
  for (std::size_t i = 1; i + 1 < p.ops.size(); ++i) {
    if (!p.ops[i].is(passes::kRowsArrived)) continue;
    ++waits;
    ASSERT_EQ(p.ops[i].waits.size(), 1U);
    EXPECT_TRUE(passes::is_row_copy(p.ops[static_cast<std::size_t>(p.ops[i].waits[0])]));
    const Op& own = p.ops[i - 1];
    const Op& other = p.ops[i + 1];
    ASSERT_TRUE(own.is(ops::kMatmul) && other.is(ops::kMatmul));
    EXPECT_EQ(own.input_offset[0], 0);
    EXPECT_EQ(other.input_offset[0], other.attrs.integer("m") * other.attrs.integer("k"));
    EXPECT_EQ(other.output_offset[0], other.attrs.integer("m") * other.attrs.integer("n"));
  }
  EXPECT_EQ(waits, 8U);
}

/// Rows of several sequences are gathered by position: gradients of weights read a copy of them, by sequence.
TEST(AsyncTensor, GradientsOfWeightsReadRowsBySequence) {
  for (const std::int64_t batch : {1, 2}) {
    compile::StepOptions options = tensor_options(false);
    options.rewrites.set(compile::Rewrite::async_tensor);
    const Program p = tensor_step(options, batch);
    std::size_t copies = 0;
    for (const Op& op : p.ops) {
      if (!op.is(passes::kPlaceRows)) continue;
      const program::TensorId whole = op.outputs[0];
      std::size_t of_weight = 0;
      for (const Op& other : p.ops) {
        const bool reads_it = std::ranges::find(other.inputs, whole) != other.inputs.end();
        if (reads_it && other.is(passes::kRearrange)) ++copies;
        of_weight += reads_it && other.is(ops::kMatmul) && other.attrs.flag("trans_a") ? 1 : 0;
      }
      EXPECT_EQ(of_weight, batch == 1 ? 1U : 0U) << op.scope;
    }
    // qkv, proj, fc1 and fc2 of two layers.
    EXPECT_EQ(copies, batch == 1 ? 0U : 8U);
  }
  // In fp8 the transposed copies are in that order: there is nothing more to copy.
  compile::StepOptions options = tensor_options(true);
  options.rewrites.set(compile::Rewrite::fp8_gathers);
  const std::size_t turned = number_of(tensor_step(options), passes::kRearrange);
  options.rewrites.set(compile::Rewrite::async_tensor);
  EXPECT_EQ(number_of(tensor_step(options), passes::kRearrange), turned);
}

/// As many FLOP in more matmuls; gradients of the common input are added up.
TEST(SeparateMatmuls, QueriesKeysValuesGateAndUp) {
  for (const bool fp8 : {false, true}) {
    compile::StepOptions options{.dtype = core::DType::bf16,
                                 .fp8 = fp8,
                                 .rewrites = {compile::Rewrite::fp8_own_scales},
                                 .optimizer = {}};
    const Program plain = tensor_step(options);
    options.rewrites.set(compile::Rewrite::separate_matmuls);
    const Program p = tensor_step(options);
    std::int64_t flop[] = {0, 0};
    for (const Op& op : plain.ops) flop[0] += program::cost_of(plain, op).matmul_flop;
    for (const Op& op : p.ops) flop[1] += program::cost_of(p, op).matmul_flop;
    EXPECT_EQ(flop[0], flop[1]);
    // Of each layer qkv is three and fc1 two; forward, and both of the backward pass.
    constexpr std::size_t kLayers = 2;
    EXPECT_EQ(number_of(p, ops::kMatmul) - number_of(plain, ops::kMatmul), kLayers * 3 * (2 + 1));
    const auto added = std::ranges::count_if(p.ops, [](const Op& op) {
      return op.is(ops::kMatmul) && op.attrs.flag("accumulate") && op.phase == program::Phase::backward;
    });
    EXPECT_EQ(added, static_cast<std::ptrdiff_t>(kLayers * (2 + 1)));
  }
}

bool reads(const Op& op, program::TensorId id) { return std::ranges::find(op.inputs, id) != op.inputs.end(); }

/// Nothing that a forward matmul gathered lives until the backward pass; a rank's own rows do.
TEST(GatherAgain, RowsOfOthersAreNotKept) {
  compile::StepOptions options = tensor_options(false);
  const Program plain = tensor_step(options);
  options.rewrites.set(compile::Rewrite::gather_again);
  const Program p = tensor_step(options);
  std::size_t forward = 0;
  for (const Op& op : p.ops) {
    if (!is_row_gather(p, op) || op.phase != program::Phase::forward) continue;
    ++forward;
    for (const Op& other : p.ops)
      EXPECT_TRUE(!reads(other, op.outputs[0]) || other.phase == program::Phase::forward) << other.scope;
  }
  EXPECT_EQ(forward, 4U);  // qkv and fc1 of two layers
  EXPECT_EQ(number_of(p, ops::kAllGather), number_of(plain, ops::kAllGather) + forward);
}

/// It travels while the gradient of the matmul's input is made.
TEST(GatherAgain, StartsBeforeTheGradientOfTheInput) {
  compile::StepOptions options = tensor_options(false);
  options.rewrites.set(compile::Rewrite::gather_again);
  const Program p = tensor_step(options);
  std::size_t found = 0;
  for (std::size_t i = 0; i < p.ops.size(); ++i) {
    const Op& gather = p.ops[i];
    const bool is_of_input = gather.scope.ends_with("qkv") || gather.scope.ends_with("fc1");
    if (!is_row_gather(p, gather) || gather.phase != program::Phase::backward || !is_of_input) continue;
    ++found;
    const auto next = std::find_if(p.ops.begin() + static_cast<std::ptrdiff_t>(i), p.ops.end(),
                                   [](const Op& op) { return op.is(ops::kMatmul); });
    ASSERT_NE(next, p.ops.end());
    EXPECT_EQ(next->scope, gather.scope);
    EXPECT_FALSE(reads(*next, gather.outputs[0]));
  }
  EXPECT_EQ(found, 4U);
}

/// The gradient of a layer's input is on its way before the gradient of the weight is made.
TEST(ReduceEarly, SumsRunBesideGradientsOfWeights) {
  compile::StepOptions options = tensor_options(false);
  const auto late_sums = [&](bool early) {
    options.rewrites.set(compile::Rewrite::reduce_early, early);
    const Program p = tensor_step(options);
    std::size_t late = 0;
    for (std::size_t i = 1; i < p.ops.size(); ++i) {
      const Op& sum = p.ops[i];
      const bool is_sum = sum.is(ops::kReduceScatter) && sum.phase == program::Phase::backward;
      if (!is_sum || !sum.scope.starts_with("h.")) continue;
      late += reads(sum, p.ops[i - 1].outputs[0]) ? 0 : 1;
    }
    return late;
  };
  EXPECT_EQ(late_sums(false), 4U);  // of qkv and fc1 of two layers, behind the gradients of both operands
  EXPECT_EQ(late_sums(true), 0U);
}

/// A rank's rows are cast once, and are gathered twice in fp8.
TEST(GatherAgain, KeepsOwnRowsInFp8) {
  compile::StepOptions options = tensor_options(true);
  options.rewrites.set(compile::Rewrite::fp8_own_scales, false);
  options.rewrites.set(compile::Rewrite::fp8_casts_apart);
  options.fp8_options.scaling = passes::Fp8Scaling::current;
  options.rewrites.set(compile::Rewrite::fp8_gathers);
  const std::size_t casts = number_of(tensor_step(options), ops::kFp8Cast);
  options.rewrites.set(compile::Rewrite::gather_again);
  const Program p = tensor_step(options);
  EXPECT_EQ(number_of(p, ops::kFp8Cast), casts);
  for (const Op& op : p.ops) {
    if (!is_row_gather(p, op)) continue;
    EXPECT_EQ(core::size_of(p.tensor(op.inputs[0]).dtype), 1U) << op.scope;
  }
}

compile::StepOptions parameter_options() {
  compile::StepOptions options = tensor_options(true);
  options.rewrites.set(compile::Rewrite::fp8_own_scales, false);
  options.rewrites.set(compile::Rewrite::fp8_casts_apart);
  options.fp8_options.scaling = passes::Fp8Scaling::current;
  options.sharding = {.data = 2, .zero = 1, .tensor = 2, .sequence_parallel = true};
  return options;
}

/// Weights of layers travel and stay in one byte; embedding and head do not.
TEST(Fp8Parameters, WeightsOfLayersHaveNoOtherCopies) {
  compile::StepOptions options = parameter_options();
  const Program plain = tensor_step(options);
  options.rewrites.set(compile::Rewrite::fp8_parameters);
  const Program p = tensor_step(options);
  std::size_t layers = 0;
  for (const program::Tensor& tensor : p.tensors) {
    if (tensor.role != program::Role::gathered_weight) continue;
    const bool is_of_layer = tensor.name.starts_with("h.");
    layers += is_of_layer ? 1 : 0;
    EXPECT_EQ(core::size_of(tensor.dtype), is_of_layer ? 1U : 2U) << tensor.name;
  }
  EXPECT_EQ(layers, 8U);
  for (const Op& op : p.ops) {
    if (!op.is(ops::kFp8Cast)) continue;
    EXPECT_NE(p.tensor(op.inputs[0]).role, program::Role::gathered_weight);
  }
  // The other layout of each is made in the backward pass.
  EXPECT_EQ(number_of(plain, ops::kFp8Cast) - number_of(p, ops::kFp8Cast), 2 * layers);
  EXPECT_EQ(number_of(p, passes::kRearrange), number_of(plain, passes::kRearrange) + layers);
  options.fp8_options.any_layout = true;
  EXPECT_EQ(number_of(tensor_step(options), passes::kRearrange), 0U);
}

TEST(HalfGradients, AreReducedAndAddedUpInSixteenBits) {
  compile::StepOptions options = parameter_options();
  options.rewrites.set(compile::Rewrite::half_gradients);
  options.micro_batches = 2;
  const Program p = tensor_step(options);
  for (const program::Tensor& tensor : p.tensors) {
    if (tensor.role != program::Role::gradient) continue;
    EXPECT_EQ(tensor.dtype, core::DType::bf16) << tensor.name;
  }
}

}  // namespace
}  // namespace rooflm
