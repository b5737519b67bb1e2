// CUDA launchers of the optimizer step against plain loops.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "backends/cuda/kernels/optimizer/optimizer.h"
#include "core/moving_average.h"
#include "tests/backends/cuda_testing.h"

namespace rooflm::tests {
namespace {

using namespace backends::cuda;  // NOLINT(google-build-using-namespace): the launchers are what is tested
using core::DType;
using Values = std::vector<double>;

/// More tensors than one launch takes, of odd sizes, one of them over several blocks.
std::vector<std::int64_t> many_sizes() {
  std::vector<std::int64_t> sizes;
  for (std::int64_t i = 0; i < 300; ++i) sizes.push_back(i % 7 == 3 ? 70001 : i * 5 + 1);
  return sizes;
}

/// The dtypes of gradients in turn.
DType gradient_dtype_of(std::size_t index) {
  constexpr std::array kDtypes = {DType::f32, DType::bf16, DType::f16};
  return kDtypes.at(index % kDtypes.size());
}

TEST_F(CudaKernels, GlobalNorm) {
  std::vector<std::unique_ptr<DeviceArray>> arrays;
  std::vector<NormedTensor> tensors;
  double square = 0;
  const auto sizes = many_sizes();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const DType dtype = gradient_dtype_of(i);
    const Values g = random_values(dtype, sizes[i], static_cast<unsigned>(i));
    for (const double value : g) square += value * value;
    arrays.push_back(std::make_unique<DeviceArray>(dtype, g, i % 2));
    tensors.push_back({sizes[i], arrays.back()->data(), dtype});
  }
  const DeviceBytes workspace(global_norm_workspace_bytes(sizes));
  const DeviceArray norm(DType::f32, 1);
  launch_square_sum(nullptr, tensors, nullptr, norm.floats(), workspace.at(0));
  expect_close(norm.read(), Values{std::sqrt(square)}, 1e-6);
}

/// As CpuFastOptimizer.BetaNearOneKeepsTheSizeOfAnUpdate.
TEST_F(CudaKernels, UpdatesKeepTheirSizeWithBetaNearOne) {
  for (const double beta2 : {0.95, 0.999, 0.9999, 0.999999}) {
    const DeviceArray hyper(DType::f32, Values{1, 1 - 0.9, 1 - beta2, 0});
    const DeviceArray p(DType::f32, Values{0});
    const DeviceArray m(DType::f32, Values{0});
    const DeviceArray v(DType::f32, Values{0});
    const DeviceArray g(DType::f32, Values{0.5});
    const UpdateStep step{.hyper = hyper.floats(),
                          .beta1 = core::MovingAverage(0.9),
                          .beta2 = core::MovingAverage(beta2),
                          .eps = 1e-8F};
    const UpdatedTensor tensor{.count = 1,
                               .parameter = p.floats(),
                               .gradient = g.data(),
                               .moment1 = m.floats(),
                               .moment2 = v.floats()};
    launch_adamw(nullptr, step, std::array{tensor});
    expect_close(p.read(), Values{-1}, 1e-6);
  }
}

TEST_F(CudaKernels, Updates) {
  const UpdateStep constants{.max_norm = 1,
                             .weight_decay = 0.1F,
                             .beta1 = core::MovingAverage(0.9),
                             .beta2 = core::MovingAverage(0.95),
                             .eps = 1e-8F};
  const Values hyper{0.01, 0.19, 0.0975, 0};
  const DeviceArray d_hyper(DType::f32, hyper);
  const DeviceArray d_norm(DType::f32, Values{4});
  const double clip = 1 / (4 + 1e-6);
  for (const bool adamw : {true, false}) {
    struct Tensor {
      Values p, m, v;
      std::unique_ptr<DeviceArray> dp, dg, dm, dv, copy;
    };
    std::vector<Tensor> expected;
    std::vector<UpdatedTensor> tensors;
    const auto sizes = many_sizes();
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto seed = static_cast<unsigned>(4 * i);
      Tensor t{random_values(DType::f32, sizes[i], seed),
               random_values(DType::f32, sizes[i], seed + 1),
               random_values(DType::f32, sizes[i], seed + 2),
               {},
               {},
               {},
               {},
               {}};
      const DType gradient_dtype = gradient_dtype_of(i);
      const Values g = random_values(gradient_dtype, sizes[i], seed + 3);
      for (double& value : t.v) value = std::abs(value);
      const auto array = [&](const Values& values) {
        return std::make_unique<DeviceArray>(DType::f32, values, i % 2);
      };
      t.dp = array(t.p);
      t.dg = std::make_unique<DeviceArray>(gradient_dtype, g, i % 2);
      t.dm = array(t.m);
      t.dv = array(t.v);
      if (i % 3 > 0) t.copy = std::make_unique<DeviceArray>(DType::bf16, t.p.size());
      for (std::size_t k = 0; k < g.size(); ++k) {
        const double d = clip * g[k];
        t.p[k] -= hyper[0] * 0.1 * t.p[k];
        if (adamw) {
          t.m[k] = 0.9 * t.m[k] + 0.1 * d;
          t.v[k] = 0.95 * t.v[k] + 0.05 * d * d;
          t.p[k] -= hyper[0] * (t.m[k] / hyper[1]) / (std::sqrt(t.v[k] / hyper[2]) + 1e-8);
        } else {
          t.p[k] -= hyper[0] * d;
        }
      }
      tensors.push_back({sizes[i], t.dp->floats(), t.dg->data(), t.dm->floats(), t.dv->floats(),
                         t.copy == nullptr ? nullptr : t.copy->data(), DType::f32, gradient_dtype});
      expected.push_back(std::move(t));
    }
    UpdateStep step = constants;
    step.hyper = d_hyper.floats();
    step.norm = d_norm.floats();
    adamw ? launch_adamw(nullptr, step, tensors) : launch_sgd(nullptr, step, tensors);
    for (const Tensor& t : expected) {
      expect_close(t.dp->read(), t.p, 1e-5);
      expect_close(t.dm->read(), t.m, 1e-5);
      expect_close(t.dv->read(), t.v, 1e-5);
      if (t.copy != nullptr) expect_close(t.copy->read(), t.dp->read(), 4e-3);
    }
  }
}

TEST_F(CudaKernels, LionMovesBySigns) {
  const Values hyper{0.01, 0.19, 0.0975, 0};
  const DeviceArray d_hyper(DType::f32, hyper);
  const DeviceArray d_norm(DType::f32, Values{4});
  const double clip = 1 / (4 + 1e-6);
  for (const std::int64_t n : {1, 7, 70001}) {
    Values p = random_values(DType::f32, n, 1);
    Values m = random_values(DType::f32, n, 2);
    Values g = random_values(DType::f32, n, 3);
    m[0] = g[0] = 0;  // has no sign
    const DeviceArray dp(DType::f32, p), dm(DType::f32, m), dg(DType::f32, g);
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double d = clip * g[i];
      const double u = 0.9 * m[i] + 0.1 * d;
      p[i] -= hyper[0] * ((u > 0 ? 1 : u < 0 ? -1 : 0) + 0.1 * p[i]);
      m[i] = 0.95 * m[i] + 0.05 * d;
    }
    const UpdateStep step{.hyper = d_hyper.floats(),
                          .norm = d_norm.floats(),
                          .max_norm = 1,
                          .weight_decay = 0.1F,
                          .beta1 = core::MovingAverage(0.9),
                          .beta2 = core::MovingAverage(0.95)};
    const UpdatedTensor tensor{
        .count = n, .parameter = dp.floats(), .gradient = dg.data(), .moment1 = dm.floats()};
    launch_lion(nullptr, step, std::array{tensor});
    expect_close(dp.read(), p, 1e-5);
    expect_close(dm.read(), m, 1e-5);
  }
}

/// Moments of bf16 get one of the two neighbours of what they should be, and on average what they should be.
TEST_F(CudaKernels, MomentsOfBf16AreRoundedToEitherSide) {
  constexpr std::int64_t kCount = 40001;
  const DeviceArray hyper(DType::f32, Values{0.01, 0.1, 0.05, 0});
  for (const std::size_t shift : {0, 1}) {
    const DeviceArray p(DType::f32, Values(kCount, 1.0), shift);
    const DeviceArray g(DType::bf16, Values(kCount, 0.5), shift);
    const DeviceArray m(DType::bf16, Values(kCount, 1.0), shift);
    const DeviceArray v(DType::bf16, Values(kCount, 1.0), shift);
    const UpdateStep step{.hyper = hyper.floats(),
                          .beta1 = core::MovingAverage(0.9),
                          .beta2 = core::MovingAverage(0.95),
                          .half_moments = true};
    const UpdatedTensor tensor{.count = kCount,
                               .parameter = p.floats(),
                               .gradient = g.data(),
                               .moment1 = m.data(),
                               .moment2 = v.data(),
                               .gradient_dtype = DType::bf16};
    launch_adamw(nullptr, step, std::array{tensor});
    const auto check = [](const Values& values, double expected) {
      double sum = 0;
      for (const double x : values) {
        ASSERT_NEAR(x, expected, 0x1p-8);  // the step of bf16 below 1
        sum += x;
      }
      EXPECT_NEAR(sum / kCount, expected, 1e-4);
    };
    check(m.read(), 0.9 + 0.1 * 0.5);
    check(v.read(), 0.95 + 0.05 * 0.25);
    const double moved = 1 - 0.01 * (0.95 / 0.1) / std::sqrt(0.9625 / 0.05);  // by moments before rounding
    expect_close(p.read(), Values(kCount, moved), 1e-5);
  }
}

}  // namespace
}  // namespace rooflm::tests
