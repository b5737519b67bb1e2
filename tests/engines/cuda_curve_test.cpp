// Two hundred steps on an NVIDIA GPU give the loss curve of the processor.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/device.h"
#include "tests/compile/passes/recipes.h"
#include "tests/engines/step_runner.h"

namespace rooflm::cuda_curve {
namespace {

using compile::EngineKind;
using compile::StepOptions;
using model::Arch;

constexpr int kSteps = 200;
constexpr std::int64_t kBatch = 8;
constexpr std::int64_t kSeq = 16;
constexpr int kTexts = 8;  // batches that come again and again: there is something to learn

class CudaCurve : public testing::TestWithParam<Arch> {
 protected:
  void SetUp() override {
    const auto status = backends::cuda::query_cuda();
    if (status.devices.empty()) GTEST_SKIP() << status.reason;
  }

  [[nodiscard]] static std::vector<double> curve(compile::EngineKind engine, core::DType dtype,
                                                 std::unique_ptr<backends::Backend> backend) {
    const auto config = tests::small_config(GetParam());
    const compile::StepOptions options{
        .engine = engine, .attention = compile::default_attention(engine), .dtype = dtype};
    tests::StepRunner runner(config, kBatch, kSeq, options, tests::initial_weights(config),
                             std::move(backend));
    std::vector<double> losses;
    for (int i = 0; i < kSteps; ++i) {
      losses.push_back(runner.step(
          tests::random_batch(kBatch * kSeq, config.vocab, static_cast<std::uint64_t>(i % kTexts)), 1e-3));
    }
    return losses;
  }

  /// Mean distance over the curve, relative to the processor's.
  static double distance(const std::vector<double>& actual, const std::vector<double>& expected) {
    double sum = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) sum += std::abs(actual[i] - expected[i]) / expected[i];
    return sum / static_cast<double>(actual.size());
  }
};

/// Roundings differ in every step, and each is carried on by the next: the mean over the curve is held.
TEST_P(CudaCurve, FollowsTheProcessorOver200Steps) {
  const auto expected = curve(compile::EngineKind::eager, core::DType::f32,
                              backends::make_cpu_backend(backends::CpuKernels::reference, 2));
  EXPECT_LT(expected.back(), expected.front() - 0.5) << "the model does not learn";
  struct Bound {
    core::DType dtype;
    double distance;
  };
  for (const Bound& bound :
       {Bound{core::DType::f32, 1e-4}, {core::DType::bf16, 1e-2}, {core::DType::f16, 5e-3}}) {
    for (const compile::EngineKind engine : {compile::EngineKind::eager, compile::EngineKind::fused}) {
      const auto actual = curve(engine, bound.dtype, backends::cuda::make_cuda_backend(0, {}));
      const double apart = distance(actual, expected);
      EXPECT_LE(apart, bound.distance) << compile::name_of(engine) << " " << core::name_of(bound.dtype);
      RecordProperty(std::string(compile::name_of(engine)) + "_" + std::string(core::name_of(bound.dtype)),
                     std::to_string(apart));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(BothKinds, CudaCurve, testing::Values(Arch::gpt2, Arch::llama),
                         [](const auto& kind) { return std::string(model::name_of(kind.param)); });

}  // namespace
}  // namespace rooflm::cuda_curve
