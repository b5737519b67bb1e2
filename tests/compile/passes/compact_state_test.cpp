// Weights in halves and 16-bit gradients: which, and what they save.
#include "compile/passes/compact_state.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "compile/passes/plan_memory.h"
#include "program/groups.h"
#include "program/ops.h"
#include "tests/compile/passes/recipes.h"

namespace rooflm {
namespace {

namespace ops = program::ops;
using compile::StepOptions;
using core::DType;
using model::Arch;
using program::Program;
using program::Role;
using program::Tensor;

StepOptions compact(int micro_batches = 1, DType dtype = DType::bf16) {
  return {.dtype = dtype, .compact_state = true, .micro_batches = micro_batches, .optimizer = {}};
}

std::set<std::string> narrow_gradients(const Program& p, DType dtype = DType::bf16) {
  std::set<std::string> names;
  for (const Tensor& tensor : p.tensors) {
    if (tensor.role == Role::gradient && tensor.dtype == dtype) names.insert(tensor.name);
  }
  return names;
}

TEST(CompactState, CopiesAreViewsOfHalvedWeights) {
  for (const Arch arch : {Arch::gpt2, Arch::llama}) {
    StepOptions plain = compact();
    plain.compact_state = false;
    const Program whole = tests::small_step(arch, plain);
    const Program p = tests::small_step(arch, compact());
    std::int64_t copies_bytes = 0;
    for (const Tensor& tensor : p.tensors) {
      if (tensor.view_of == program::kNone) continue;
      const Tensor& weight = p.tensor(tensor.view_of);
      EXPECT_EQ(weight.halves, DType::bf16) << weight.name;
      EXPECT_EQ(weight.shape, tensor.shape);
      EXPECT_EQ(tensor.dtype, DType::bf16);
      EXPECT_EQ(tensor.own_bytes(), 0);
      if (tensor.shape.rank() > 1) copies_bytes += (tensor.bytes() + 63) / 64 * 64;  // biases had none
    }
    EXPECT_GT(copies_bytes, 0);
    EXPECT_EQ(passes::persistent_bytes(p), passes::persistent_bytes(whole) - copies_bytes);
    for (const program::Op& op : p.ops) EXPECT_FALSE(op.is(ops::kCast)) << op.scope;
  }
}

/// The sizes of this model leave some biases at lengths that cannot be halved.
TEST(CompactState, NormsStayWholeAndBiasesOfMatmulsDoNot) {
  const Program p = tests::small_step(Arch::gpt2, compact());
  int biases = 0;
  for (const Tensor& tensor : p.tensors) {
    if (tensor.role != Role::weight || tensor.shape.rank() != 1 || tensor.view_of != program::kNone) continue;
    const bool is_bias_of_matmul = tensor.name.ends_with("qkv.bias") || tensor.name.ends_with("proj.bias") ||
                                   tensor.name.ends_with("fc2.bias");
    EXPECT_EQ(tensor.halves.has_value(), is_bias_of_matmul) << tensor.name;
    biases += is_bias_of_matmul ? 1 : 0;
  }
  EXPECT_EQ(biases, 2 * 3);
}

TEST(CompactState, GradientsThatAreAddedUpStayFp32) {
  const auto narrow = narrow_gradients(tests::small_step(Arch::llama, compact()));
  EXPECT_EQ(narrow.size(), 2U * 4U + 1U) << "four matrices a layer, and the head";
  const auto tied = narrow_gradients(tests::small_step(Arch::gpt2, compact()));
  EXPECT_EQ(tied.size(), 2U * 4U) << "the head's is added to the embedding's";
  EXPECT_TRUE(narrow_gradients(tests::small_step(Arch::llama, compact(2))).empty());
}

TEST(CompactState, Fp16IsAsCompactAsBf16) {
  const Program p = tests::small_step(Arch::llama, compact(1, DType::f16));
  EXPECT_EQ(narrow_gradients(p, DType::f16).size(), 2U * 4U + 1U);
  EXPECT_TRUE(narrow_gradients(p).empty());
  const Program bf16 = tests::small_step(Arch::llama, compact());
  std::map<std::string, const Tensor*> by_name;
  for (const Tensor& tensor : bf16.tensors) by_name[tensor.name] = &tensor;
  for (const Tensor& tensor : p.tensors) {
    if (tensor.role != Role::weight) continue;
    if (tensor.view_of != program::kNone) {
      EXPECT_EQ(tensor.dtype, DType::f16) << tensor.name;
      EXPECT_EQ(p.tensor(tensor.view_of).halves, DType::f16) << tensor.name;
    } else {
      EXPECT_EQ(tensor.halves.has_value(), by_name.at(tensor.name)->halves.has_value()) << tensor.name;
    }
  }
  EXPECT_TRUE(narrow_gradients(tests::small_step(Arch::llama, compact(2, DType::f16)), DType::f16).empty());
}

TEST(CompactState, RanksAddGradientsUpInTheDtypeThatTheyHave) {
  for (const int zero : {0, 1}) {
    StepOptions options = compact();
    options.sharding = {.data = 2, .zero = zero};
    const Program p = tests::small_step(Arch::llama, options);
    EXPECT_EQ(narrow_gradients(p).size(), 2U * 4U + 1U);
    std::size_t added_up = 0;
    for (const program::Op& op : p.ops) {
      if (!op.is(ops::kAllReduce) && !op.is(ops::kReduceScatter)) continue;
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        EXPECT_EQ(p.tensor(op.inputs[i]).dtype, p.tensor(op.outputs[i]).dtype) << op.scope;
        added_up += p.tensor(op.inputs[i]).dtype == DType::bf16 ? 1 : 0;
      }
    }
    EXPECT_EQ(added_up, 2U * 4U + 1U) << "ZeRO " << zero;
  }
}

/// What is added up has one dtype, whichever micro-batch it is of.
TEST(CompactState, ShardedGradientsOfSeveralMicroBatchesStayFp32) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const int zero : {2, 3}) {
      StepOptions options = compact(3, dtype);
      options.sharding = {.data = 2, .zero = zero};
      const Program p = tests::small_step(Arch::llama, options);
      EXPECT_TRUE(narrow_gradients(p, dtype).empty()) << "ZeRO " << zero;
      int added_up = 0;
      for (const program::Op& op : p.ops) {
        if (!op.is(ops::kReduceScatter)) continue;
        for (std::size_t i = 0; i < op.inputs.size(); ++i)
          EXPECT_EQ(p.tensor(op.inputs[i]).dtype, p.tensor(op.outputs[i]).dtype) << op.scope;
        added_up += op.attrs.flag("accumulate") ? 1 : 0;
      }
      EXPECT_GT(added_up, 0);
      options.micro_batches = 1;
      EXPECT_FALSE(narrow_gradients(tests::small_step(Arch::llama, options), dtype).empty());
    }
  }
}

/// The first stage has the embedding's gradient of a tied weight, the last one the head's.
TEST(CompactState, StagesAddTiedGradientsUpInOneDtype) {
  for (const int zero : {0, 1}) {
    std::set<DType> dtypes;
    std::size_t sums = 0;
    for (const int stage : {0, 1}) {
      StepOptions options = compact();
      options.sharding = {.data = 2, .zero = zero, .pipeline = 2};
      options.rank.pipeline = stage;
      const Program p = tests::small_step(Arch::gpt2, options);
      for (const program::Op& op : p.ops) {
        if (!op.is(ops::kAllReduce) || program::group_of(op) != program::Group::tied) continue;
        dtypes.insert(p.tensor(op.inputs[0]).dtype);
        dtypes.insert(p.tensor(op.outputs[0]).dtype);
        ++sums;
      }
    }
    EXPECT_EQ(sums, 2U) << "ZeRO " << zero;
    EXPECT_EQ(dtypes, std::set<DType>{DType::f32}) << "ZeRO " << zero;
  }
}

/// Halves round ties otherwise than casts, and ZeRO changes no bit.
TEST(CompactState, PartsAreHalvedWhereTheWholeIs) {
  model::ModelConfig config = tests::small_config(Arch::gpt2);
  config.d_model = 27;
  config.head_dim = 9;
  config.d_ff = 51;  // 27 x 51 is odd
  StepOptions options = compact();
  options.sharding = {.data = 2, .zero = 1};
  const Program p = compile::training_step(model::forward(config, 2, 13), options);
  std::size_t odd = 0;
  for (const Tensor& tensor : p.tensors) {
    if (tensor.role != Role::weight || program::whole_shape(tensor).numel() % 8 == 0) continue;
    ++odd;
    EXPECT_FALSE(tensor.halves.has_value()) << tensor.name;
  }
  EXPECT_GT(odd, 0U);
}

TEST(CompactState, AnUpdateMovesFewerBytes) {
  const auto bytes_of_updates = [](const Program& p) {
    std::int64_t bytes = 0;
    for (const program::Op& op : p.ops) {
      if (!op.is(ops::kAdamW)) continue;
      const auto cost = program::cost_of(p, op);
      bytes += cost.bytes_read + cost.bytes_written;
    }
    return bytes;
  };
  StepOptions plain = compact();
  plain.compact_state = false;
  const Program whole = tests::small_step(Arch::llama, plain);
  const Program p = tests::small_step(Arch::llama, compact());
  std::int64_t saved = 0;  // 2 bytes of a copy that is not written, 2 of a gradient that is bf16
  for (const Tensor& tensor : p.tensors) {
    if (tensor.halves) saved += 2 * tensor.shape.numel();
    if (tensor.role == Role::gradient && tensor.dtype == DType::bf16) saved += 2 * tensor.shape.numel();
  }
  EXPECT_EQ(bytes_of_updates(p), bytes_of_updates(whole) - saved);
}

TEST(CompactState, InferenceBesideTrainingReadsTheSameHalves) {
  const Program p = compile::inference_step(model::forward(tests::small_config(Arch::llama), 1, 13),
                                            compact(), compile::Weights::of_training);
  bool has_halves = false;
  for (const program::Op& op : p.ops) EXPECT_FALSE(op.is(ops::kCast)) << op.scope;
  for (const Tensor& tensor : p.tensors) has_halves = has_halves || tensor.halves;
  EXPECT_TRUE(has_halves);
}

/// Two bytes a parameter of matrices, in both engines; norms stay fp32, and so do biases that ops of their
/// own add.
TEST(CompactState, WeightsOfInferenceAloneHave16Bits) {
  for (const Arch arch : {Arch::gpt2, Arch::llama}) {
    for (const auto engine : {compile::EngineKind::eager, compile::EngineKind::fused}) {
      for (const bool is_compact : {false, true}) {
        StepOptions options = compact();
        options.engine = engine;
        options.compact_state = is_compact;
        const Program p = compile::inference_step(model::forward(tests::small_config(arch), 1, 13), options);
        program::check(p);
        for (const program::Op& op : p.ops) EXPECT_FALSE(op.is(ops::kCast)) << op.scope;
        for (const Tensor& tensor : p.tensors) {
          if (tensor.role != Role::weight) continue;
          EXPECT_FALSE(tensor.halves) << tensor.name;
          const bool is_matrix = tensor.shape.rank() > 1 && tensor.name != "wpe";
          const bool is_norm = tensor.name.find("ln") != std::string::npos;
          EXPECT_TRUE(!is_matrix || tensor.dtype == DType::bf16) << tensor.name;
          EXPECT_TRUE(!is_norm || tensor.dtype == DType::f32) << tensor.name;
        }
      }
    }
  }
}

TEST(CompactState, InferenceCastsWeightsToFp8Once) {
  StepOptions options = compact();
  options.fp8 = true;
  const auto config = tests::even_config(Arch::llama);
  const Program p = compile::inference_step(model::forward(config, 1, 16, model::Head::logits), options);
  program::check(p);
  int at_setup = 0;
  for (const program::Op& op : p.ops) {
    if (!op.is(ops::kFp8Cast)) continue;
    const bool is_weight = p.tensor(op.inputs[0]).role == Role::weight;
    EXPECT_EQ(is_weight, op.phase == program::Phase::setup) << op.scope;
    at_setup += is_weight ? 1 : 0;
  }
  EXPECT_EQ(at_setup, 4 * config.layers);
}

}  // namespace
}  // namespace rooflm
