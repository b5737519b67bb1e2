// GEMMs of a few rows, as decoding has them: one pass over the weights, at the rate of memory.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>

#include "backends/cpu/fast/gemm.h"
#include "backends/cpu/fast/parallel.h"
#include "backends/cpu/fast/vec.h"

namespace rooflm::backends::cpu {
namespace {

/// c [m, n] = a [m, k] · b [n, k]ᵀ (+ bias), all dense, of operands of type S, with few rows in a. oneDNN
/// copies b into another layout at each call; here each row of b is read once and multiplied with all rows of
/// a. Each element of c is one sum in fp32, whose order depends only on k and the width of vectors.
template <class S>
requires std::same_as<S, float> || Half<S>
class FewRowsGemm {
 public:
  /// With more rows arithmetic takes longer than memory, and oneDNN is as fast.
  static constexpr std::int64_t kMostRows = 8;

  /// Whether FewRowsGemm computes the problem, whose operands are of type S.
  static bool takes(const GemmProblem& p) {
    return p.batch == 1 && p.m <= kMostRows && !p.trans_a && p.trans_b && !p.accumulate && p.alpha == 1;
  }
  explicit FewRowsGemm(const GemmProblem& problem) : problem_(problem) {}

  [[nodiscard]] const GemmProblem& problem() const { return problem_; }
  [[nodiscard]] std::size_t scratch_bytes() const { return 0; }
  [[nodiscard]] std::string implementation() const {
    return "few_rows_gemm<" + std::string(core::name_of(problem_.a_type)) + ">";
  }
  /// Loops over all of b per call.
  [[nodiscard]] std::size_t primitives() const { return 1; }

  /// As Gemm::operator().
  void operator()(const void* a, const void* b, void* c, const void* bias, void* /*scratch*/) const {
    // Threads write whole lines of c.
    constexpr std::int64_t kGrain = 32;
    const Call call{.a = static_cast<const S*>(a), .b = static_cast<const S*>(b), .c = c, .bias = bias};
    parallel_for(problem_.n, kGrain,
                 [&](std::int64_t begin, std::int64_t end) { multiply(call, begin, end); });
  }

 private:
  struct Call {
    const S* a;
    const S* b;
    void* c;
    const void* bias;
  };
  /// Of a block of c: as many sums as registers hold beside its factors.
  static constexpr int kRows = 4;
  static constexpr int kColumns = kLanes == 16 ? 4 : 2;
  /// What is fetched ahead of what is read: 64 KiB.
  static constexpr std::int64_t kAhead = (std::int64_t{1} << 16U) / static_cast<std::int64_t>(sizeof(S));

  [[gnu::noipa]] void multiply(const Call& call, std::int64_t begin, std::int64_t end) const {
    std::int64_t column = begin;
    for (; column + kColumns <= end; column += kColumns) multiply_columns<kColumns>(call, column);
    for (; column < end; ++column) multiply_columns<1>(call, column);
  }

  /// All rows of a pass while the rows of b are in the L1 cache.
  template <int kWide>
  ROOFLM_INLINE void multiply_columns(const Call& call, std::int64_t column) const {
    std::int64_t row = 0;
    for (; row + kRows <= problem_.m; row += kRows) multiply_block<kRows, kWide>(call, row, column);
    switch (problem_.m - row) {
      case 3:
        return multiply_block<3, kWide>(call, row, column);
      case 2:
        return multiply_block<2, kWide>(call, row, column);
      case 1:
        return multiply_block<1, kWide>(call, row, column);
      default:
        return;
    }
  }

  template <int kHigh, int kWide>
  ROOFLM_INLINE void multiply_block(const Call& call, std::int64_t row, std::int64_t column) const {
    const std::int64_t k = problem_.k;
    const S* a = call.a + row * k;
    const S* b = call.b + column * k;
    Floats sums[kHigh][kWide] = {};
    for_lanes(0, k, [&](auto i, auto count) ROOFLM_INLINE_LAMBDA {
      if (row == 0) fetch(b + kWide * i + kAhead, kWide * kLanes);
      Floats left[kHigh];
      for (int r = 0; r < kHigh; ++r) left[r] = held(load_at(a + r * k + i, count));
      for (int q = 0; q < kWide; ++q) {
        const Floats right = held(load_at(b + q * k + i, count));
        for (int r = 0; r < kHigh; ++r) sums[r][q] = fma(left[r], right, sums[r][q]);
      }
    });
    for (int r = 0; r < kHigh; ++r) {
      for (int q = 0; q < kWide; ++q)
        put(call, row + r, column + q, sum_lanes(sums[r][q]) + bias_at(call, column + q));
    }
  }

  /// Into the L2 cache, line after line as b lies in memory: its rows are read side by side, and so many
  /// short streams are too much for the processor's own prefetchers.
  ROOFLM_INLINE static void fetch(const S* from, std::int64_t elements) {
    constexpr std::int64_t kLine = 64 / sizeof(S);
    for (std::int64_t i = 0; i < elements; i += kLine) __builtin_prefetch(from + i, 0, 2);
  }
  [[nodiscard]] float bias_at(const Call& call, std::int64_t column) const {
    if (!problem_.bias) return 0;
    if (problem_.bias_type == core::DType::f32) return static_cast<const float*>(call.bias)[column];
    return static_cast<float>(static_cast<const S*>(call.bias)[column]);
  }
  void put(const Call& call, std::int64_t row, std::int64_t column, float value) const {
    const std::int64_t at = row * problem_.n + column;
    if (problem_.c_type == core::DType::f32) {
      static_cast<float*>(call.c)[at] = value;
    } else {
      static_cast<S*>(call.c)[at] = S(value);
    }
  }

  GemmProblem problem_;
};

}  // namespace
}  // namespace rooflm::backends::cpu
