// Optimizers, narrow moments and adapters on an NVIDIA GPU: the losses of the processor, with both engines.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/device.h"
#include "tests/compile/passes/recipes.h"
#include "tests/engines/step_runner.h"

namespace rooflm {
namespace {

using compile::EngineKind;
using compile::StepOptions;
using model::Arch;
using passes::OptimizerKind;
using passes::StateKind;
using tests::StepRunner;

constexpr std::int64_t kTexts = 2, kTokens = 13;

struct Method {
  std::string name;
  OptimizerKind kind = OptimizerKind::adamw;
  StateKind states = StateKind::fp32;
  std::string lora{};
};

class CudaOptimizers : public testing::TestWithParam<Method> {
 protected:
  void SetUp() override {
    const auto status = backends::cuda::query_cuda();
    if (status.devices.empty()) GTEST_SKIP() << status.reason;
  }
};

/// Of six steps; replays of a recorded step are among them.
std::vector<double> losses(const model::ModelConfig& config, const StepOptions& options, bool on_gpu) {
  StepRunner::Weights weights = tests::initial_weights(config);
  for (const passes::Adapter& x : options.adapters) {
    for (std::int64_t i = 0; i < x.rank * x.in; ++i)
      weights[x.a()].push_back(0.1 * std::sin(static_cast<double>(i)));
    weights[x.b()].assign(static_cast<std::size_t>(x.out * x.rank), 0.0);
    if (x.is_dora) weights[x.magnitude()].assign(static_cast<std::size_t>(x.out), 0.2);
  }
  StepRunner runner(config, kTexts, kTokens, options, weights,
                    on_gpu ? backends::cuda::make_cuda_backend(0, {})
                           : backends::make_cpu_backend(backends::CpuKernels::reference, 2));
  const tests::Batch batch = tests::random_batch(2 * kTexts * kTokens, config.vocab, 1);
  std::vector<double> all;
  for (int step = 0; step < 6; ++step) all.push_back(runner.step(batch, 0.005));
  return all;
}

/// fp32: sums in another order, which moments of 16 and 8 bits may round to another neighbour, and of which
/// Lion takes the sign. bf16: roundings of activations, too.
TEST_P(CudaOptimizers, LearnAsOnTheProcessor) {
  const Method& method = GetParam();
  for (const Arch arch : {Arch::gpt2, Arch::llama}) {
    const model::ModelConfig config = tests::even_config(arch);
    for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
      for (const core::DType dtype : {core::DType::f32, core::DType::bf16}) {
        SCOPED_TRACE(std::string(name_of(engine)) + " " + std::string(core::name_of(dtype)) + " " +
                     std::string(name_of(arch)));
        StepOptions options{.engine = engine,
                            .attention = compile::default_attention(engine),
                            .dtype = dtype,
                            .micro_batches = 2,
                            .optimizer = {.kind = method.kind, .states = method.states, .clip_norm = 1},
                            .lora = method.lora,
                            .adapters = passes::find_adapters(config, method.lora)};
        if (dtype == core::DType::bf16 && engine == EngineKind::fused)
          options.rewrites = {compile::Rewrite::compact_state};
        const std::vector<double> expected = losses(config, options, false);
        EXPECT_LT(expected.back(), expected.front() - 0.005) << "the model does not learn";
        const std::vector<double> actual = losses(config, options, true);
        EXPECT_EQ(losses(config, options, true), actual) << "the same bits again";
        const bool is_rough = dtype == core::DType::bf16 || method.states != StateKind::fp32 ||
                              method.kind == OptimizerKind::lion;
        for (std::size_t i = 0; i < expected.size(); ++i)
          EXPECT_NEAR(actual[i], expected[i], (is_rough ? 1e-2 : 1e-4) * expected[i]) << "step " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, CudaOptimizers,
    testing::Values(Method{"lion", OptimizerKind::lion}, Method{"muon", OptimizerKind::muon},
                    Method{"shampoo", OptimizerKind::shampoo},
                    Method{"adamw_bf16", OptimizerKind::adamw, StateKind::bf16},
                    Method{"adamw_8bit", OptimizerKind::adamw, StateKind::eight_bit},
                    Method{"muon_8bit", OptimizerKind::muon, StateKind::eight_bit},
                    Method{"lora", OptimizerKind::adamw, StateKind::fp32, "4,alpha=64"},
                    Method{"lora_all", OptimizerKind::adamw, StateKind::fp32,
                           "4,alpha=64,targets=all-linear"},
                    Method{"dora", OptimizerKind::adamw, StateKind::fp32, "4,dora,alpha=8"},
                    Method{"dora_all", OptimizerKind::adamw, StateKind::fp32,
                           "16,dora,rslora,alpha=8,targets=all-linear"}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace rooflm
