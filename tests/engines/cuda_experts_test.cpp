// Steps of a model with experts on an NVIDIA GPU: the losses and weights of the processor, op by op and
// replayed, and the same bits each time.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/device.h"
#include "model/config.h"
#include "tests/compile/passes/recipes.h"
#include "tests/engines/decode_check.h"
#include "tests/engines/step_runner.h"

namespace rooflm::tests {
namespace {

using compile::EngineKind;
using compile::StepOptions;
using passes::Recompute;

constexpr int kTrained = 10;
constexpr std::int64_t kTexts = 4;
constexpr std::int64_t kTokensOfText = 13;

class CudaExpertSteps : public testing::Test {
 protected:
  void SetUp() override {
    const auto status = backends::cuda::query_cuda();
    if (status.devices.empty()) GTEST_SKIP() << status.reason;
  }
};

/// A dense layer and two with experts, shared ones besides; odd sizes, which take the kernels for any size,
/// or even ones.
model::ModelConfig expert_model(bool is_even) {
  model::ModelConfig config = is_even ? even_config(model::Arch::llama) : small_config(model::Arch::llama);
  config.layers = 3;
  config.experts = {.count = is_even ? 8 : 5,
                    .active = 2,
                    .d_ff = is_even ? 32 : 11,
                    .shared_d_ff = is_even ? 16 : 6,
                    .in_layer = {false, true, true},
                    .balance_loss = 0.01,
                    .z_loss = 0.01};
  return config;
}

struct Trained {
  std::vector<double> losses, weights;
};

Trained train(const model::ModelConfig& config, const StepOptions& options,
              std::unique_ptr<backends::Backend> backend) {
  StepRunner runner(config, kTexts / options.micro_batches, kTokensOfText, options, initial_weights(config),
                    std::move(backend));
  Trained trained;
  for (int i = 0; i < kTrained; ++i) {
    const auto batch = random_batch(kTexts * kTokensOfText, config.vocab, static_cast<std::uint64_t>(i % 3));
    trained.losses.push_back(runner.step(batch, 3e-3));
  }
  for (const char* name : {"h.1.feed_forward.router.weight", "h.2.feed_forward.experts.fc1.weight",
                           "h.2.feed_forward.experts.fc2.weight"}) {
    const auto values = runner.weight(name);
    trained.weights.insert(trained.weights.end(), values.begin(), values.end());
  }
  return trained;
}

Trained on_gpu(const model::ModelConfig& config, const StepOptions& options) {
  return train(config, options, backends::cuda::make_cuda_backend(0, {}));
}

StepOptions options_of(EngineKind engine, core::DType dtype = core::DType::f32,
                       Recompute recompute = Recompute::none, int micro_batches = 1) {
  StepOptions options{.engine = engine,
                      .attention = compile::default_attention(engine),
                      .dtype = dtype,
                      .recompute = recompute,
                      .micro_batches = micro_batches};
  const bool is_half = dtype != core::DType::f32;
  options.rewrites.set(compile::Rewrite::compact_state, engine == EngineKind::fused && is_half);
  return options;
}

TEST_F(CudaExpertSteps, LossesAreThoseOfTheProcessor) {
  for (const bool is_even : {false, true}) {
    const model::ModelConfig config = expert_model(is_even);
    const Trained reference = train(config, options_of(EngineKind::eager),
                                    backends::make_cpu_backend(backends::CpuKernels::reference, 2));
    EXPECT_LT(reference.losses.back(), reference.losses.front()) << "the model does not learn";
    for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
      for (const auto& [dtype, tolerance] :
           {std::pair{core::DType::f32, 1e-4}, {core::DType::bf16, 2e-2}, {core::DType::f16, 2e-2}}) {
        const Trained found = on_gpu(config, options_of(engine, dtype));
        for (std::size_t i = 0; i < reference.losses.size(); ++i) {
          EXPECT_NEAR(found.losses[i], reference.losses[i], tolerance * reference.losses[i])
              << compile::name_of(engine) << " " << core::name_of(dtype) << ", step " << i;
        }
      }
    }
  }
}

/// No sum depends on which block comes first.
TEST_F(CudaExpertSteps, RunsAndRecomputeKindsAreBitIdentical) {
  for (const bool is_even : {false, true}) {
    const model::ModelConfig config = expert_model(is_even);
    for (const core::DType dtype : {core::DType::f32, core::DType::bf16}) {
      const Trained once = on_gpu(config, options_of(EngineKind::fused, dtype));
      for (const Recompute kind : {Recompute::none, Recompute::selective, Recompute::full}) {
        const Trained again = on_gpu(config, options_of(EngineKind::fused, dtype, kind));
        EXPECT_EQ(again.losses, once.losses) << passes::name_of(kind);
        EXPECT_EQ(again.weights, once.weights) << passes::name_of(kind);
      }
    }
  }
}

TEST_F(CudaExpertSteps, MicroBatchesAccumulate) {
  model::ModelConfig config = expert_model(true);
  config.experts.balance_loss = 0;  // each micro-batch balances its own tokens
  const Trained whole = on_gpu(config, options_of(EngineKind::fused));
  const Trained split = on_gpu(config, options_of(EngineKind::fused, core::DType::f32, Recompute::none, 2));
  for (std::size_t i = 0; i < whole.losses.size(); ++i)
    EXPECT_NEAR(split.losses[i], whole.losses[i], 1e-4 * whole.losses[i]);
}

TEST_F(CudaExpertSteps, DecodingGivesTheLogitsOfTheWholeText) {
  model::ModelConfig config = decoding_model(model::Arch::llama);
  config.experts = {.count = 6, .active = 2, .d_ff = 24, .shared_d_ff = 16};
  for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
    const auto backend = backends::cuda::make_cuda_backend(0, {});
    check_decoding(*backend, config, options_of(engine), {1, 70, 33}, 5, 1e-3);
  }
}

}  // namespace
}  // namespace rooflm::tests
