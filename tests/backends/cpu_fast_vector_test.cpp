// The elementwise, activation, rope and embedding kernels against loops in double, on odd sizes.
#include <array>
#include <limits>

#include "backends/cpu/fast/activation.h"
#include "backends/cpu/fast/elementwise.h"
#include "backends/cpu/fast/embedding.h"
#include "backends/cpu/fast/rope.h"
#include "backends/cpu/fast/vec_math.h"
#include "cpu_fast_testing.h"

namespace rooflm::backends::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t kSizes[] = {1, 15, 16, 17, 1000, 40007};

template <class S>
class CpuFastVector : public ::testing::Test {};
TYPED_TEST_SUITE(CpuFastVector, StorageTypes);

double ulps(float actual, double expected) {
  const auto near = static_cast<float>(expected);
  const double ulp = static_cast<double>(std::nextafter(std::abs(near), kInfinity)) - std::abs(near);
  return std::abs(static_cast<double>(actual) - expected) / ulp;
}

TEST(CpuFastMath, ExpIsWithinTwoUlp) {
  std::vector<float> x;
  for (int i = -87000; i <= 88700; i += 7) x.push_back(static_cast<float>(i) * 1e-3F);
  std::vector<float> y(x.size());
  exp_array<float>(static_cast<std::int64_t>(x.size()), x.data(), y.data());
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    worst = std::max(worst, ulps(y[i], std::exp(static_cast<double>(x[i]))));
  EXPECT_LE(worst, 2.0);
  RecordProperty("worst_ulp", std::to_string(worst));
}

TEST(CpuFastMath, Exp2IsWithinTwoUlp) {
  std::vector<float> x;
  for (int i = -125990; i <= 0; i += 7) x.push_back(static_cast<float>(i) * 1e-3F);
  std::vector<float> y(x.size());
  exp2_nonpositive_array(static_cast<std::int64_t>(x.size()), x.data(), y.data());
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    worst = std::max(worst, ulps(y[i], std::exp2(static_cast<double>(x[i]))));
  EXPECT_LE(worst, 2.0);
}

TEST(CpuFastMath, SigmoidIsWithinFourUlp) {
  std::vector<float> x;
  for (int i = -80000; i <= 30000; i += 7) x.push_back(static_cast<float>(i) * 1e-3F);
  std::vector<float> y(x.size());
  sigmoid_array<float>(static_cast<std::int64_t>(x.size()), x.data(), y.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_LE(ulps(y[i], 1 / (1 + std::exp(-static_cast<double>(x[i])))), 4.0) << x[i];
  }
}

/// What is stored in bf16 rounds by 2e-3; exp costs a tenth of it in the worst case, far out.
TEST(CpuFastMath, ForBf16ExpAndSigmoidAreAsPreciseAsTheySay) {
  std::vector<float> x;
  for (int i = -80000; i <= 80000; i += 7) x.push_back(static_cast<float>(i) * 1e-3F);
  std::vector<float> e(x.size());
  std::vector<float> s(x.size());
  const auto n = static_cast<std::int64_t>(x.size());
  exp_array<core::Bf16>(n, x.data(), e.data());
  sigmoid_array<core::Bf16>(n, x.data(), s.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    const double allowed = 4e-6 + 1e-7 * std::abs(static_cast<double>(x[i]));
    ASSERT_LE(std::abs(static_cast<double>(e[i]) - exact), allowed * exact) << x[i];
    ASSERT_LE(std::abs(static_cast<double>(s[i]) - exact / (1 + exact)), allowed * exact / (1 + exact))
        << x[i];
  }
}

template <class S>
void check_special_values() {
  const std::vector<float> x = {-kInfinity, -200.0F, 0.0F, 89.0F, kInfinity, std::nanf("")};
  // Once as the rest of a bundle, and once more in one.
  for (const std::size_t copies : {1, 20}) {
    std::vector<float> many;
    for (std::size_t i = 0; i < copies; ++i) many.insert(many.end(), x.begin(), x.end());
    std::vector<float> e(many.size());
    std::vector<float> s(many.size());
    exp_array<S>(static_cast<std::int64_t>(many.size()), many.data(), e.data());
    sigmoid_array<S>(static_cast<std::int64_t>(many.size()), many.data(), s.data());
    for (std::size_t i = 0; i < many.size(); i += x.size()) {
      EXPECT_EQ(e[i], 0.0F);
      EXPECT_EQ(e[i + 1], 0.0F);
      EXPECT_EQ(e[i + 2], 1.0F);
      EXPECT_EQ(e[i + 3], kInfinity);
      EXPECT_EQ(e[i + 4], kInfinity);
      EXPECT_TRUE(std::isnan(e[i + 5]));
      EXPECT_EQ(s[i], 0.0F);
      EXPECT_EQ(s[i + 2], 0.5F);
      EXPECT_EQ(s[i + 4], 1.0F);
      EXPECT_TRUE(std::isnan(s[i + 5]));
    }
  }
}

TYPED_TEST(CpuFastVector, SpecialValues) { check_special_values<TypeParam>(); }

/// Each element is written once, and nothing beside them, wherever an array lies in the lines of the caches.
TYPED_TEST(CpuFastVector, LoopsPastTheCachesWriteWhatOthersWrite) {
  using S = TypeParam;
  constexpr std::int64_t kSize = 400;
  alignas(64) std::array<S, kSize> bundles;
  alignas(64) std::array<S, kSize> lanes;
  const auto x = random_array<S>(kSize, 3);
  for (std::int64_t begin = 0; begin < 70; ++begin) {
    for (const std::int64_t count : {0, 1, 31, 64, 65, 200, 329}) {
      bundles.fill(S(7.0F));
      lanes.fill(S(7.0F));
      const std::int64_t end = begin + count;
      for_bundles_to(bundles.data(), true, begin, end,
                     [&](auto i, auto group) { store_at(&bundles[i], load_at(&x[i], group) * 2.0F, group); });
      for_lanes_to(lanes.data(), true, begin, end,
                   [&](auto i, auto group) { store_at(&lanes[i], load_at(&x[i], group) * 2.0F, group); });
      end_stream();
      for (std::int64_t i = 0; i < kSize; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const float expected = i < begin || i >= end ? 7.0F : 2 * static_cast<float>(x[at]);
        ASSERT_EQ(static_cast<float>(bundles[at]), expected) << begin << " + " << count << " at " << i;
        ASSERT_EQ(static_cast<float>(lanes[at]), expected) << begin << " + " << count << " at " << i;
      }
    }
  }
}

TEST(CpuFastVectorBf16, BundlesRoundAsTheScalarType) {
  std::vector<float> x = random_array<float>(Bundle::kElements, 3, 100.0F);
  x[0] = std::nanf("");
  x[1] = -kInfinity;
  x[2] = 1.00390625F;  // a tie
  x[3] = 3.4e38F;      // rounds to infinity
  std::vector<core::Bf16> y(x.size());
  Bundle numbers{};  // every second number of a part in a vector
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t lane = i / 2 % kLanes;
    numbers.v[i / (2 * kLanes) * 2 + i % 2][lane] = x[i];
  }
  store_at(y.data(), numbers, BundleGroup{});
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i].bits, core::Bf16(x[i]).bits) << x[i];
}

TEST(CpuFastMath, Exp2OfWhatIsFarBelowIsZero) {
  std::vector<float> y(3);
  const std::vector<float> negative = {-1e30F, -200.0F, 0.0F};
  exp2_nonpositive_array(3, negative.data(), y.data());
  EXPECT_EQ(y[0], 0.0F);
  EXPECT_EQ(y[1], 0.0F);
  EXPECT_EQ(y[2], 1.0F);
}

TYPED_TEST(CpuFastVector, AddScaleFillAccumulate) {
  using S = TypeParam;
  for (const std::int64_t n : kSizes) {
    const auto a = random_array<S>(n, 1);
    const auto b = random_array<S>(n, 2);
    std::vector<S> y(a.size());
    add(n, a.data(), b.data(), y.data());
    const auto size = a.size();
    for (std::size_t i = 0; i < size; ++i) {
      ASSERT_EQ(static_cast<float>(y[i]),
                static_cast<float>(S(static_cast<float>(a[i]) + static_cast<float>(b[i]))));
    }
    scale(n, -0.5F, a.data(), y.data());
    for (std::size_t i = 0; i < size; ++i)
      ASSERT_EQ(static_cast<float>(y[i]), -0.5F * static_cast<float>(a[i]));
    std::vector<float> sum(size, 1.0F);
    accumulate(n, a.data(), sum.data());
    for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(sum[i], 1.0F + static_cast<float>(a[i]));
    fill(n, 2.0F, y.data());
    for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(static_cast<float>(y[i]), 2.0F);
  }
}

TEST(CpuFastVectorCast, RoundsAsTheScalarType) {
  for (const std::int64_t n : kSizes) {
    auto x = random_array<float>(n, 3, 100.0F);
    if (n > 3) {
      x[0] = std::nanf("");
      x[1] = kInfinity;
      x[2] = 1.00390625F;  // a tie
    }
    std::vector<core::Bf16> y(x.size());
    cast(n, x.data(), y.data());
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i].bits, core::Bf16(x[i]).bits) << x[i];
    std::vector<float> back(x.size());
    cast(n, y.data(), back.data());
    for (std::size_t i = n > 3 ? 1 : 0; i < x.size(); ++i) ASSERT_EQ(back[i], static_cast<float>(y[i]));
    std::vector<float> copy(x.size());
    copy_bytes(n * 4, x.data(), copy.data());
    expect_same_bits(x, copy, "copy");
  }
}

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

TYPED_TEST(CpuFastVector, Gelu) {
  using S = TypeParam;
  for (const std::int64_t n : kSizes) {
    auto x = random_array<S>(n, 4, 3.0F);
    if (n > 3) {
      x[0] = S(1e20F);
      x[1] = S(-1e20F);
      x[2] = S(0.0F);
    }
    const auto dy = random_array<S>(n, 5);
    std::vector<S> y(x.size());
    std::vector<S> dx(x.size());
    gelu_forward(n, x.data(), y.data());
    gelu_backward(n, dy.data(), x.data(), dx.data());
    std::vector<double> y_expected(x.size());
    std::vector<double> dx_expected(x.size());
    const auto xd = to_double(x);
    const auto dyd = to_double(dy);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double u = std::sqrt(2 / M_PI) * (xd[i] + 0.044715 * xd[i] * xd[i] * xd[i]);
      const double t = std::tanh(u);
      const double du = std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * xd[i] * xd[i]);
      y_expected[i] = gelu(xd[i]);
      dx_expected[i] = dyd[i] * (0.5 * (1 + t) + (std::abs(u) > 50 ? 0 : 0.5 * xd[i] * (1 - t * t) * du));
    }
    expect_near(y, y_expected, 2 * kRounding<S>, 2e-6, "gelu");
    // 1 - gate loses digits where the gate is nearly 1.
    expect_near(dx, dx_expected, 2 * kRounding<S>, 3e-5, "gelu gradient");
  }
}

TYPED_TEST(CpuFastVector, SwiGlu) {
  using S = TypeParam;
  for (const std::int64_t width : {1, 16, 37, 300}) {
    const std::int64_t rows = 7;
    auto x = random_array<S>(rows * 2 * width, 6, 2.0F);
    const auto dy = random_array<S>(rows * width, 7);
    std::vector<S> y(dy.size());
    std::vector<S> dx(x.size());
    swiglu_forward(rows, width, x.data(), y.data());
    swiglu_backward(rows, width, dy.data(), x.data(), dx.data());
    std::vector<double> y_expected(y.size());
    std::vector<double> dx_expected(x.size());
    const auto xd = to_double(x);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < width; ++i) {
        const auto gate = static_cast<std::size_t>(r * 2 * width + i);
        const auto up = gate + static_cast<std::size_t>(width);
        const auto out = static_cast<std::size_t>(r * width + i);
        const double s = 1 / (1 + std::exp(-xd[gate]));
        const double d = static_cast<double>(static_cast<float>(dy[out]));
        y_expected[out] = xd[gate] * s * xd[up];
        dx_expected[gate] = d * xd[up] * s * (1 + xd[gate] * (1 - s));
        dx_expected[up] = d * xd[gate] * s;
      }
    }
    expect_near(y, y_expected, 2 * kRounding<S>, 2e-6, "swiglu");
    expect_near(dx, dx_expected, 2 * kRounding<S>, 5e-6, "swiglu gradient");
    swiglu_backward(rows, width, dy.data(), x.data(), x.data());
    expect_same_bits(x, dx, "swiglu gradient in place");
  }
}

TYPED_TEST(CpuFastVector, BiasBackwardSumsColumns) {
  using S = TypeParam;
  for (const std::int64_t rows : {1, 7, 100}) {
    for (const std::int64_t cols : {1, 65, 333}) {
      const auto dy = random_array<S>(rows * cols, 8);
      std::vector<double> expected(static_cast<std::size_t>(cols), 0.5);
      for (std::size_t i = 0; i < dy.size(); ++i) {
        expected[i % expected.size()] += static_cast<double>(static_cast<float>(dy[i]));
      }
      std::vector<float> db(expected.size(), 0.5F);
      std::vector<std::byte> scratch(bias_backward_scratch_bytes(rows, cols));
      bias_backward(rows, cols, dy.data(), db.data(), true, scratch.data());
      expect_near(db, expected, 1e-6, 1e-5, "db");
      std::vector<float> one(db.size(), 0.5F);
      {
        const Threads single(1);
        bias_backward(rows, cols, dy.data(), one.data(), true, scratch.data());
      }
      expect_same_bits(one, db, "db on one thread");
      bias_backward(rows, cols, dy.data(), db.data(), false, scratch.data());
      for (double& x : expected) x -= 0.5;
      expect_near(db, expected, 1e-6, 1e-5, "db overwritten");
    }
  }
}

TYPED_TEST(CpuFastVector, RopeRotatesAndTurnsBack) {
  using S = TypeParam;
  for (const std::int64_t head_dim : {2, 6, 32, 80}) {
    const AttentionShape shape{.batch = 2, .seq = 5, .heads = 4, .kv_heads = 2, .head_dim = head_dim};
    const std::int64_t row = (4 + 2 * 2) * head_dim;
    const auto x = random_array<S>(2 * 5 * row, 9);
    std::vector<float> cosines(static_cast<std::size_t>(5 * head_dim / 2));
    std::vector<float> sines(cosines.size());
    rope_tables(5, head_dim, 10000.0, cosines.data(), sines.data());
    std::vector<S> y(x.size());
    rope(shape, {}, x.data(), cosines.data(), sines.data(), false, nullptr, y.data());
    auto expected = to_double(x);
    const std::int64_t half = head_dim / 2;
    for (std::int64_t r = 0; r < 10; ++r) {
      for (std::int64_t h = 0; h < 6; ++h) {
        for (std::int64_t i = 0; i < half; ++i) {
          const double angle =
              static_cast<double>(r % 5) *
              std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
          const auto at = static_cast<std::size_t>(r * row + h * head_dim + i);
          const auto pair = at + static_cast<std::size_t>(half);
          const double a = expected[at];
          const double b = expected[pair];
          expected[at] = a * std::cos(angle) - b * std::sin(angle);
          expected[pair] = b * std::cos(angle) + a * std::sin(angle);
        }
      }
    }
    expect_near(y, expected, 2 * kRounding<S>, 1e-6, "rope");
    rope(shape, {}, y.data(), cosines.data(), sines.data(), true, nullptr, y.data());
    expect_near(y, to_double(x), 4 * kRounding<S>, sizeof(S) == 4 ? 1e-6 : 0.03, "rope and back");
  }
}

TYPED_TEST(CpuFastVector, Embedding) {
  using S = TypeParam;
  const EmbeddingShape shape{.batch = 3, .seq = 11, .cols = 83};
  const std::int64_t vocab = 9;
  const auto table = random_array<S>(vocab * shape.cols, 10);
  const auto positions = random_array<S>(13 * shape.cols, 11);
  const auto dy = random_array<S>(33 * shape.cols, 12);
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 33; ++i) tokens.push_back((i * i + 1) % static_cast<int>(vocab));
  std::vector<S> y(dy.size());
  embedding_forward(shape, tokens.data(), table.data(), positions.data(), nullptr, y.data());
  std::vector<double> y_expected(y.size());
  std::vector<double> dtable(table.size(), 1.0);
  std::vector<double> dpositions(positions.size(), 0.0);
  const auto cols = static_cast<std::size_t>(shape.cols);
  for (std::size_t row = 0; row < 33; ++row) {
    for (std::size_t j = 0; j < cols; ++j) {
      const auto token = static_cast<std::size_t>(tokens[row]) * cols + j;
      const auto position = row % 11 * cols + j;
      const auto gradient = static_cast<double>(static_cast<float>(dy[row * cols + j]));
      y_expected[row * cols + j] =
          static_cast<double>(static_cast<float>(table[token]) + static_cast<float>(positions[position]));
      dtable[token] += gradient;
      dpositions[position] += gradient;
    }
  }
  expect_near(y, y_expected, kRounding<S>, 0, "embedding");
  std::vector<float> table_gradient(table.size(), 1.0F);
  embedding_backward(shape, tokens.data(), dy.data(), table_gradient.data());
  expect_near(table_gradient, dtable, 1e-6, 1e-5, "token gradient");
  std::vector<float> position_gradient(positions.size(), 0.0F);
  position_embedding_backward(shape, dy.data(), position_gradient.data(), false);
  expect_near(position_gradient, dpositions, 1e-6, 1e-5, "position gradient");
  position_embedding_backward(shape, dy.data(), position_gradient.data(), true);
  for (double& x : dpositions) x *= 2;
  expect_near(position_gradient, dpositions, 1e-6, 1e-5, "position gradient accumulated");
}

/// Every fp16 number comes back, and numbers between two of them round as F16 does.
TEST(CpuFastVectorF16, CastsAreThoseOfF16) {
  std::vector<core::F16> all(1 << 16U);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  std::vector<float> wide(all.size());
  const auto n = static_cast<std::int64_t>(all.size()) - 3;  // with a rest that fills no vector
  cast(n, all.data(), wide.data());
  std::vector<core::F16> back(all.size());
  cast(n, wide.data(), back.data());
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
    const auto expected = static_cast<float>(all[i]);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(wide[i]) && std::isnan(static_cast<float>(back[i]))) << i;
      continue;
    }
    ASSERT_EQ(wide[i], expected);
    ASSERT_EQ(back[i].bits, all[i].bits);
  }
  const auto values = random_array<float>(40007, 6, 1e-4F);
  std::vector<core::F16> narrow(values.size());
  cast(40007, values.data(), narrow.data());
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(narrow[i].bits, core::F16(values[i]).bits) << values[i];
}

}  // namespace
}  // namespace rooflm::backends::cpu
