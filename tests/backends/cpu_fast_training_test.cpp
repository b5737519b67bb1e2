// The norm, loss and optimizer kernels against loops in double, on odd sizes.
#include <bit>
#include <limits>

#include "backends/cpu/fast/elementwise.h"
#include "backends/cpu/fast/loss.h"
#include "backends/cpu/fast/norm.h"
#include "backends/cpu/fast/optimizer.h"
#include "core/halves.h"
#include "cpu_fast_testing.h"

namespace rooflm::backends::cpu {
namespace {

template <class S>
class CpuFastTraining : public ::testing::Test {};
TYPED_TEST_SUITE(CpuFastTraining, StorageTypes);

struct NormExpectation {
  std::vector<double> y, dx, dweight, dbias;
};

// LayerNorm (layer) or RMSNorm, forward and gradient, in double.
NormExpectation expected_norm(bool layer, std::size_t rows, std::size_t cols, const std::vector<double>& x,
                              const std::vector<double>& w, const std::vector<double>& b,
                              const std::vector<double>& dy, double eps) {
  NormExpectation e{std::vector<double>(x.size()), std::vector<double>(x.size()), std::vector<double>(cols),
                    std::vector<double>(cols)};
  const auto size = static_cast<double>(cols);
  for (std::size_t r = 0; r < rows; ++r) {
    const std::size_t at = r * cols;
    double mean = 0;
    for (std::size_t j = 0; layer && j < cols; ++j) mean += x[at + j] / size;
    double variance = 0;
    for (std::size_t j = 0; j < cols; ++j) variance += (x[at + j] - mean) * (x[at + j] - mean) / size;
    const double rstd = 1 / std::sqrt(variance + eps);
    double gradient_mean = 0;
    double projection = 0;
    for (std::size_t j = 0; j < cols; ++j) {
      const double n = (x[at + j] - mean) * rstd;
      e.y[at + j] = n * w[j] + (layer ? b[j] : 0);
      e.dweight[j] += dy[at + j] * n;
      e.dbias[j] += dy[at + j];
      if (layer) gradient_mean += dy[at + j] * w[j] / size;
      projection += dy[at + j] * w[j] * n / size;
    }
    for (std::size_t j = 0; j < cols; ++j) {
      const double n = (x[at + j] - mean) * rstd;
      e.dx[at + j] = rstd * (dy[at + j] * w[j] - gradient_mean - n * projection);
    }
  }
  return e;
}

template <class S>
void check_norm(bool layer, std::int64_t rows, std::int64_t cols) {
  const std::int64_t n = rows * cols;
  const auto x = random_array<S>(n, 1, 2.0F);
  const auto residual = random_array<S>(n, 2);
  const auto w = random_array<float>(cols, 3);
  const auto b = random_array<float>(cols, 4);
  const auto dy = random_array<S>(n, 5);
  std::vector<S> sum(x.size());
  std::vector<S> y(x.size());
  std::vector<float> mean(static_cast<std::size_t>(rows));
  std::vector<float> rstd(mean.size());
  NormForward<S> f{.rows = rows,
                   .cols = cols,
                   .eps = 1e-5F,
                   .x = x.data(),
                   .residual = residual.data(),
                   .sum = sum.data(),
                   .weight = w.data(),
                   .bias = layer ? b.data() : nullptr,
                   .y = y.data(),
                   .mean = mean.data(),
                   .rstd = rstd.data()};
  const auto run = [&] { layer ? norm_forward<Norm::layer>(f) : norm_forward<Norm::rms>(f); };
  run();
  std::vector<S> sum_apart(x.size());
  add(n, x.data(), residual.data(), sum_apart.data());
  expect_same_bits(sum, sum_apart, "fused sum");
  std::vector<S> y_apart(x.size());
  f.x = sum_apart.data();
  f.residual = nullptr;
  f.y = y_apart.data();
  run();
  expect_same_bits(y, y_apart, "norm after a fused sum");

  const auto e = expected_norm(layer, static_cast<std::size_t>(rows), static_cast<std::size_t>(cols),
                               to_double(sum), to_double(w), to_double(b), to_double(dy), 1e-5);
  expect_near(y, e.y, 2 * kRounding<S>, 5e-6, "y");

  std::vector<S> dx(x.size());
  std::vector<float> dweight(w.size(), 1.0F);
  std::vector<float> dbias(w.size(), 1.0F);
  std::vector<char> scratch(norm_backward_scratch_bytes(rows, cols) + 64);
  NormBackward<S> g{.rows = rows,
                    .cols = cols,
                    .dy = dy.data(),
                    .x = sum.data(),
                    .weight = w.data(),
                    .mean = mean.data(),
                    .rstd = rstd.data(),
                    .dx = dx.data(),
                    .dweight = dweight.data(),
                    .dbias = layer ? dbias.data() : nullptr,
                    .accumulate = true};
  const auto run_backward = [&] {
    layer ? norm_backward<Norm::layer>(g, scratch.data()) : norm_backward<Norm::rms>(g, scratch.data());
  };
  run_backward();
  // One column: the variance is 0, rstd is large and so are rounding errors.
  const double loose = cols == 1 ? 1e-2 : 1e-4;
  expect_near(dx, e.dx, 2 * kRounding<S>, loose, "dx");
  auto dweight_plus = e.dweight;
  for (double& v : dweight_plus) v += 1;
  expect_near(dweight, dweight_plus, 1e-4, 1e-4, "dweight");
  if (layer) {
    auto dbias_plus = e.dbias;
    for (double& v : dbias_plus) v += 1;
    expect_near(dbias, dbias_plus, 1e-5, 1e-5, "dbias");
  }
  g.accumulate = false;
  g.d_residual = residual.data();
  run_backward();
  auto dx_plus = e.dx;
  const auto res = to_double(residual);
  for (std::size_t i = 0; i < res.size(); ++i) dx_plus[i] += res[i];
  expect_near(dx, dx_plus, 2 * kRounding<S>, loose, "dx with residual");
  expect_near(dweight, e.dweight, 1e-4, 1e-4, "dweight overwritten");
  const auto first = dweight;
  const Threads single(1);
  run_backward();
  expect_same_bits(first, dweight, "dweight on one thread");
}

TYPED_TEST(CpuFastTraining, Norms) {
  for (const std::int64_t rows : {1, 5, 77, 1100}) {
    for (const std::int64_t cols : {1, 16, 63, 130}) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(cols));
      check_norm<TypeParam>(true, rows, cols);
      check_norm<TypeParam>(false, rows, cols);
    }
  }
}

TYPED_TEST(CpuFastTraining, CrossEntropy) {
  using S = TypeParam;
  for (const std::int64_t valid : {1, 20, 333, 9001}) {
    const LossShape shape{.rows = 9, .cols = valid + 13, .valid = valid};
    auto logits = random_array<S>(shape.rows * shape.cols, 6, 4.0F);
    std::vector<std::int32_t> targets;
    for (int r = 0; r < 9; ++r) targets.push_back(r == 4 ? -1 : static_cast<std::int32_t>((r * 57) % valid));
    for (std::size_t r = 0; r < 9; ++r) {
      // Padding must not be read as a score.
      for (auto j = static_cast<std::size_t>(valid); j < static_cast<std::size_t>(shape.cols); ++j) {
        logits[r * static_cast<std::size_t>(shape.cols) + j] = S(std::numeric_limits<float>::quiet_NaN());
      }
    }
    std::vector<double> losses_expected(9);
    std::vector<double> gradient_expected(logits.size(), 0.0);
    const auto x = to_double(logits);
    for (std::size_t r = 0; r < 9; ++r) {
      const std::size_t at = r * static_cast<std::size_t>(shape.cols);
      double sum = 0;
      for (std::size_t j = 0; j < static_cast<std::size_t>(valid); ++j) sum += std::exp(x[at + j]);
      if (targets[r] < 0) continue;
      losses_expected[r] = std::log(sum) - x[at + static_cast<std::size_t>(targets[r])];
      for (std::size_t j = 0; j < static_cast<std::size_t>(valid); ++j) {
        const double hit = static_cast<std::int32_t>(j) == targets[r] ? 1 : 0;
        gradient_expected[at + j] = (std::exp(x[at + j]) / sum - hit) * 0.25;
      }
    }
    std::vector<float> losses(9);
    std::vector<float> lse(9);
    std::vector<S> gradient(logits.size());
    cross_entropy_forward(shape, logits.data(), targets.data(), losses.data(), lse.data());
    expect_near(losses, losses_expected, 1e-6, 2e-6, "losses");
    cross_entropy_backward(shape, logits.data(), targets.data(), lse.data(), 0.25F, gradient.data());
    expect_near(gradient, gradient_expected, 2 * kRounding<S>, 1e-6, "gradient");
    std::vector<float> losses_both(9);
    std::vector<float> lse_both(9);
    cross_entropy_with_gradient(shape, logits.data(), targets.data(), 0.25F, losses_both.data(),
                                lse_both.data(), logits.data());
    expect_same_bits(losses, losses_both, "losses in one pass");
    expect_same_bits(lse, lse_both, "lse in one pass");
    expect_same_bits(gradient, logits, "gradient in one pass");
  }
}

TEST(CpuFastLoss, NotANumberShows) {
  const LossShape shape{.rows = 1, .cols = 100, .valid = 100};
  auto logits = random_array<float>(100, 7);
  logits[37] = std::nanf("");
  const std::int32_t target = 3;
  float loss = 0;
  float lse = 0;
  cross_entropy_forward(shape, logits.data(), &target, &loss, &lse);
  EXPECT_TRUE(std::isnan(loss));
}

TEST(CpuFastOptimizer, AdamW) {
  for (const std::int64_t n : {1, 31, 20011}) {
    const AdamWStep step{.lr = 1e-2F,
                         .beta1 = core::MovingAverage(0.9),
                         .beta2 = core::MovingAverage(0.95),
                         .eps = 1e-6F,
                         .weight_decay = 0.1F,
                         .bias_correction1 = 0.19F,
                         .bias_correction2 = 0.0975F,
                         .grad_scale = 0.5F};
    auto p = random_array<float>(n, 1);
    auto m = random_array<float>(n, 2, 0.1F);
    auto v = random_array<float>(n, 3, 0.1F);
    for (float& x : v) x = std::abs(x);
    const auto g = random_array<float>(n, 4);
    auto pe = to_double(p);
    auto me = to_double(m);
    auto ve = to_double(v);
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double gi = static_cast<double>(g[i]) * 0.5;
      me[i] = 0.9 * me[i] + 0.1 * gi;
      ve[i] = 0.95 * ve[i] + 0.05 * gi * gi;
      pe[i] -= 1e-2 * 0.1 * pe[i] + 1e-2 * (me[i] / 0.19) / (std::sqrt(ve[i] / 0.0975) + 1e-6);
    }
    std::vector<core::Bf16> half(p.size());
    adamw_update(step, n, WholeWeights<core::Bf16>{p.data(), half.data()}, m.data(), v.data(), g.data());
    expect_near(m, me, 1e-6, 1e-7, "m");
    expect_near(v, ve, 1e-6, 1e-7, "v");
    expect_near(p, pe, 1e-6, 1e-6, "p");
    for (std::size_t i = 0; i < p.size(); ++i) ASSERT_EQ(half[i].bits, core::Bf16(p[i]).bits);
  }
}

/// The first update of a weight is lr * g / (|g| + eps) whatever beta: what the averages lack, the bias
/// correction takes back.
TEST(CpuFastOptimizer, BetaNearOneKeepsTheSizeOfAnUpdate) {
  for (const double beta2 : {0.95, 0.999, 0.9999, 0.999999}) {
    const AdamWStep step{.lr = 1,
                         .beta2 = core::MovingAverage(beta2),
                         .bias_correction1 = static_cast<float>(1 - 0.9),
                         .bias_correction2 = static_cast<float>(1 - beta2)};
    std::vector<float> p = {0};
    std::vector<float> m = {0};
    std::vector<float> v = {0};
    const std::vector<float> g = {0.5F};
    adamw_update(step, 1, WholeWeights<core::Bf16>{p.data()}, m.data(), v.data(), g.data());
    EXPECT_NEAR(p[0], -1, 1e-6) << beta2;
  }
}

TEST(CpuFastOptimizer, Sgd) {
  const std::int64_t n = 1003;
  const auto g = random_array<float>(n, 1);
  auto p = random_array<float>(n, 2);
  auto pe = to_double(p);
  for (std::size_t i = 0; i < p.size(); ++i) pe[i] -= 0.1 * (2 * static_cast<double>(g[i]) + 0.01 * pe[i]);
  const SgdStep step{.lr = 0.1F, .weight_decay = 0.01F, .grad_scale = 2.0F};
  sgd_update(step, n, WholeWeights<core::Bf16>{p.data()}, g.data());
  expect_near(p, pe, 1e-6, 1e-6, "p");
}

/// Weights in halves, upper ones first.
std::vector<std::uint16_t> in_halves(const std::vector<float>& whole, core::DType dtype) {
  std::vector<std::uint16_t> halves(2 * whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const core::Halves split = core::split_in_halves(whole[i], dtype);
    halves[i] = split.upper;
    halves[whole.size() + i] = split.lower;
  }
  return halves;
}

/// The same fp32 numbers as whole weights get from the same gradients, in fp32 and in 16 bits, NaN included.
template <Half H>
void expect_halves_lose_nothing(core::DType dtype) {
  for (const std::int64_t n : {1, 15, 16, 33, 10007}) {
    const auto rounded = random_array<H>(n, 4);
    const auto g = to_float(rounded);
    auto p = random_array<float>(n, 1);
    p[0] = std::bit_cast<float>(0x3f808000U);  // halfway between two numbers of bf16
    if (n > 1) p.back() = std::nanf("");
    auto halves = in_halves(p, dtype);
    auto m = random_array<float>(n, 2, 0.1F);
    auto v = random_array<float>(n, 3, 0.1F);
    for (float& x : v) x = std::abs(x);
    auto m2 = m;
    auto v2 = v;
    const AdamWStep adamw{.lr = 1e-2F, .weight_decay = 0.1F, .grad_scale = 0.5F};
    const SgdStep sgd{.lr = 0.1F, .weight_decay = 0.01F};
    adamw_update(adamw, n, WholeWeights<H>{p.data()}, m.data(), v.data(), g.data());
    sgd_update(sgd, n, WholeWeights<H>{p.data()}, rounded.data());
    const HalvedWeights<H> weights{halves.data(), halves.data() + n};
    adamw_update(adamw, n, weights, m2.data(), v2.data(), rounded.data());
    sgd_update(sgd, n, weights, g.data());
    const std::vector<std::uint16_t> expected = in_halves(p, dtype);
    for (std::size_t i = 0; i < p.size(); ++i) {
      if (std::isnan(p[i])) continue;  // of which there are many
      ASSERT_EQ(halves[i], expected[i]) << n << ", " << i << ": " << p[i];
      ASSERT_EQ(halves[p.size() + i], expected[p.size() + i]) << n << ", " << i << ": " << p[i];
    }
    const auto last = core::join_halves({.upper = halves[p.size() - 1], .lower = halves.back()}, dtype);
    EXPECT_EQ(std::isnan(last), std::isnan(p.back())) << n;
    EXPECT_EQ(m, m2);
    EXPECT_EQ(v, v2);
  }
}

TEST(CpuFastOptimizer, HalvesLoseNothing) {
  expect_halves_lose_nothing<core::Bf16>(core::DType::bf16);
  expect_halves_lose_nothing<core::F16>(core::DType::f16);
}

/// Vectors split and join as core/halves.h does, the smallest and the largest numbers included.
TEST(CpuFastOptimizer, HalvesOfFp16AreThoseOfTheCore) {
  std::vector<float> p;
  for (int exponent = -60; exponent <= 18; ++exponent)
    for (const float x : random_array<float>(37, static_cast<std::uint64_t>(exponent + 100)))
      p.push_back(std::ldexp(x, exponent));
  for (const float x :
       {0.0F, -0.0F, 0x1p-14F, 0x1.ffffffp-15F, 0x1p-25F, -0x1p-25F, 0x1.8p-24F, 65519.0F, 65520.0F})
    p.push_back(x);
  const auto n = static_cast<std::int64_t>(p.size());
  auto halves = in_halves(p, core::DType::f16);
  std::vector<float> joined(p.size());
  for (std::size_t i = 0; i < p.size(); ++i)
    joined[i] = core::join_halves({.upper = halves[i], .lower = halves[p.size() + i]}, core::DType::f16);
  const auto g = random_array<float>(n, 3, 1e-7F);
  const SgdStep sgd{.lr = 1.0F};
  sgd_update(sgd, n, HalvedWeights<core::F16>{halves.data(), halves.data() + n}, g.data());
  sgd_update(sgd, n, WholeWeights<core::F16>{joined.data()}, g.data());
  const std::vector<std::uint16_t> expected = in_halves(joined, core::DType::f16);
  for (std::size_t i = 0; i < p.size(); ++i) {
    ASSERT_EQ(halves[i], expected[i]) << p[i] << ", " << joined[i];
    ASSERT_EQ(halves[p.size() + i], expected[p.size() + i]) << p[i] << ", " << joined[i];
  }
}

TEST(CpuFastOptimizer, CopiesInFp16AreRounded) {
  const std::int64_t n = 1003;
  auto p = random_array<float>(n, 1, 1e-3F);
  std::vector<core::F16> copy(p.size());
  const auto g = random_array<core::F16>(n, 2);
  sgd_update({.lr = 1e-4F}, n, WholeWeights<core::F16>{p.data(), copy.data()}, g.data());
  for (std::size_t i = 0; i < p.size(); ++i) ASSERT_EQ(copy[i].bits, core::F16(p[i]).bits);
}

template <Half H>
void expect_sums_of_squares() {
  for (const std::int64_t n : {1, 31, 50021}) {
    const auto rounded = random_array<H>(n, 8);
    const auto g = to_float(rounded);
    EXPECT_EQ(sum_of_squares(n, rounded.data()), sum_of_squares(n, g.data()));
  }
}

TEST(CpuFastOptimizer, SumOfSquaresOf16Bits) {
  expect_sums_of_squares<core::Bf16>();
  expect_sums_of_squares<core::F16>();
}

TEST(CpuFastOptimizer, SumOfSquaresDoesNotDependOnThreads) {
  for (const std::int64_t n : {0, 1, 17, 16384, 5000001}) {
    const auto g = random_array<float>(n, 8);
    double expected = 0;
    for (const float x : g) expected += static_cast<double>(x) * static_cast<double>(x);
    const double sum = sum_of_squares(n, g.data());
    EXPECT_NEAR(sum, expected, 1e-12 * expected);
    const Threads single(1);
    EXPECT_EQ(sum, sum_of_squares(n, g.data()));
  }
  std::vector<float> bad(100, 1.0F);
  bad[99] = std::nanf("");
  EXPECT_TRUE(std::isnan(sum_of_squares(100, bad.data())));
}

}  // namespace
}  // namespace rooflm::backends::cpu
