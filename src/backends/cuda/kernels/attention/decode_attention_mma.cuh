// Decode attention on tensor cores, for 16-bit elements and heads of at most 128: the query heads of a
// key/value head are the rows of the left factor, so a key that arrived in registers serves all of them. A
// lane's 16 bytes are its elements of the instruction's right factor: a dot product may take its terms in any
// order, and so may the columns of a result.
#pragma once

#include "backends/cuda/kernels/attention/decode_attention.cuh"
#include "backends/cuda/kernels/mma.cuh"
#include "backends/cuda/kernels/reduce.cuh"

namespace rooflm::backends::cuda {

/// Heads of at most kDim elements, a multiple of eight, 16 bytes aligned. Warps take 16 keys in turn.
template <class T, int kDim>
struct TensorCoreAttention {
  using Element = T;
  static constexpr int kHeads = 8;  // rows of the left factor; the other eight are zeros
  static constexpr int kKeys = 16;  // of a warp's step
  static constexpr int kWarps = kDecodeThreads / 32;
  static constexpr int kKeyLoads = kDim / 32;    // 16 bytes of a key per lane: four lanes share it
  static constexpr int kValueLoads = kDim / 64;  // of a value: eight lanes share it
  using Results = PartResults<kHeads, kWarps, kWarps * kDim>;

  __device__ static int parts(const Decode& /*d*/) { return kWarps; }
  __device__ static int part_elements(const Decode& /*d*/) { return kDim; }

  template <bool kRules, bool kPaged>
  __device__ static void attend(const Decode& d, const BlockWork& work, const DecodeRules& rules,
                                const CacheRows<kPaged>& rows, std::int64_t begin, std::int64_t end,
                                const T* queries, const T* k, const T* v, Results& results) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int own = lane / 4;     // head of the left factor, key or column of a right one
    const int member = lane % 4;  // of the four lanes that share it
    const T* type = nullptr;
    const float slope = DecodeRules::slope(d, work.first_head + own);

    uint4 q[kKeyLoads];
#pragma unroll
    for (int i = 0; i < kKeyLoads; ++i) {
      const int column = i * 32 + member * kPack;
      q[i] = own < work.heads ? load_16(queries + own * d.dim, column, d.dim) : uint4{};
    }
    float top = kNothing;
    float sum = 0;
    float output[kValueLoads][kPack][4] = {};
    for (std::int64_t at = begin + warp * kKeys; at < end; at += kWarps * kKeys) {
      uint4 keys[2][kKeyLoads], values[4][kValueLoads];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const T* key = k + rows.at(min(at + n * 8 + own, end - 1));
#pragma unroll
        for (int i = 0; i < kKeyLoads; ++i) keys[n][i] = load_16(key, i * 32 + member * kPack, d.dim);
      }
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const T* value = v + rows.at(min(at + key_of(member, r), end - 1));
#pragma unroll
        for (int i = 0; i < kValueLoads; ++i) values[r][i] = load_16(value, i * 64 + own * kPack, d.dim);
      }

      float scores[2][4] = {};
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int i = 0; i < kKeyLoads; ++i) {
          multiply(scores[n], {q[i].x, 0U, q[i].y, 0U}, keys[n][i].x, keys[n][i].y, type);
          multiply(scores[n], {q[i].z, 0U, q[i].w, 0U}, keys[n][i].z, keys[n][i].w, type);
        }
      }
      float most = top;
      float p[4];  // of keys key_of(member, 0 .. 3)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const std::int64_t key = at + key_of(member, r);
        p[r] = scores[r / 2][r % 2] * d.scale;
        if constexpr (kRules) p[r] = rules.score(p[r], key, slope);
        if (key >= end) p[r] = kNothing;
        most = fmaxf(most, p[r]);
      }
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
      const float rescale = weight_of(top, most);
      top = most;
      sum *= rescale;
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        p[r] = at + key_of(member, r) < end ? weight_of(p[r], top) : 0.0F;
        sum += p[r];
      }
      const unsigned weights[4] = {pack_pair(p[0], p[1], type), 0U, pack_pair(p[2], p[3], type), 0U};
#pragma unroll
      for (int i = 0; i < kValueLoads; ++i) {
#pragma unroll
        for (int j = 0; j < kPack; ++j) {
          output[i][j][0] *= rescale;
          output[i][j][1] *= rescale;
          multiply(output[i][j], weights, pair_of(values[0][i], values[1][i], j),
                   pair_of(values[2][i], values[3][i], j), type);
        }
      }
    }
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    if (own >= work.heads) return;
    if (member == 0) {
      results.tops[own][warp] = top;
      results.sums[own][warp] = sum;
    }
#pragma unroll
    for (int i = 0; i < kValueLoads; ++i) {
#pragma unroll
      for (int column = 0; column < 2; ++column) {
        float* to = results.outputs[own] + warp * kDim + i * 64 + (member * 2 + column) * kPack;
#pragma unroll
        for (int j = 0; j < kPack; ++j) to[j] = output[i][j][column];
      }
    }
  }

 private:
  /// The keys of a lane's elements of the left factor, of 16: two, and two eight further.
  __device__ static int key_of(int member, int r) { return r / 2 * 8 + member * 2 + r % 2; }
  __device__ static uint4 load_16(const T* from, int column, int dim) {
    return column < dim ? *reinterpret_cast<const uint4*>(from + column) : uint4{};
  }
  /// Element j of two rows, the first in the lower half.
  __device__ static unsigned pair_of(const uint4& first, const uint4& second, int j) {
    const unsigned a[4] = {first.x, first.y, first.z, first.w};
    const unsigned b[4] = {second.x, second.y, second.z, second.w};
    return __byte_perm(a[j / 2], b[j / 2], j % 2 == 0 ? 0x5410 : 0x7632);
  }
};

}  // namespace rooflm::backends::cuda
