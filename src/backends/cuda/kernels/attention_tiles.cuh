// What the tensor-core kernels of attention share: where heads lie, and how a warp's rows go out.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/attention.h"
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/mma.cuh"

namespace rooflm::backends::cuda {

constexpr int kAttentionWarps = 4;
constexpr int kAttentionThreads = 32 * kAttentionWarps;
constexpr float kLog2E = 1.4426950408889634F;
constexpr float kLn2 = 0.6931471805599453F;

/// 2^x; 0 for -inf.
__device__ inline float exp2_fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// Where the parts of one batch element begin, and the strides between positions. Pointer: to elements of
/// qkv.
template <class Pointer>
struct Packed {
  std::int64_t seq, stride, head_dim, heads, kv_heads;
  Pointer base;  // of the batch element

  __device__ Packed(const AttentionShape& s, Pointer qkv, std::int64_t batch)
      : seq(s.seq),
        stride((s.heads + 2 * s.kv_heads) * s.head_dim),
        head_dim(s.head_dim),
        heads(s.heads),
        kv_heads(s.kv_heads),
        base(qkv + batch * s.seq * stride) {}
  __device__ Pointer query(std::int64_t h) const { return base + h * head_dim; }
  __device__ Pointer key(std::int64_t kv) const { return base + (heads + kv) * head_dim; }
  __device__ Pointer value(std::int64_t kv) const { return base + (heads + kv_heads + kv) * head_dim; }
};

/// Writes a warp's sums, times scale[m][row half], as bf16 to rows [first, ..) of a matrix of `rows` rows of
/// `dim` elements, through the warp's own rows of a tile, which nobody else reads any more.
template <int kDim, int kM>
__device__ void write_rows(const Sums<kM, kDim / 8>& sums, const float (&scale)[kM][2], bf16* tile, bf16* to,
                           std::int64_t stride, std::int64_t first, std::int64_t rows, int dim) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  __syncwarp();
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        bf16* at = tile + (m * 16 + half * 8 + lane / 4) * kTileStride<kDim> + n * 8 + lane % 4 * 2;
        const float* pair = sums.v[m][n] + 2 * half;
        *reinterpret_cast<__nv_bfloat162*>(at) =
            __floats2bfloat162_rn(pair[0] * scale[m][half], pair[1] * scale[m][half]);
      }
    }
  }
  __syncwarp();
  constexpr int kChunks = kDim / 8;
#pragma unroll
  for (int i = 0; i < kM * 16 * kChunks; i += 32) {
    const int chunk = i + lane;
    const int row = chunk / kChunks;
    const int col = chunk % kChunks * 8;
    if (first + row < rows && col < dim) {
      *reinterpret_cast<uint4*>(to + (first + row) * stride + col) =
          *reinterpret_cast<const uint4*>(tile + row * kTileStride<kDim> + col);
    }
  }
}

/// Lets a kernel use that much shared memory per block.
template <class Kernel>
void allow_shared(Kernel* kernel, int bytes, const char* what) {
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string("shared memory of ") + what + ": " + cudaGetErrorString(error));
  }
}

/// Shared memory that a block of the current device may have, in bytes.
inline int most_shared_bytes() {
  int device = 0;
  int bytes = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string("asking for shared memory: ") + cudaGetErrorString(error));
  }
  return bytes;
}

/// Calls body with the tile width for a head size as a type: std::integral_constant.
template <class Body>
void with_tile_dim(std::int64_t head_dim, Body&& body) {
  if (head_dim <= 32) return body(std::integral_constant<int, 32>{});
  if (head_dim <= 64) return body(std::integral_constant<int, 64>{});
  if (head_dim <= 80) return body(std::integral_constant<int, 80>{});
  return body(std::integral_constant<int, 128>{});
}

// attention_forward.cu: bf16, head_dim a multiple of 8 up to 128, operands aligned to 16.
void launch_attention_forward_mma(Stream stream, const AttentionShape& shape, const bf16* qkv, bf16* y,
                                  float* lse);

}  // namespace rooflm::backends::cuda
