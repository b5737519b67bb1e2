// The norm of gradients in parts beside the backward pass, on a GPU: replayed, submitted op by op, and on the
// processor.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/device.h"
#include "tests/compile/passes/recipes.h"
#include "tests/engines/step_runner.h"

namespace rooflm::cuda_norm {
namespace {

class Bystander final : public engines::Observer {
 public:
  void on_op_begin(const program::Program&, std::size_t) override {}
  void on_op_end(const program::Program&, std::size_t) override {}
};

/// Embedding and head have as many parameters as make a part of the sum.
model::ModelConfig wide_config() {
  model::ModelConfig config = tests::even_config(model::Arch::llama);
  config.d_model = 64;
  config.head_dim = 16;
  config.vocab = config.padded_vocab = (std::int64_t{1} << 16U) + 64;
  return config;
}

/// Norms and losses of some steps.
std::vector<double> numbers_of(std::unique_ptr<backends::Backend> backend, core::DType dtype,
                               engines::Observer* observer = nullptr) {
  constexpr std::int64_t kSeq = 16;
  const model::ModelConfig config = wide_config();
  compile::StepOptions options{
      .dtype = dtype,
      .rewrites = (dtype == core::DType::bf16)
                      ? compile::Rewrites{compile::Rewrite::compact_state, compile::Rewrite::early_norm}
                      : compile::Rewrites{compile::Rewrite::early_norm}};
  options.optimizer.clip_norm = 0.5;
  tests::StepRunner runner(config, 1, kSeq, options, tests::initial_weights(config), std::move(backend));
  std::vector<double> numbers;
  for (std::uint64_t i = 0; i < 4; ++i) {
    numbers.push_back(runner.step(tests::random_batch(kSeq, config.vocab, i), 1e-3, observer));
    numbers.push_back(runner.gradient_norm());
  }
  return numbers;
}

TEST(CudaNorm, InPartsIsThatOfTheProcessorAndRepeats) {
  const auto status = backends::cuda::query_cuda();
  if (status.devices.empty()) GTEST_SKIP() << status.reason;
  const auto on_gpu = [](core::DType dtype, engines::Observer* observer = nullptr) {
    return numbers_of(backends::cuda::make_cuda_backend(0, {}), dtype, observer);
  };
  for (const core::DType dtype : {core::DType::f32, core::DType::bf16}) {
    Bystander bystander;
    EXPECT_EQ(on_gpu(dtype), on_gpu(dtype, &bystander)) << name_of(dtype);
  }
  const auto expected =
      numbers_of(backends::make_cpu_backend(backends::CpuKernels::fast, 2), core::DType::f32);
  const auto actual = on_gpu(core::DType::f32);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], 1e-3 * expected[i]) << i;
}

}  // namespace
}  // namespace rooflm::cuda_norm
