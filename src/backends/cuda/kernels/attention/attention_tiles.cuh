// What the tensor-core kernels of attention share: where heads lie, and how a warp's rows go out.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backends/cuda/kernels/attention/attention.h"
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

/// Writes a warp's sums, times scale[m][row half], as 16 bits to rows [first, ..) of a matrix of `rows` rows
/// of `dim` elements, through the warp's own rows of a tile, which nobody else reads any more.
template <int kDim, int kM, class E>
requires(!is_wide<E>) __device__
    void write_rows(const Sums<kM, kDim / 8>& sums, const float (&scale)[kM][2], E* tile, E* to,
                    std::int64_t stride, std::int64_t first, std::int64_t rows, int dim) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  __syncwarp();
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        E* at = tile + (m * 16 + half * 8 + lane / 4) * kTileStride<kDim> + n * 8 + lane % 4 * 2;
        const float* pair = sums.v[m][n] + 2 * half;
        *reinterpret_cast<unsigned*>(at) = pack_pair(pair[0] * scale[m][half], pair[1] * scale[m][half], to);
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

/// The same with fp32 results, whose columns lie as add_product leaves them; the tile is left alone.
template <int kDim, int kM, class E>
requires is_wide<E> __device__ void write_rows(const Sums<kM, kDim / 8>& sums, const float (&scale)[kM][2],
                                               E* /*tile*/, E* to, std::int64_t stride, std::int64_t first,
                                               std::int64_t rows, int dim) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = first + m * 16 + half * 8 + lane / 4;
      const float factor = scale[m][half];
#pragma unroll
      for (int n = 0; n < kDim / 8; n += 4) {
        const int col = n * 8 + lane % 4 * 8;
        if (row >= rows || col >= dim) continue;  // dim is a multiple of 8
        E* at = to + row * stride + col;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int own = 2 * half + i;
          reinterpret_cast<float4*>(at)[i] =
              make_float4(sums.v[m][n][own] * factor, sums.v[m][n + 1][own] * factor,
                          sums.v[m][n + 2][own] * factor, sums.v[m][n + 3][own] * factor);
        }
      }
    }
  }
}

/// Whether there is one kernel for a tile width, not one for many and one for few rows; and fewer widths.
template <class E>
constexpr bool has_few_kernels = !std::is_same_v<E, bf16>;

/// Heads that are not faster on CUDA cores: narrower ones are padded to 64 columns, and of wider ones
/// registers do not hold the sums and both parts of the factors.
constexpr bool is_split_head_dim(std::int64_t head_dim) { return head_dim > 32 && head_dim <= 128; }

/// Calls body with the tile width for a head size as a type: std::integral_constant. Tiles of words are
/// multiples of 32 wide.
template <class E, class Body>
void with_tile_dim(std::int64_t head_dim, Body&& body) {
  if constexpr (!is_wide<E>) {
    if (head_dim <= 32) return body(std::integral_constant<int, 32>{});
  }
  if (head_dim <= 64) return body(std::integral_constant<int, 64>{});
  if (head_dim <= (is_wide<E> ? 96 : 80))
    return body(std::integral_constant < int, is_wide<E> ? 96 : 80 > {});
  if (head_dim <= 128 || is_split<E>) return body(std::integral_constant<int, 128>{});
  if constexpr (!is_split<E>) {
    if (head_dim <= 192) return body(std::integral_constant<int, 192>{});
    return body(std::integral_constant<int, 256>{});
  }
}

/// Tiles of this width and more: registers hold the sums of one matrix of gradients only.
constexpr int kWideTile = 192;

/// What products of queries and keys are multiplied by.
inline float scale_of(const AttentionShape& s) {
  return s.rules.scale > 0 ? s.rules.scale : 1.0F / sqrtf(static_cast<float>(s.head_dim));
}

/// Most rows of a warp, in tiles of 16: what registers hold.
template <int kDim, class E>
constexpr int kMostTiles = kDim >= kWideTile || (has_few_kernels<E> && kDim > 64) || is_split<E> ? 1 : 2;

/// Kernels for rules of scores: of 16 bits, one for a tile width. Other elements go to CUDA cores.
template <class E>
constexpr bool has_kernels_of_rules = !is_wide<E>;
template <int kDim>
constexpr int kTilesOfRules = kMostTiles<kDim, fp16>;

/// Shared memory of a block, in bytes, that is enough for every kernel of these elements and tile width; 0
/// where it is no more than all devices have. Wide tiles: two of 64 rows, and four of rows that arrive, with
/// two numbers each.
template <int kDim, class E>
constexpr int kSharedBytes =
    kDim >= kWideTile ? 2 * kTileBytes<64, kDim, E> + 4 * kTileBytes<is_wide<E> ? 16 : 32, kDim, E> + 512
    : is_wide<E>      ? 104448
                      : 0;

// attention_forward.cu: bf16, fp16, float computed with in tf32, or SplitFloat; head_dim a multiple of 8 up
// to kMaxHeadDim, of SplitFloat one that is_split_head_dim; operands aligned to 16.
template <class E>
void launch_attention_forward_mma(Stream stream, const AttentionShape& shape, const E* qkv, E* y, float* lse,
                                  const Sinks& sinks);

}  // namespace rooflm::backends::cuda
