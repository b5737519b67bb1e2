// From scores to their gradients, on sums as tensor cores leave them: rows are queries, or, transposed, keys.
#pragma once

#include "backends/cuda/kernels/attention/attention_backward.cuh"
#include "backends/cuda/kernels/attention/attention_rules.cuh"
#include "backends/cuda/kernels/mma.cuh"
#include "backends/cuda/kernels/pack.cuh"

namespace rooflm::backends::cuda {

/// What the softmax of a warp's rows was: lane l has rows l / 4 and l / 4 + 8 of each 16. Rows behind the end
/// get zeros, as their queries and gradients are.
template <int kM>
struct Rows {
  float lse2[kM][2], delta[kM][2];

  /// `gradient(own row, d)`: where eight elements of the warp's rows of dy are in shared memory. Writes
  /// delta.
  template <class E, class Gradient>
  __device__ void read(const AttentionGradient<E>& g, std::int64_t batch, std::int64_t head, std::int64_t row,
                       Gradient&& gradient) {
    const AttentionShape& s = g.shape;
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int own = m * 16 + half * 8 + lane / 4;
        const std::int64_t t = row + own;
        const bool exists = t < s.seq;
        const E* y = g.y + ((batch * s.seq + t) * s.heads + head) * s.head_dim;
        float sum = 0;
        for (int d = lane % 4 * kPack; exists && d < s.head_dim; d += 4 * kPack) {
          const Pack a = load_whole(gradient(own, d));
          const Pack b = load_whole(y + d);
#pragma unroll
          for (int i = 0; i < kPack; ++i) sum += a[i] * b[i];
        }
        sum += __shfl_xor_sync(0xffffffffU, sum, 1);
        sum += __shfl_xor_sync(0xffffffffU, sum, 2);
        delta[m][half] = sum;
        const std::int64_t at = (batch * s.heads + head) * s.seq + t;
        lse2[m][half] = exists ? g.lse[at] * kLog2E : 0.0F;
        if (exists && lane % 4 == 0) g.delta[at] = sum;
      }
    }
  }
};

/// scores := p of rows from `row` on and keys from `key` on. kMasked: some keys are behind their query.
template <bool kMasked, int kM, int kN>
__device__ void probabilities_of(Sums<kM, kN>& scores, const Rows<kM>& rows, float scale2, std::int64_t row,
                                 std::int64_t key) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto ahead = static_cast<int>(key - row) + lane % 4 * 2 - lane / 4;  // of c[0] over the diagonal
  each_sum<kM, kN>([&](int m, int n, int i) {
    const bool seen = !kMasked || ahead + n * 8 + i % 2 - m * 16 - i / 2 * 8 <= 0;
    const float p = exp2_fast(fmaf(scores.v[m][n][i], scale2, -rows.lse2[m][i / 2]));
    scores.v[m][n][i] = seen ? p : 0.0F;
  });
}

template <int kM, int kN>
__device__ void probabilities(Sums<kM, kN>& scores, const Rows<kM>& rows, float scale2, std::int64_t row,
                              std::int64_t key) {
  if (key + kN * 8 <= row + 1) {
    probabilities_of<false>(scores, rows, scale2, row, key);
  } else {
    probabilities_of<true>(scores, rows, scale2, row, key);
  }
}

/// The same by rules: scores := p times the derivative of the score.
template <int kM, int kN>
__device__ void probabilities(const HeadRules<>& rules, Sums<kM, kN>& scores, const Rows<kM>& rows,
                              std::int64_t row, std::int64_t key) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto first = static_cast<int>(row - key) + lane / 4 - lane % 4 * 2;  // distance of c[0]
  const float scale2 = rules.scale * kLog2E;
  const auto for_each = [&](auto&& p_of) {
    each_sum<kM, kN>([&](int m, int n, int i) {
      const int distance = first + m * 16 + i / 2 * 8 - n * 8 - i % 2;
      const float p = p_of(scores.v[m][n][i], distance, rows.lse2[m][i / 2]);
      scores.v[m][n][i] = rules.sees(distance) ? p : 0.0F;
    });
  };
  if (!rules.bend())
    return for_each([&](float product, int, float lse2) { return exp2_fast(fmaf(product, scale2, -lse2)); });
  for_each([&](float product, int distance, float lse2) {
    const float score = rules.score(product, distance);
    return exp2_fast(fmaf(score, kLog2E, -lse2)) * rules.derivative(score, distance);
  });
}

/// dp := ds without the factor scale.
template <int kM, int kN>
__device__ void gradient_of_scores(const Sums<kM, kN>& p, Sums<kM, kN>& dp, const Rows<kM>& rows) {
  each_sum<kM, kN>(
      [&](int m, int n, int i) { dp.v[m][n][i] = p.v[m][n][i] * (dp.v[m][n][i] - rows.delta[m][i / 2]); });
}

/// f(m, n, i, value of the query times the factor) for each sum of a thread whose columns are the queries at
/// `values`.
template <int kM, int kN, class F>
__device__ void each_transposed_sum(const float* values, float factor, F&& f) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < kN; ++n) {
    const float2 read = *reinterpret_cast<const float2*>(values + n * 8 + lane % 4 * 2);
    const float own[2] = {read.x * factor, read.y * factor};
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) f(m, n, i, own[i % 2]);
    }
  }
}

/// scores := p; rows are keys from `key` on, columns queries from `query` on, whose lse lies at the pointer.
/// kMasked: some queries are before their key.
template <bool kMasked, int kM, int kN>
__device__ void transposed_probabilities_of(Sums<kM, kN>& scores, const float* lse, float scale2,
                                            std::int64_t key, std::int64_t query) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto first = static_cast<int>(query - key) + lane % 4 * 2 - lane / 4;  // distance of c[0]
  each_transposed_sum<kM, kN>(lse, kLog2E, [&](int m, int n, int i, float own) {
    const bool seen = !kMasked || first + n * 8 + i % 2 - m * 16 - i / 2 * 8 >= 0;
    const float p = exp2_fast(fmaf(scores.v[m][n][i], scale2, -own));
    scores.v[m][n][i] = seen ? p : 0.0F;
  });
}

template <int kM, int kN>
__device__ void transposed_probabilities(Sums<kM, kN>& scores, const float* lse, float scale2,
                                         std::int64_t key, std::int64_t query) {
  if (query + 1 >= key + kM * 16) {
    transposed_probabilities_of<false>(scores, lse, scale2, key, query);
  } else {
    transposed_probabilities_of<true>(scores, lse, scale2, key, query);
  }
}

/// The same by rules.
template <int kM, int kN>
__device__ void transposed_probabilities(const HeadRules<>& rules, Sums<kM, kN>& scores, const float* lse,
                                         std::int64_t key, std::int64_t query) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto first = static_cast<int>(query - key) + lane % 4 * 2 - lane / 4;  // distance of c[0]
  const float scale2 = rules.scale * kLog2E;
  const auto for_each = [&](auto&& p_of) {
    each_transposed_sum<kM, kN>(lse, kLog2E, [&](int m, int n, int i, float own) {
      const int distance = first + n * 8 + i % 2 - m * 16 - i / 2 * 8;
      const float p = p_of(scores.v[m][n][i], distance, own);
      scores.v[m][n][i] = rules.sees(distance) ? p : 0.0F;
    });
  };
  if (!rules.bend())
    return for_each([&](float product, int, float lse2) { return exp2_fast(fmaf(product, scale2, -lse2)); });
  for_each([&](float product, int distance, float lse2) {
    return exp2_fast(fmaf(rules.score(product, distance), kLog2E, -lse2));
  });
}

/// dp := ds without the factor scale; delta of the queries lies at the pointer.
template <int kM, int kN>
__device__ void gradient_of_transposed_scores(const Sums<kM, kN>& p, Sums<kM, kN>& dp, const float* delta) {
  each_transposed_sum<kM, kN>(delta, 1, [&](int m, int n, int i, float own) {
    dp.v[m][n][i] = p.v[m][n][i] * (dp.v[m][n][i] - own);
  });
}

/// Behind gradient_of_transposed_scores: dp times the derivative of the score, which p tells; registers do
/// not hold both.
template <int kM, int kN>
__device__ void derive_transposed(const HeadRules<>& rules, const Sums<kM, kN>& p, Sums<kM, kN>& dp,
                                  const float* lse, std::int64_t key, std::int64_t query) {
  if (!(rules.cap > 0)) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto first = static_cast<int>(query - key) + lane % 4 * 2 - lane / 4;  // distance of c[0]
  each_transposed_sum<kM, kN>(lse, 1, [&](int m, int n, int i, float own) {
    const float kept = p.v[m][n][i];
    const int distance = first + n * 8 + i % 2 - m * 16 - i / 2 * 8;
    const float factor = rules.derivative(__logf(kept) + own, distance);
    dp.v[m][n][i] = kept > 0 ? dp.v[m][n][i] * factor : 0.0F;
  });
}

}  // namespace rooflm::backends::cuda
