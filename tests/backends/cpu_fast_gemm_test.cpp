// Prepared matrix products against loops in double.
#include <cstdlib>
#include <memory>

#include "backends/cpu/fast/gemm.h"
#include "core/error.h"
#include "cpu_fast_testing.h"

namespace rooflm::backends::cpu {
namespace {

using core::DType;

struct Free {
  void operator()(void* p) const { std::free(p); }
};

std::unique_ptr<void, Free> scratch_for(const Gemm& gemm) {
  return std::unique_ptr<void, Free>(std::aligned_alloc(64, (gemm.scratch_bytes() + 64) / 64 * 64));
}

// a, b of type S, c of type R; strides as in the problem, which must have none left at zero.
template <class S, class R>
void check(const GemmProblem& given) {
  std::unique_ptr<Gemm> gemm;
  try {
    gemm = std::make_unique<Gemm>(given);
  } catch (const core::Unavailable& e) {
    GTEST_SKIP() << e.what();
  }
  const GemmProblem& p = gemm->problem();
  const auto a = random_array<S>(p.batch * p.batch_stride_a, 1);
  const auto b = random_array<S>(p.batch * p.batch_stride_b, 2);
  const auto bias = random_array<float>(p.n, 3);
  auto c = random_array<R>(p.batch * p.batch_stride_c, 4);
  auto expected = to_double(c);
  for (std::int64_t i = 0; i < p.batch; ++i) {
    for (std::int64_t m = 0; m < p.m; ++m) {
      for (std::int64_t n = 0; n < p.n; ++n) {
        double sum = 0;
        for (std::int64_t k = 0; k < p.k; ++k) {
          const auto at = p.trans_a ? k * p.lda + m : m * p.lda + k;
          const auto bt = p.trans_b ? n * p.ldb + k : k * p.ldb + n;
          sum +=
              static_cast<double>(
                  static_cast<float>(a[static_cast<std::size_t>(i * p.batch_stride_a + at)])) *
              static_cast<double>(static_cast<float>(b[static_cast<std::size_t>(i * p.batch_stride_b + bt)]));
        }
        sum *= static_cast<double>(p.alpha);
        if (p.bias) sum += static_cast<double>(bias[static_cast<std::size_t>(n)]);
        double& out = expected[static_cast<std::size_t>(i * p.batch_stride_c + m * p.ldc + n)];
        out = p.accumulate ? out + sum : sum;
      }
    }
  }
  const auto scratch = scratch_for(*gemm);
  (*gemm)(a.data(), b.data(), c.data(), p.bias ? bias.data() : nullptr, scratch.get());
  // fp32 sums of k products of normal numbers.
  expect_near(c, expected, 2 * kRounding<R>, 2e-6 * std::sqrt(static_cast<double>(p.k)) + 1e-6, "c");
}

TEST(CpuFastGemm, EveryTransposition) {
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      const GemmProblem p{.m = 37, .n = 45, .k = 29, .trans_a = trans_a, .trans_b = trans_b};
      check<float, float>(p);
      GemmProblem h = p;
      h.a_type = h.b_type = DType::bf16;
      check<core::Bf16, float>(h);
      h.c_type = DType::bf16;
      check<core::Bf16, core::Bf16>(h);
    }
  }
}

TEST(CpuFastGemm, BiasAndAccumulation) {
  GemmProblem p{.m = 65, .n = 33, .k = 100, .trans_b = true, .bias = true};
  check<float, float>(p);
  p.a_type = p.b_type = p.c_type = DType::bf16;
  check<core::Bf16, core::Bf16>(p);
  GemmProblem q{.m = 65, .n = 33, .k = 100, .trans_a = true, .accumulate = true};
  check<float, float>(q);
  q.a_type = q.b_type = DType::bf16;
  check<core::Bf16, float>(q);
  check<float, float>({.m = 8, .n = 8, .k = 8, .alpha = 0.125F});
}

TEST(CpuFastGemm, LongInnerDimensionGoesInParts) {
  check<float, float>({.m = 5, .n = 17, .k = 9301});
  check<float, float>({.m = 5, .n = 17, .k = 9301, .trans_a = true, .trans_b = true, .accumulate = true});
  check<float, float>({.m = 5, .n = 17, .k = 9301, .trans_b = true, .bias = true});
  check<core::Bf16, float>({.m = 5, .n = 17, .k = 9301, .a_type = DType::bf16, .b_type = DType::bf16});
}

TEST(CpuFastGemm, BatchesWithStrides) {
  check<float, float>({.batch = 3, .m = 20, .n = 24, .k = 16, .trans_b = true});
  check<float, float>({.batch = 3,
                       .m = 20,
                       .n = 24,
                       .k = 16,
                       .lda = 48,
                       .ldb = 40,
                       .ldc = 30,
                       .batch_stride_a = 20 * 48,
                       .batch_stride_b = 16 * 40,
                       .batch_stride_c = 20 * 30});
  check<float, float>({.batch = 2, .m = 20, .n = 24, .k = 16, .accumulate = true});
  check<float, float>({.batch = 2, .m = 20, .n = 24, .k = 16, .bias = true});
}

TEST(CpuFastGemm, RefusesWhatCannotBe) {
  EXPECT_THROW(Gemm({.m = 0, .n = 1, .k = 1}), core::UsageError);
  EXPECT_THROW(Gemm({.m = 1, .n = 1, .k = 1, .a_type = DType::bf16}), core::UsageError);
  EXPECT_THROW(Gemm({.m = 1, .n = 1, .k = 1, .c_type = DType::bf16}), core::UsageError);
  EXPECT_THROW(Gemm({.m = 1, .n = 1, .k = 1, .a_type = DType::i32, .b_type = DType::i32}), core::UsageError);
  EXPECT_THROW(Gemm({.m = 1, .n = 4, .k = 1, .ldc = 3}), core::UsageError);
  EXPECT_THROW(Gemm({.m = 1, .n = 4, .k = 1, .bias = true, .accumulate = true}), core::UsageError);
}

}  // namespace
}  // namespace rooflm::backends::cpu
