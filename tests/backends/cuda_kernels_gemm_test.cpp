// GEMMs of fp32 as six bf16 products, against sums in double: any shape and layout, and errors no larger than
// those of fp32 multiply-adds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "backends/cuda/kernels/gemm_bf16x6.h"
#include "devices/cuda_workspaces.h"
#include "tests/backends/cuda_testing.h"

namespace rooflm::tests {
namespace {

using namespace backends::cuda;  // NOLINT(google-build-using-namespace): the launchers are what is tested
using core::DType;

constexpr int kMultiprocessors = 100;

struct Shape {
  std::int64_t batch, m, n, k;
  bool trans_a = false, trans_b = false;
  std::int64_t padding = 0;  ///< of rows of a and c; with batch 1
  bool accumulate = false, bias = false;
  std::optional<std::int64_t> parts{};
};

std::vector<double> random(std::int64_t count, unsigned seed) {
  return random_values(DType::f32, count, seed);
}

/// A GEMM's operands and its result on the GPU.
class Multiplied {
 public:
  explicit Multiplied(const Shape& s)
      : shape_(s),
        a_stride_((s.trans_a ? s.m : s.k) + s.padding),
        c_stride_(s.n + s.padding),
        a_(random(s.padding > 0 ? (s.trans_a ? s.k : s.m) * a_stride_ : s.batch * s.m * s.k, 1)),
        b_(random(s.batch * s.k * s.n, 2)),
        before_(random(s.padding > 0 ? s.m * c_stride_ : s.batch * s.m * s.n, 3)),
        bias_(random(s.n, 4)) {
    const DeviceArray a(DType::f32, a_);
    const DeviceArray b(DType::f32, b_);
    const DeviceArray c(DType::f32, before_);
    const DeviceArray bias(DType::f32, bias_);
    const devices::GemmSizes sizes{.batch = s.batch, .m = s.m, .n = s.n, .k = s.k};
    const std::int64_t parts = s.parts.value_or(devices::bf16x6_parts(sizes, kMultiprocessors, false));
    const DeviceArray workspace(DType::f32, at(std::max<std::int64_t>(1, parts * s.batch * s.m * s.n)));
    launch_bf16x6_gemm(nullptr, {.batch = s.batch,
                                 .m = s.m,
                                 .n = s.n,
                                 .k = s.k,
                                 .trans_a = s.trans_a,
                                 .trans_b = s.trans_b,
                                 .a_stride = a_stride_,
                                 .b_stride = s.trans_b ? s.k : s.n,
                                 .c_stride = c_stride_,
                                 .a = a.floats(),
                                 .b = b.floats(),
                                 .c = c.floats(),
                                 .bias = s.bias ? bias.floats() : nullptr,
                                 .accumulate = s.accumulate,
                                 .parts = parts,
                                 .workspace = workspace.floats(),
                                 .multiprocessors = kMultiprocessors});
    check_cuda(cudaDeviceSynchronize(), "multiplying");
    c_ = c.read();
  }

  struct Sum {
    double exact = 0, magnitude = 0;  ///< with the absolute values of all terms
    float multiply_adds = 0;          ///< in fp32, one after the other
  };
  [[nodiscard]] Sum sum(std::int64_t batch, std::int64_t row, std::int64_t col) const {
    const Shape& s = shape_;
    Sum sum;
    const auto add = [&](double x) {
      sum.exact += x;
      sum.magnitude += std::abs(x);
    };
    for (std::int64_t i = 0; i < s.k; ++i) {
      const double x = a_[at(batch * s.m * s.k + (s.trans_a ? i * a_stride_ + row : row * a_stride_ + i))];
      const double y = b_[at(batch * s.k * s.n + (s.trans_b ? col * s.k + i : i * s.n + col))];
      add(x * y);
      sum.multiply_adds = std::fmaf(static_cast<float>(x), static_cast<float>(y), sum.multiply_adds);
    }
    if (s.bias) add(bias_[at(col)]);
    if (s.accumulate) add(before_[place(batch, row, col)]);
    return sum;
  }
  [[nodiscard]] double result(std::int64_t batch, std::int64_t row, std::int64_t col) const {
    return c_[place(batch, row, col)];
  }
  /// What lies between the rows of c is as it was.
  [[nodiscard]] bool left_padding() const {
    for (std::int64_t row = 0; row < shape_.m; ++row) {
      for (std::int64_t col = shape_.n; col < c_stride_; ++col) {
        if (c_[at(row * c_stride_ + col)] != before_[at(row * c_stride_ + col)]) return false;
      }
    }
    return true;
  }
  [[nodiscard]] const std::vector<double>& all() const { return c_; }

 private:
  [[nodiscard]] std::size_t place(std::int64_t batch, std::int64_t row, std::int64_t col) const {
    return at(batch * shape_.m * shape_.n + row * c_stride_ + col);
  }

  Shape shape_;
  std::int64_t a_stride_, c_stride_;
  std::vector<double> a_, b_, before_, bias_, c_;
};

class GemmBf16x6 : public CudaKernels {
 protected:
  void SetUp() override {
    CudaKernels::SetUp();
    if (!IsSkipped() && !has_bf16x6()) GTEST_SKIP() << "bf16x6 needs a GPU of compute capability 9.0";
  }
};

TEST_F(GemmBf16x6, AnyShapeAndLayout) {
  constexpr double kRounding = 0x1p-20;  // of the magnitude: few sums in fp32, and what is left out
  const std::vector<Shape> shapes = {
      {.batch = 1, .m = 1, .n = 1, .k = 1},
      {.batch = 1, .m = 128, .n = 128, .k = 32},
      {.batch = 1, .m = 129, .n = 257, .k = 97, .trans_b = true},
      {.batch = 1, .m = 130, .n = 64, .k = 200, .trans_a = true, .bias = true},
      {.batch = 1, .m = 70, .n = 300, .k = 1000, .trans_a = true, .trans_b = true, .accumulate = true},
      {.batch = 1, .m = 256, .n = 384, .k = 160, .trans_b = true, .accumulate = true, .bias = true},
      {.batch = 3, .m = 100, .n = 50, .k = 40},
      {.batch = 5, .m = 33, .n = 65, .k = 31, .trans_b = true, .parts = 1},
      {.batch = 2, .m = 64, .n = 64, .k = 500, .trans_a = true, .parts = 3},
      {.batch = 1, .m = 150, .n = 90, .k = 300, .padding = 3, .accumulate = true},
      {.batch = 1, .m = 90, .n = 150, .k = 300, .trans_a = true, .padding = 4, .bias = true, .parts = 7},
      {.batch = 1, .m = 2000, .n = 1000, .k = 33, .trans_b = true},  // more tiles than blocks
  };
  for (const Shape& s : shapes) {
    const Multiplied product(s);
    for (std::int64_t i = 0; i < s.batch * s.m * s.n; ++i) {
      const std::int64_t batch = i / (s.m * s.n);
      const std::int64_t row = i / s.n % s.m;
      const auto sum = product.sum(batch, row, i % s.n);
      ASSERT_NEAR(product.result(batch, row, i % s.n), sum.exact, kRounding * sum.magnitude)
          << s.batch << " x " << s.m << " x " << s.n << " x " << s.k << " at " << batch << ", " << row << ", "
          << i % s.n;
    }
    EXPECT_TRUE(product.left_padding()) << s.m << " x " << s.n;
  }
}

TEST_F(GemmBf16x6, IsAsCloseAsMultiplyAddsInFp32) {
  for (const std::int64_t k : {256, 4096}) {
    const Shape s{.batch = 1, .m = 128, .n = 128, .k = k, .trans_b = true, .parts = 1};
    const Multiplied product(s);
    double own = 0;
    double fp32 = 0;
    for (std::int64_t i = 0; i < s.m * s.n; ++i) {
      const auto sum = product.sum(0, i / s.n, i % s.n);
      own += std::pow(product.result(0, i / s.n, i % s.n) - sum.exact, 2);
      fp32 += std::pow(static_cast<double>(sum.multiply_adds) - sum.exact, 2);
    }
    EXPECT_LT(own, fp32) << "k = " << k;
    EXPECT_GT(own, 0) << "k = " << k;
  }
}

TEST_F(GemmBf16x6, GivesTheSameBitsAgain) {
  const Shape s{.batch = 1, .m = 500, .n = 300, .k = 700, .trans_a = true, .parts = 4};
  EXPECT_EQ(Multiplied(s).all(), Multiplied(s).all());
}

/// Powers of two, and numbers with all 24 bits, times 1: nothing is lost of a factor.
TEST_F(GemmBf16x6, KeepsAllBitsOfAFactor) {
  constexpr std::int64_t kRows = 64;
  std::vector<double> a(kRows * kRows, 0);
  std::vector<double> b(kRows * kRows, 0);
  for (std::int64_t i = 0; i < kRows; ++i) {
    a[at(i * kRows + i)] = 1;
    for (std::int64_t j = 0; j < kRows; ++j) {
      b[at(i * kRows + j)] =
          std::ldexp(static_cast<double>(0xffffff - 977 * (i * kRows + j)), static_cast<int>(i) - 60);
    }
  }
  const DeviceArray left(DType::f32, a);
  const DeviceArray right(DType::f32, b);
  const DeviceArray c(DType::f32, at(kRows * kRows));
  launch_bf16x6_gemm(nullptr, {.m = kRows,
                               .n = kRows,
                               .k = kRows,
                               .a_stride = kRows,
                               .b_stride = kRows,
                               .c_stride = kRows,
                               .a = left.floats(),
                               .b = right.floats(),
                               .c = c.floats(),
                               .multiprocessors = kMultiprocessors});
  check_cuda(cudaDeviceSynchronize(), "multiplying");
  EXPECT_EQ(c.read(), b);
}

}  // namespace
}  // namespace rooflm::tests
