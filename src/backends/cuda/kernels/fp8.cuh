// Shared by kernels that write fp8: scales, magnitudes, conversions, and the transposition of four rows in
// words.
#pragma once

#include <cuda_fp8.h>

#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/reduce.cuh"
#include "program/fp8.h"

namespace rooflm::backends::cuda {

constexpr int kWordRows = 4;  ///< rows whose bytes of one column form a word of the transpose
constexpr float kLargestE4M3 = 448;
constexpr float kLargestE5M2 = 57344;

/// program::fp8_scale_for
__device__ inline float scale_for(float amax, float largest) {
  const int exponent = ilogbf(largest) - ilogbf(amax);
  const bool is_beyond = ldexpf(amax, -ilogbf(amax)) > ldexpf(largest, -ilogbf(largest));
  const int most = program::kFp8MostExponent;
  return ldexpf(1.0F, max(-most, min(most, exponent - (is_beyond ? 1 : 0))));
}

__device__ inline void set_scale(float* slot, float scale) {
  slot[program::kFp8Scale] = scale;
  slot[program::kFp8Inverse] = 1 / scale;
}

/// The scale of a slot. A slot without one gets it from its amax. All blocks compute the same value, so the
/// order does not matter.
__device__ inline float scale_of(float* slot, float largest) {
  const float scale = slot[program::kFp8Scale];
  const float amax = slot[program::kFp8Amax];
  if (scale != 0 || !(amax > 0) || !isfinite(amax)) return scale;
  const float first = scale_for(amax, largest);
  if (blockIdx.x == 0 && threadIdx.x == 0) set_scale(slot, first);
  return first;
}

/// The largest magnitude, as the bits of a float. The bits of NaN compare above all others.
__device__ inline unsigned magnitude(unsigned largest, const Pack& pack) {
#pragma unroll
  for (int i = 0; i < kPack; ++i) largest = max(largest, __float_as_uint(pack[i]) & 0x7fffffffU);
  return largest;
}

/// slot.amax = max(slot.amax, the block's largest magnitude). Contains a barrier for the whole block.
__device__ inline void add_magnitude(unsigned largest, float* slot) {
  __shared__ unsigned of_warps[kMostWarps];
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    largest = max(largest, __shfl_xor_sync(kAllLanes, largest, step));
  }
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = largest;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (unsigned warp = 1; warp < blockDim.x / kWarp; ++warp) largest = max(largest, of_warps[warp]);
  auto* amax = reinterpret_cast<unsigned*>(slot + program::kFp8Amax);
  if (largest > __ldcg(amax)) atomicMax(amax, largest);  // thousands of blocks share the address
}

/// Eight elements times the scale, rounded to nearest even and saturated.
template <bool kIsE5M2>
__device__ uint2 to_fp8(const Pack& pack, float scale) {
  constexpr __nv_fp8_interpretation_t kKind = kIsE5M2 ? __NV_E5M2 : __NV_E4M3;
  unsigned pairs[kPack / 2];
#pragma unroll
  for (int i = 0; i < kPack / 2; ++i) {
    const float2 pair = make_float2(pack[2 * i] * scale, pack[2 * i + 1] * scale);
    pairs[i] = __nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, kKind);
  }
  return make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
}

/// The bytes of one column, from 4 rows that are words of 4 columns each.
__device__ inline unsigned column_of(const unsigned (&words)[kWordRows], int column) {
  const unsigned pick = static_cast<unsigned>(column) | (static_cast<unsigned>(column) + 4) << 4;
  const unsigned low = __byte_perm(words[0], words[1], pick);
  const unsigned high = __byte_perm(words[2], words[3], pick);
  return __byte_perm(low, high, 0x5410);
}

}  // namespace rooflm::backends::cuda
