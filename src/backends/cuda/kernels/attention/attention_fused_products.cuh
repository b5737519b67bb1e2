// The one-pass gradient of attention (attention_backward_fused.cu): of each tile what is no matmul, and where
// results go.
#pragma once

#include "backends/cuda/kernels/attention/attention_fused_walk.cuh"
#include "backends/cuda/kernels/wgmma_columns.cuh"

namespace rooflm::backends::cuda {

/// scores := p, transposed: rows are keys, columns queries. lse2: -lse log2(e) of the lane's queries.
/// kMasked: some queries are before their key; `behind`: the query of c[0] less its key. kWindowed: or they
/// are `window` or more behind it.
template <bool kMasked, bool kWindowed, int kN>
__device__ void exponentials(Sums<1, kN>& scores, const float* lse2, float scale2, int behind, int window) {
#pragma unroll
  for (int n = 0; n < kN; ++n) {
    const float2 own = *reinterpret_cast<const float2*>(lse2 + n * 8);
    const float offset[2] = {own.x, own.y};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int distance = behind + n * 8 + i % 2 - i / 2 * 8;
      const bool seen =
          !kMasked ||
          (kWindowed ? static_cast<unsigned>(distance) < static_cast<unsigned>(window) : distance >= 0);
      const float p = exp2_fast(fmaf(scores.v[0][n][i], scale2, offset[i % 2]));
      scores.v[0][n][i] = seen ? p : 0.0F;
    }
  }
}

/// dp := ds without the factor scale; delta of the lane's queries.
template <int kN>
__device__ void gradient_of_exponentials(const Sums<1, kN>& p, Sums<1, kN>& dp, const float* delta) {
#pragma unroll
  for (int n = 0; n < kN; ++n) {
    const float2 own = *reinterpret_cast<const float2*>(delta + n * 8);
#pragma unroll
    for (int i = 0; i < 4; ++i) dp.v[0][n][i] = p.v[0][n][i] * (dp.v[0][n][i] - (i % 2 == 0 ? own.x : own.y));
  }
}

/// A warp's sums times scale to 16 rows of dk or dv, as bf16, through `own`: its 16 rows of a panel.
template <class T>
__device__ void write_keys(const Sums<1, T::kDim / 8>& sums, float scale, unsigned char* own, bf16* to,
                           std::int64_t stride, int rows) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const unsigned put = shared_address(own) + lane % 16 * kPanelRowBytes;
#pragma unroll
  for (int panel = 0; panel < kPanels<T::kDim>; ++panel) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float* a = sums.v[0][panel * 8 + 2 * k];
      const float* b = sums.v[0][panel * 8 + 2 * k + 1];
      const unsigned words[4] = {
          pack_pair(a[0] * scale, a[1] * scale, to), pack_pair(a[2] * scale, a[3] * scale, to),
          pack_pair(b[0] * scale, b[1] * scale, to), pack_pair(b[2] * scale, b[3] * scale, to)};
      store_matrices(put + ((2 * k + lane / 16) ^ lane % 8) * 16, words);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = i * 4 + lane / 8;
      const int chunk = lane % 8;
      const uint4 words =
          *reinterpret_cast<const uint4*>(own + row * kPanelRowBytes + (chunk ^ row % 8) * 16);
      if (row < rows) *reinterpret_cast<uint4*>(to + row * stride + panel * kPanelCols + chunk * 8) = words;
    }
    __syncwarp();
  }
}

/// The same address, from which the compiler computes others anew rather than keep them in registers.
__device__ inline unsigned renew(unsigned address) {
  asm volatile("" : "+r"(address));
  return address;
}

/// ds of a warp's 16 keys to panels of 64 queries; `first`: where the lane's first matrix row goes. The
/// others differ in bits of the swizzle, as panels are aligned.
template <int kK>
__device__ void store_scores(unsigned first, const Factor<1, kK>& ds) {
  const unsigned to = renew(first);
#pragma unroll
  for (int k = 0; k < kK; ++k) {
    store_matrices((to ^ k % 4 * 32) + k / 4 * kPanelBytes<kFusedKeys>, ds.v[0][k]);
  }
}

/// The same value in all lanes, which the compiler then knows.
__device__ inline int uniform(int value) { return __shfl_sync(0xffffffffU, value, 0); }

__device__ inline void add_four(float* to, float4 value) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(value.x),
               "f"(value.y), "f"(value.z), "f"(value.w)
               : "memory");
}

/// A part of a tile of dq lies as threads hold it: float4 i of thread t of the group is number 128 i + t. It
/// has sums of rows 16 (t / 32) + t % 32 / 4 (x, y) and 8 behind (z, w), columns 8 i + 2 (t % 4) and the
/// next.
constexpr int kPartStride = 4 * kWarpGroup;  // floats

/// A thread's share of dq of one tile, 64 rows of 64 columns by warp group: where it goes.
template <class T>
class ShareOfDq {
 public:
  ShareOfDq() = default;  ///< nowhere
  __device__ ShareOfDq(const FusedGradient& g, const FusedWalk<T>& at, int group) : way_(Way::add) {
    const int thread = static_cast<int>(threadIdx.x) % kWarpGroup;
    sums_ = g.sums + (std::int64_t{at.place(g)} * kFusedParts + group) * kPartFloats + thread * 4;
  }
  __device__ void add(const Sums<1, 8>& dq) const {
    if (way_ == Way::none) return;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float* v = dq.v[0][i];
      add_four(sums_ + i * kPartStride, make_float4(v[0], v[1], v[2], v[3]));
    }
  }

 private:
  enum class Way { none, add };  // a null pointer would say it too, but costs instructions in each tile
  Way way_ = Way::none;
  float* sums_ = nullptr;
};

}  // namespace rooflm::backends::cuda
