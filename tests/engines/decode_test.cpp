// Decoding with kept keys and values computes what reading the text whole does.
#include <gtest/gtest.h>

#include "backends/comm/kernels.h"
#include "backends/cpu/cpu_backend.h"
#include "core/error.h"
#include "program/ops.h"
#include "tests/case_names.h"
#include "tests/engines/decode_check.h"
#include "tests/in_process/run_ranks.h"

namespace rooflm {
namespace {

using backends::CpuKernels;
using compile::EngineKind;
using core::DType;
using model::Arch;

struct DecodeCase {
  Arch arch;
  EngineKind engine;
  DType dtype;
};

class Decoding : public testing::TestWithParam<DecodeCase> {};

/// fp32: sums in another order; bf16 and fp16: values between ops are rounded another way.
double tolerance_of(DType dtype) { return dtype == DType::f32 ? 2e-5 : dtype == DType::bf16 ? 4e-2 : 5e-3; }

TEST_P(Decoding, LogitsAreThoseOfTheWholeText) {
  const auto& [arch, engine, dtype] = GetParam();
  const bool is_fused = engine == EngineKind::fused;
  const auto backend = backends::make_cpu_backend(is_fused ? CpuKernels::fast : CpuKernels::reference, 2);
  const compile::StepOptions options{
      .engine = engine, .attention = compile::default_attention(engine), .dtype = dtype};
  tests::check_decoding(*backend, tests::decoding_model(arch), options, {1, 70, 33}, 10, tolerance_of(dtype));
}

INSTANTIATE_TEST_SUITE_P(Kinds, Decoding,
                         testing::Values(DecodeCase{Arch::gpt2, EngineKind::eager, DType::f32},
                                         DecodeCase{Arch::gpt2, EngineKind::fused, DType::f32},
                                         DecodeCase{Arch::gpt2, EngineKind::fused, DType::bf16},
                                         DecodeCase{Arch::llama, EngineKind::eager, DType::f32},
                                         DecodeCase{Arch::llama, EngineKind::fused, DType::f32},
                                         DecodeCase{Arch::llama, EngineKind::eager, DType::f16},
                                         DecodeCase{Arch::llama, EngineKind::eager, DType::bf16},
                                         DecodeCase{Arch::llama, EngineKind::fused, DType::bf16}),
                         [](const auto& test) {
                           return tests::case_name(test.param.arch, test.param.engine, test.param.dtype);
                         });

/// Two ranks share the layers, each with the keys and values of half of the heads.
TEST_P(Decoding, RanksThatShareLayersComputeTheLogitsOfOne) {
  const auto& [arch, engine, dtype] = GetParam();
  const model::ModelConfig config = tests::decoding_model(arch);
  compile::StepOptions options{
      .engine = engine, .attention = compile::default_attention(engine), .dtype = dtype};
  options.sharding.tensor = 2;
  backends::comm::run_ranks(options.sharding.mesh(), [&](int rank, const auto& communicator) {
    const bool is_fused = options.engine == EngineKind::fused;
    const auto backend = backends::make_cpu_backend(is_fused ? CpuKernels::fast : CpuKernels::reference, 1);
    backend->add_kernels(backends::comm::kernels_of(communicator));
    compile::StepOptions own = options;
    own.rank = options.sharding.mesh().coordinates_of(rank);
    const auto p = compile::inference_step(model::decode(config, {.batch = 3, .positions = 64}, 10), own);
    const program::Tensor& keys = p.tensor(p.find("h.0.attention.keys"));
    EXPECT_EQ(keys.shape, core::Shape({3, config.kv_heads / 2, 64, config.head_dim}));
    tests::check_decoding(*backend, config, own, {1, 70, 33}, 3, tolerance_of(dtype));
  });
}

/// Weights are read once, of the embedding a row for each text; of the caches as many rows as the texts have.
TEST(DecodeCost, IsThatOfWeightsAndOfTheRowsThatAreRead) {
  const model::ModelConfig config = tests::decoding_model(Arch::llama);
  const auto read = [&](std::int64_t batch, std::int64_t keys) {
    std::int64_t bytes = 0;
    const auto p = model::decode(config, {.batch = batch, .positions = 64}, keys);
    for (const auto& op : p.ops) {
      if (op.is(program::ops::kDecodeAttention)) bytes += program::cost_of(p, op).bytes_read;
    }
    return bytes;
  };
  // Layers, keys and values, fp32; and the packed row at hand.
  EXPECT_EQ(read(3, 10),
            2 * (2 * 3 * config.kv_heads * 10 * config.head_dim * 4 + 3 * 12 * config.head_dim * 4));
  EXPECT_EQ(read(3, 64) - read(3, 63), 2 * 2 * 3 * config.kv_heads * config.head_dim * 4);
  const auto step = model::decode(config, {.batch = 1, .positions = 64}, 1);
  std::int64_t flop = 0;
  for (const auto& op : step.ops) {
    if (op.is(program::ops::kMatmul)) flop += program::cost_of(step, op).matmul_flop;
  }
  EXPECT_EQ(flop, 2 * model::matmul_parameter_count(config));
}

TEST(Decode, RefusesMorePositionsThanTheModelHas) {
  const model::ModelConfig config = tests::decoding_model(Arch::gpt2);
  EXPECT_THROW(model::decode(config, {.batch = 1, .positions = 81}, 1), core::UsageError);
  EXPECT_THROW(model::prefill(config, {.batch = 1, .positions = 16}, 17), core::UsageError);
}

}  // namespace
}  // namespace rooflm
