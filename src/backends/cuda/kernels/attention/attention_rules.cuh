// The rules of scores (ScoreRules): what a kernel knows of them for one query head, and how it applies them
// to sums as tensor cores leave them.
#pragma once

#include <climits>

#include "backends/cuda/kernels/attention/attention_tiles.cuh"
#include "backends/cuda/kernels/pack.cuh"

namespace rooflm::backends::cuda {

/// Of head h of n: 2^(-8 (h + 1) / n) where n is a power of two; else the slopes of the power of two below n,
/// then every second one of the power above (Press et al., 2022).
__device__ inline float alibi_slope(std::int64_t head, std::int64_t heads) {
  const int whole = 1 << (31 - __clz(static_cast<int>(heads)));
  const auto h = static_cast<int>(head);
  const int steps = h < whole ? 2 * (h + 1) : 2 * (h - whole) + 1;
  return exp2f(-4.0F * static_cast<float>(steps) / static_cast<float>(whole));
}

/// To a few 1e-7.
__device__ inline float tanh_of(float x) { return 1.0F - __fdividef(2.0F, __expf(2.0F * x) + 1.0F); }

/// A distance is that of a query from its key. kBends: there may be a cap or a bias; without that code
/// kernels whose registers are full are faster.
template <bool kBends = true>
struct HeadRules {
  float scale, cap = 0, inverse_cap = 0, slope = 0;  ///< scale: of products; 0: no cap, no bias
  int window = INT_MAX;

  __device__ HeadRules(const AttentionShape& s, float of_products, std::int64_t head) : scale(of_products) {
    if (s.rules.window > 0) window = static_cast<int>(min(s.rules.window, std::int64_t{INT_MAX}));
    if (s.rules.cap > 0) {
      cap = s.rules.cap;
      inverse_cap = 1.0F / cap;
    }
    if (s.rules.alibi) slope = alibi_slope(head, s.heads);
  }
  /// Whether scores are more than scaled products.
  [[nodiscard]] __device__ bool bend() const { return kBends && (cap > 0 || slope > 0); }
  [[nodiscard]] __device__ float score(float product, int distance) const {
    float score = product * scale;
    if (cap > 0) score = cap * tanh_of(score * inverse_cap);
    return score - slope * static_cast<float>(distance);
  }
  /// The derivative of a score by its scaled product.
  [[nodiscard]] __device__ float derivative(float score, int distance) const {
    const float share = (score + slope * static_cast<float>(distance)) * inverse_cap;
    return 1.0F - share * share;
  }
  /// What is left to scale of scores that were bent if they are.
  [[nodiscard]] __device__ float rest() const { return bend() ? 1.0F : scale; }
  [[nodiscard]] __device__ bool sees(int distance) const {
    return static_cast<unsigned>(distance) < static_cast<unsigned>(window);
  }
  /// The first key that a query sees.
  [[nodiscard]] __device__ std::int64_t first_key(std::int64_t query) const {
    return max(query - window + 1, std::int64_t{0});
  }
  /// Past the last query that sees a key.
  [[nodiscard]] __device__ std::int64_t end_query(std::int64_t key) const { return key + window; }
};

/// Of scores from `row` and `key` on: bends them, and -inf for keys that queries do not see. What is left is
/// to scale them by rules.rest().
template <bool kBends, int kM, int kN>
__device__ void apply_rules(const HeadRules<kBends>& rules, Sums<kM, kN>& scores, std::int64_t row,
                            std::int64_t key) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto first = static_cast<int>(row - key) + lane / 4 - lane % 4 * 2;  // distance of c[0]
  const auto for_each = [&](auto&& body) {
    each_sum<kM, kN>(
        [&](int m, int n, int i) { body(scores.v[m][n][i], first + m * 16 + i / 2 * 8 - n * 8 - i % 2); });
  };
  if (rules.bend()) for_each([&](float& score, int distance) { score = rules.score(score, distance); });
  if (key + kN * 8 <= row + 1 && row + 16 * kM - key <= rules.window) return;
  for_each([&](float& score, int distance) {
    if (!rules.sees(distance)) score = -INFINITY;
  });
}

__device__ inline float sink_of(const Sinks& sinks, std::int64_t head) {
  if (sinks.dtype == core::DType::f32) return static_cast<const float*>(sinks.data)[head];
  if (sinks.dtype == core::DType::bf16) return to_float(static_cast<const bf16*>(sinks.data)[head]);
  return to_float(static_cast<const fp16*>(sinks.data)[head]);
}

/// The end of a row's softmax.
struct RowEnd {
  float lse, weight;  ///< weight: of the sum of values

  /// `greatest`: of the scores. `sum`: of e^(score - greatest).
  template <bool kRules>
  __device__ static RowEnd of(float greatest, float sum, const Sinks& sinks, std::int64_t head) {
    if constexpr (kRules) {
      if (sinks.data != nullptr) {
        const float sink = sink_of(sinks, head);
        const float most = fmaxf(greatest, sink);
        const float kept = expf(greatest - most);
        const float total = sum * kept + expf(sink - most);
        return {most + logf(total), kept / total};
      }
    }
    return {greatest + logf(sum), 1.0F / sum};
  }
};

}  // namespace rooflm::backends::cuda
