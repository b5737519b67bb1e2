// Decoding with kept keys and values on an NVIDIA GPU, replayed from the third step on.
#include <gtest/gtest.h>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/device.h"
#include "tests/engines/decode_check.h"

namespace rooflm {
namespace {

TEST(CudaDecoding, LogitsAreThoseOfTheWholeText) {
  const auto status = backends::cuda::query_cuda();
  if (status.devices.empty()) GTEST_SKIP() << status.reason;
  const auto gpu = backends::cuda::make_cuda_backend(0, {});
  for (const model::Arch arch : {model::Arch::gpt2, model::Arch::llama}) {
    for (const auto engine : {compile::EngineKind::eager, compile::EngineKind::fused}) {
      for (const auto dtype : {core::DType::f32, core::DType::bf16, core::DType::f16}) {
        SCOPED_TRACE(std::string(model::name_of(arch)) + " " + std::string(compile::name_of(engine)) + " " +
                     std::string(core::name_of(dtype)));
        const compile::StepOptions options{
            .engine = engine,
            .attention = compile::default_attention(engine),
            .dtype = dtype,
            .logits_padding = 64,
            .rewrites = {compile::Rewrite::compact_state, compile::Rewrite::gelu_in_epilogue}};
        const double tolerance = dtype == core::DType::f32 ? 1e-4 : dtype == core::DType::bf16 ? 5e-2 : 1e-2;
        tests::check_decoding(*gpu, tests::decoding_model(arch), options, {1, 70, 33}, 10, tolerance);
      }
    }
  }
}

/// Many rows unpack a weight, few multiply its codes.
TEST(CudaDecoding, PackedWeightsSayTheSameWithAndWithoutACache) {
  const auto status = backends::cuda::query_cuda();
  if (status.devices.empty()) GTEST_SKIP() << status.reason;
  const auto gpu = backends::cuda::make_cuda_backend(0, {});
  using core::WeightFormat;
  for (const WeightFormat base :
       {WeightFormat::int8, WeightFormat::int4, WeightFormat::nf4, WeightFormat::fp8, WeightFormat::sparse}) {
    for (const auto engine : {compile::EngineKind::eager, compile::EngineKind::fused}) {
      for (const auto dtype : {core::DType::f32, core::DType::bf16, core::DType::f16}) {
        SCOPED_TRACE(std::string(name_of(base)) + " " + std::string(compile::name_of(engine)) + " " +
                     std::string(core::name_of(dtype)));
        model::ModelConfig config = tests::decoding_model(model::Arch::llama);
        config.d_model = 128;
        config.head_dim = 16;
        config.d_ff = 256;
        const compile::StepOptions options{.engine = engine,
                                           .attention = compile::default_attention(engine),
                                           .dtype = dtype,
                                           .logits_padding = 64,
                                           .base = base};
        const double tolerance = dtype == core::DType::f32 ? 1e-4 : dtype == core::DType::bf16 ? 5e-2 : 1e-2;
        tests::check_decoding(*gpu, config, options, {1, 70, 33}, 10, tolerance);
      }
    }
  }
}

}  // namespace
}  // namespace rooflm
