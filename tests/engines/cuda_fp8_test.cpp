// Training in fp8 on a GPU against the processor's reference: losses, replays, updates beside the backward
// pass.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/device.h"
#include "tests/compile/passes/recipes.h"
#include "tests/engines/step_runner.h"

namespace rooflm::cuda_fp8 {
namespace {

using compile::EngineKind;
using compile::StepOptions;
using model::Arch;
using tests::StepRunner;

constexpr std::int64_t kBatch = 4;
constexpr std::int64_t kSeq = 16;
constexpr int kSteps = 20;

/// Why the tests cannot run: no GPU, or one without matrix instructions on fp8.
std::string missing() {
  const backends::cuda::CudaStatus status = backends::cuda::query_cuda();
  if (status.devices.empty()) return status.reason;
  const auto& device = status.devices.front();
  const bool has_fp8 = device.compute_major > 8 || (device.compute_major == 8 && device.compute_minor >= 9);
  return has_fp8 ? "" : device.name + " has no fp8";
}

/// All extents of its layers' matmuls are multiples of 16; some tiles are full, some are not.
model::ModelConfig even_config(Arch arch) {
  model::ModelConfig config = tests::small_config(arch);
  config.heads = 6;
  config.kv_heads = arch == Arch::llama ? 3 : 6;
  config.d_model = 192;
  config.head_dim = 32;
  config.d_ff = 368;
  return config;
}

StepOptions make(EngineKind engine) {
  return {.engine = engine,
          .attention = compile::default_attention(engine),
          .dtype = core::DType::bf16,
          .fp8 = true,
          .logits_padding = 64,
          .rewrites = {compile::Rewrite::compact_state, compile::Rewrite::gelu_in_epilogue,
                       compile::Rewrite::bias_in_gradients}};
}

class Bystander final : public engines::Observer {
 public:
  void on_op_begin(const program::Program&, std::size_t) override {}
  void on_op_end(const program::Program&, std::size_t) override {}
};

struct Outcome {
  std::vector<double> losses;
  std::vector<double> last_weight;
};

Outcome train(Arch arch, const StepOptions& options, std::unique_ptr<backends::Backend> backend,
              engines::Observer* observer = nullptr) {
  const model::ModelConfig config = even_config(arch);
  StepRunner runner(config, kBatch / options.micro_batches, kSeq, options, tests::initial_weights(config),
                    std::move(backend));
  Outcome outcome;
  for (int i = 0; i < kSteps; ++i) {
    const auto batch = tests::random_batch(kBatch * kSeq, config.vocab, static_cast<std::uint64_t>(i % 3));
    outcome.losses.push_back(runner.step(batch, 1e-3, observer));
  }
  outcome.last_weight = runner.weight("h.1.feed_forward.fc1.weight");
  return outcome;
}

Outcome on_gpu(Arch arch, const StepOptions& options, engines::Observer* observer = nullptr) {
  return train(arch, options, backends::cuda::make_cuda_backend(0, {}), observer);
}

Outcome on_cpu(Arch arch, const StepOptions& options) {
  StepOptions plain = options;
  plain.rewrites.set(compile::Rewrite::compact_state, false);
  return train(arch, plain, backends::make_cpu_backend(backends::CpuKernels::fast, 2));
}

class CudaFp8 : public testing::TestWithParam<Arch> {
 protected:
  void SetUp() override {
    if (const std::string why = missing(); !why.empty()) GTEST_SKIP() << why;
  }
};

/// Tolerances of bf16, whose roundings decide how an element of fp8 is rounded, of the loss at the beginning:
/// it falls to a third of that.
TEST_P(CudaFp8, LossesFollowTheProcessor) {
  for (const auto gradients : {passes::Fp8Gradients::e4m3, passes::Fp8Gradients::e5m2}) {
    for (const auto scaling : {passes::Fp8Scaling::delayed, passes::Fp8Scaling::current}) {
      for (const auto sums : {passes::Fp8FastSums::none, passes::Fp8FastSums::all}) {
        StepOptions options = make(EngineKind::fused);
        options.fp8_options = {.gradients = gradients, .scaling = scaling, .fast_sums = sums};
        SCOPED_TRACE(std::string(name_of(gradients)) + " " + std::string(name_of(scaling)) + " " +
                     std::string(name_of(sums)));
        const Outcome expected = on_cpu(GetParam(), options);
        EXPECT_LT(expected.losses.back(), expected.losses.front() - 0.5) << "the model does not learn";
        for (const EngineKind engine : {EngineKind::fused, EngineKind::eager}) {
          StepOptions own = options;
          own.engine = engine;
          own.attention = compile::default_attention(engine);
          const Outcome actual = on_gpu(GetParam(), own);
          for (std::size_t i = 0; i < expected.losses.size(); ++i) {
            EXPECT_NEAR(actual.losses[i], expected.losses[i], 2e-2 * expected.losses[0])
                << compile::name_of(engine) << " step " << i;
          }
        }
      }
    }
  }
}

/// A replay, which looks for no first scales, and a step that is submitted op by op, in which nothing runs
/// beside anything else.
TEST_P(CudaFp8, ReplaysAndRunsAreBitIdentical) {
  for (const double clip : {1.0, 0.0}) {
    for (const int micro_batches : {1, 2}) {
      SCOPED_TRACE(std::to_string(clip) + " in " + std::to_string(micro_batches));
      StepOptions options = make(EngineKind::fused);
      options.optimizer.clip_norm = clip;
      options.micro_batches = micro_batches;
      const Outcome replayed = on_gpu(GetParam(), options);
      Bystander bystander;
      const Outcome submitted = on_gpu(GetParam(), options, &bystander);
      EXPECT_EQ(replayed.losses, submitted.losses);
      EXPECT_EQ(replayed.last_weight, submitted.last_weight);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(BothKinds, CudaFp8, testing::Values(Arch::gpt2, Arch::llama),
                         [](const auto& kind) { return std::string(model::name_of(kind.param)); });

}  // namespace
}  // namespace rooflm::cuda_fp8
