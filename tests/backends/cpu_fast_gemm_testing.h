// What the tests of prepared GEMMs share: comparison with loops in double.
#pragma once

#include <cmath>
#include <cstdlib>
#include <memory>

#include "backends/cpu/fast/gemm.h"
#include "cpu_fast_testing.h"

namespace rooflm::backends::cpu {

struct Free {
  void operator()(void* p) const { std::free(p); }
};

inline std::unique_ptr<void, Free> scratch_for(const auto& gemm) {
  return std::unique_ptr<void, Free>(std::aligned_alloc(64, (gemm.scratch_bytes() + 64) / 64 * 64));
}

// a, b of type S, c of type R; strides as in the problem, which must have none left at zero.
template <class S, class R>
void check_gemm(const GemmProblem& p, const auto& gemm) {
  const auto a = random_array<S>(p.batch * p.batch_stride_a, 1);
  const auto b = random_array<S>(p.batch * p.batch_stride_b, 2);
  const bool narrow_bias = p.bias_type != core::DType::f32;
  auto bias = random_array<float>(p.n, 3);
  const auto bias_of_s = random_array<S>(p.n, 3);
  if (narrow_bias) bias = to_float(bias_of_s);
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
  const auto scratch = scratch_for(gemm);
  const void* added = narrow_bias ? static_cast<const void*>(bias_of_s.data()) : bias.data();
  gemm(a.data(), b.data(), c.data(), p.bias ? added : nullptr, scratch.get());
  // fp32 sums of k products of normal numbers.
  expect_near(c, expected, 2 * kRounding<R>, 4e-6 * std::sqrt(static_cast<double>(p.k)) + 1e-6, "c");
}

}  // namespace rooflm::backends::cpu
