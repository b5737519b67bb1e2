// How tensor-parallel ranks of other frameworks exchange rows: in fp8, and beside their products.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "compile/passes/collective_copies.h"
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

compile::StepOptions tensor_options(bool fp8) {
  compile::StepOptions options{
      .dtype = core::DType::bf16, .fp8 = fp8, .fp8_own_scales = true, .optimizer = {}};
  options.sharding = {.tensor = 2, .sequence_parallel = true};
  return options;
}

Program tensor_step(const compile::StepOptions& options) {
  model::ModelConfig config = tests::even_config(Arch::llama);
  config.d_ff = 64;  // halves are multiples of 16, too
  return compile::training_step(model::forward(config, 2, 16), options);
}

/// Of rows that a layer's products read; the embedding's gradient is gathered, too.
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
  options.fp8_gathers = true;
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
  options.fp8_gathers = true;
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

}  // namespace
}  // namespace rooflm
