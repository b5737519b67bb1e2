// The softmax of attention over one tile of keys after the other, on sums as tensor cores leave them.
#pragma once

#include "backends/cuda/kernels/attention/attention_tiles.cuh"

namespace rooflm::backends::cuda {

/// The running softmax of a warp's rows: lane l has rows l / 4 and l / 4 + 8 of each 16.
template <int kM>
struct RunningSoftmax {
  float greatest[kM][2], sum[kM][2];

  __device__ RunningSoftmax() {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        greatest[m][half] = -INFINITY;
        sum[m][half] = 0;
      }
    }
  }

  /// scores := 2^(scale2 (scores - greatest)), and what was summed before is scaled to the new greatest.
  /// kHides: rows may see none of the keys so far.
  template <bool kHides, int kN, int kDimTiles>
  __device__ void take(Sums<kM, kN>& scores, float scale2, Sums<kM, kDimTiles>& y) {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = greatest[m][half];
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          most = fmaxf(most, fmaxf(scores.v[m][n][2 * half], scores.v[m][n][2 * half + 1]));
        }
        most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, 2));
        const float base = kHides && most == -INFINITY ? 0.0F : most;
        const float kept = exp2_fast((greatest[m][half] - base) * scale2);
        greatest[m][half] = most;
        const float offset = base * scale2;
        float total = 0;
#pragma unroll
        for (int n = 0; n < kN; ++n) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            scores.v[m][n][i] = exp2_fast(fmaf(scores.v[m][n][i], scale2, -offset));
            total += scores.v[m][n][i];
          }
        }
        sum[m][half] = sum[m][half] * kept + total;
#pragma unroll
        for (int n = 0; n < kDimTiles; ++n) {
          y.v[m][n][2 * half] *= kept;
          y.v[m][n][2 * half + 1] *= kept;
        }
      }
    }
  }
  /// The sums of all lanes of a row.
  __device__ void finish() {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        sum[m][half] += __shfl_xor_sync(0xffffffffU, sum[m][half], 1);
        sum[m][half] += __shfl_xor_sync(0xffffffffU, sum[m][half], 2);
      }
    }
  }
};

/// -inf for keys behind the query: rows from `row` on, columns from `key` on.
template <int kM, int kN>
__device__ void mask(Sums<kM, kN>& scores, std::int64_t row, std::int64_t key) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto ahead = static_cast<int>(key - row) + lane % 4 * 2 - lane / 4;  // of c[0] over the diagonal
  each_sum<kM, kN>([&](int m, int n, int i) {
    if (ahead + n * 8 + i % 2 - m * 16 - i / 2 * 8 > 0) scores.v[m][n][i] = -INFINITY;
  });
}

}  // namespace rooflm::backends::cuda
