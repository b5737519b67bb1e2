// Attention in fp32 on CUDA cores: for fp32, and for what tensor cores do not take. A block has rows of one
// side (queries or keys), and streams tiles of the other side's rows past them. A warp has 4 kM of the
// block's rows: its lanes are a grid of 4 x 8, of which lane (x, y) has rows y + 4 i, and of a tile's rows x
// + 8 j, so that it computes kM x kN scores with kM + kN reads of four columns. attention_fp32_*.cu have the
// kernels.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/attention/attention.h"
#include "backends/cuda/kernels/attention/attention_block.h"
#include "backends/cuda/kernels/attention/attention_rules.cuh"
#include "backends/cuda/kernels/attention/attention_tiles.cuh"
#include "backends/cuda/kernels/half_pointer.cuh"
#include "backends/cuda/kernels/mma.cuh"

namespace rooflm::backends::cuda {

constexpr int kLanesY = 4;
constexpr int kLanesX = 8;

/// Heads of up to kDim columns; kM and kN: rows of a lane on its own side, and of a tile.
template <int kDim, int kM, int kN, int kBlockWarps = 4>
struct Fp32Tiles {
  static constexpr int kWidth = kDim, kOwn = kM, kOther = kN, kWarps = kBlockWarps;
  static constexpr int kThreads = 32 * kWarps;
  /// So that eight warps share a multiprocessor's registers.
  static constexpr int kLeastBlocks = 8 / kWarps;
  static constexpr int kWarpRows = kLanesY * kM;
  static constexpr int kOwnRows = kWarpRows * kWarps;
  static constexpr int kTileRows = kLanesX * kN;
  static constexpr int kStride = kTileStride<kDim, float>;
  static constexpr int kOwnFloats = kOwnRows * kStride;
  static constexpr int kTileFloats = kTileRows * kStride;
  static constexpr int kGroups = kDim / (4 * kLanesX);  ///< of four columns that a lane has of a result
  /// Scores between the two products: the lanes of a warp write and read them without bank conflicts.
  static constexpr int kScoreStride = kTileRows + 8;
  static constexpr int kScoreFloats = kOwnRows * kScoreStride;
  static constexpr int kForwardBytes = (kOwnFloats + 2 * kTileFloats + kScoreFloats) * 4;
  static constexpr int kGradientBytes = (2 * kOwnFloats + 2 * kTileFloats + kScoreFloats + 2 * kTileRows) * 4;
};

/// Of a lane's number x has the bits 0, 2 and 3, and y has 1 and 4: half a warp reads 16 bytes a lane at once
/// if neighbours or next neighbours read the same, as they do where y or x alone matters.
__device__ inline int lane_x() { return static_cast<int>((threadIdx.x & 1U) | (threadIdx.x >> 1U & 6U)); }
__device__ inline int lane_y() {
  return static_cast<int>((threadIdx.x >> 1U & 1U) | (threadIdx.x >> 3U & 2U));
}

/// Combines the numbers of the lanes of one y.
template <class Combine>
__device__ float combine_x(float value, Combine&& combine) {
  value = combine(value, __shfl_xor_sync(0xffffffffU, value, 1));
  value = combine(value, __shfl_xor_sync(0xffffffffU, value, 4));
  return combine(value, __shfl_xor_sync(0xffffffffU, value, 8));
}

/// Where queries and keys of all heads lie. Query head h of batch element b begins at queries + b query_batch
/// + h D, with query_stride between positions; keys alike, and values follow the last key head. `causal`:
/// query t sees keys 0..t, otherwise all.
template <class In>
struct Fp32Sides {
  In queries, keys;
  std::int64_t query_stride, query_batch, query_rows;
  std::int64_t key_stride, key_batch, key_rows;
  std::int64_t head_dim, kv_heads;
  bool causal;

  __device__ In query(std::int64_t b, std::int64_t h) const {
    return queries + (b * query_batch + h * head_dim);
  }
  __device__ In key(std::int64_t b, std::int64_t kv) const { return keys + (b * key_batch + kv * head_dim); }
  __device__ In value(std::int64_t b, std::int64_t kv) const { return key(b, kv_heads + kv); }
  /// Past the last key that a query before `end` sees.
  __device__ std::int64_t last_key(std::int64_t end) const { return causal ? min(key_rows, end) : key_rows; }
};

/// Where results of one side go: as the operands of Fp32Sides, or added to what is there (fp32).
template <class Out>
struct Fp32Rows {
  Out data;
  std::int64_t stride, batch, head_dim;
  bool add = false;
  __device__ Out of(std::int64_t b, std::int64_t h) const { return data + (b * batch + h * head_dim); }
};

/// Both sides in packed projections.
template <class In>
Fp32Sides<In> packed_sides(const AttentionShape& s, In qkv, In keys) {
  const std::int64_t stride = (s.heads + 2 * s.kv_heads) * s.head_dim;
  return {.queries = qkv,
          .keys = keys,
          .query_stride = stride,
          .query_batch = s.seq * stride,
          .query_rows = s.seq,
          .key_stride = stride,
          .key_batch = s.seq * stride,
          .key_rows = s.seq,
          .head_dim = s.head_dim,
          .kv_heads = s.kv_heads,
          .causal = true};
}

/// `data` and so many elements on.
template <class Byte>
Byte* ahead(Byte* data, core::DType dtype, std::int64_t elements) {
  using Bytes = std::conditional_t<std::is_const_v<Byte>, const std::byte, std::byte>;
  return static_cast<Bytes*>(data) + elements * static_cast<std::int64_t>(core::size_of(dtype));
}

/// Of a block: the queries from the first that sees keys on, and the keys that are seen. `in` makes pointers.
template <class In>
auto block_sides(const AttentionBlock& block, core::DType dtype, In&& in, const void* qkv,
                 const void* keys_values) {
  const AttentionShape& s = block.shape;
  const std::int64_t stride = (s.heads + 2 * s.kv_heads) * s.head_dim;
  auto sides = packed_sides(s, in(ahead(qkv, dtype, block.first_query * stride)), in(keys_values));
  sides.query_rows = s.seq - block.first_query;
  sides.key_stride = 2 * s.kv_heads * s.head_dim;
  sides.key_batch = s.seq * sides.key_stride;
  sides.key_rows = block.keys;
  sides.causal = block.causal;
  return sides;
}

/// The lane's place: head of the batch, and rows of the block, of the warp, and its own first.
template <class T>
struct Fp32Place {
  std::int64_t batch, head, first, warp_first;
  int dim, x, y, own;  ///< own: the lane's first row in the block

  __device__ Fp32Place(const AttentionShape& s, std::int64_t heads, std::int64_t block)
      : batch(blockIdx.x / heads),
        head(blockIdx.x - batch * heads),
        first(block * T::kOwnRows),
        dim(static_cast<int>(s.head_dim)),
        x(lane_x()),
        y(lane_y()) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    own = warp * T::kWarpRows + y;
    warp_first = first + warp * T::kWarpRows;
  }
};

/// As copy_tile; `aligned`: rows begin at multiples of 16 bytes and are as many long.
template <int kRows, class T>
__device__ void copy_rows(float* tile, const float* from, std::int64_t stride, std::int64_t first,
                          std::int64_t rows, int dim, bool aligned) {
  if (aligned) {
    constexpr int kChunks = T::kWidth / 4;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += T::kThreads) {
      const int row = i / kChunks;
      const int col = i % kChunks * 4;
      const bool exists = first + row < rows && col < dim;
      copy_16(tile + row * T::kStride + col, exists ? from + (first + row) * stride + col : from, exists);
    }
    return;
  }
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kRows * T::kWidth; i += T::kThreads) {
    const int row = i / T::kWidth;
    const int col = i % T::kWidth;
    const bool exists = first + row < rows && col < dim;
    copy_4(tile + row * T::kStride + col, exists ? from + (first + row) * stride + col : from, exists);
  }
}

/// The same of 16 bits, at once.
template <int kRows, class T>
__device__ void copy_rows(float* tile, HalfPointer<const unsigned short> from, std::int64_t stride,
                          std::int64_t first, std::int64_t rows, int dim, bool aligned) {
  constexpr int kChunks = T::kWidth / kPack;
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += T::kThreads) {
    const int row = i / kChunks;
    const int col = i % kChunks * kPack;
    const std::int64_t count = first + row < rows ? dim : 0;
    const std::int64_t at = count > 0 ? (first + row) * stride : 0;
    const Pack pack = from.is_bf16
                          ? load_pack(reinterpret_cast<const bf16*>(from.bits) + at, col, count, aligned)
                          : load_pack(reinterpret_cast<const fp16*>(from.bits) + at, col, count, aligned);
    store_whole(tile + row * T::kStride + col, pack);
  }
}

/// c[i][j] += row y + 4 i of `own` times row x + 8 j of `tile`; both begin at the lane's first row.
template <class T>
__device__ void add_dots(float (&c)[T::kOwn][T::kOther], const float* own, const float* tile, int dim) {
#pragma unroll 1
  for (int d = 0; d < dim; d += 4) {
    float4 right[T::kOther];
#pragma unroll
    for (int j = 0; j < T::kOther; ++j) {
      right[j] = *reinterpret_cast<const float4*>(tile + j * kLanesX * T::kStride + d);
    }
#pragma unroll
    for (int i = 0; i < T::kOwn; ++i) {
      const float4 left = *reinterpret_cast<const float4*>(own + i * kLanesY * T::kStride + d);
#pragma unroll
      for (int j = 0; j < T::kOther; ++j) {
        c[i][j] = fmaf(left.x, right[j].x, c[i][j]);
        c[i][j] = fmaf(left.y, right[j].y, c[i][j]);
        c[i][j] = fmaf(left.z, right[j].z, c[i][j]);
        c[i][j] = fmaf(left.w, right[j].w, c[i][j]);
      }
    }
  }
}

/// What a lane has of a result: for each of its rows columns 32 q + 4 x and the next three.
template <class T>
using Fp32Sums = float[T::kOwn][T::kGroups][4];

/// sums += scores (from the lane's first row on) times the rows of `tile`.
template <class T>
__device__ void add_weighted(Fp32Sums<T>& sums, const float* scores, const float* tile, int x, int dim) {
  const float* own = tile + 4 * x;
#pragma unroll 1
  for (int row = 0; row < T::kTileRows; row += 4) {
    float4 weights[T::kOwn];
#pragma unroll
    for (int i = 0; i < T::kOwn; ++i) {
      weights[i] = *reinterpret_cast<const float4*>(scores + i * kLanesY * T::kScoreStride + row);
    }
#pragma unroll
    for (int q = 0; q < T::kGroups; ++q) {
      if (T::kGroups > 1 && q * 32 >= dim) break;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float4 v = *reinterpret_cast<const float4*>(own + (row + k) * T::kStride + q * 32);
#pragma unroll
        for (int i = 0; i < T::kOwn; ++i) {
          const float weight = k == 0   ? weights[i].x
                               : k == 1 ? weights[i].y
                               : k == 2 ? weights[i].z
                                        : weights[i].w;
          sums[i][q][0] = fmaf(weight, v.x, sums[i][q][0]);
          sums[i][q][1] = fmaf(weight, v.y, sums[i][q][1]);
          sums[i][q][2] = fmaf(weight, v.z, sums[i][q][2]);
          sums[i][q][3] = fmaf(weight, v.w, sums[i][q][3]);
        }
      }
    }
  }
}

template <class T>
__device__ void store_scores(float* scores, const float (&values)[T::kOwn][T::kOther], int x) {
#pragma unroll
  for (int i = 0; i < T::kOwn; ++i) {
#pragma unroll
    for (int j = 0; j < T::kOther; ++j) {
      scores[i * kLanesY * T::kScoreStride + x + j * kLanesX] = values[i][j];
    }
  }
}

/// Four columns from `col` on of a row; `add`: to what is there.
__device__ inline void store_four(float* to, const float (&v)[4], float scale, int col, int dim, bool aligned,
                                  bool add) {
  if (add) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (col + c < dim) to[col + c] += v[c] * scale;
    }
    return;
  }
  if (aligned && col + 4 <= dim) {
    *reinterpret_cast<float4*>(to + col) =
        make_float4(v[0] * scale, v[1] * scale, v[2] * scale, v[3] * scale);
    return;
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    if (col + c < dim) to[col + c] = v[c] * scale;
  }
}
__device__ inline void store_four(HalfPointer<unsigned short> to, const float (&v)[4], float scale, int col,
                                  int dim, bool aligned, bool /*add*/) {
  if (aligned && col + 4 <= dim) {
    const auto pair = [&](int c) {
      const float a = v[c] * scale;
      const float b = v[c + 1] * scale;
      return to.is_bf16 ? pack_pair(a, b, static_cast<const bf16*>(nullptr))
                        : pack_pair(a, b, static_cast<const fp16*>(nullptr));
    };
    *reinterpret_cast<uint2*>(to.bits + col) = uint2{pair(0), pair(2)};
    return;
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    if (col + c < dim) store_element(to, col + c, v[c] * scale);
  }
}

/// Writes the lane's sums, times scale[i], to its rows of a matrix of `rows` rows.
template <class T, class Pointer>
__device__ void write_sums(const Fp32Sums<T>& sums, const float (&scale)[T::kOwn], Pointer to,
                           std::int64_t stride, const Fp32Place<T>& at, std::int64_t rows, bool aligned,
                           bool add = false) {
#pragma unroll
  for (int i = 0; i < T::kOwn; ++i) {
    const std::int64_t row = at.first + at.own + i * kLanesY;
    if (row >= rows) break;
#pragma unroll
    for (int q = 0; q < T::kGroups; ++q) {
      store_four(to + row * stride, sums[i][q], scale[i], q * 32 + 4 * at.x, at.dim, aligned, add);
    }
  }
}

/// Calls body(the tiles for a head size, as a type): those that make the most of a read, if a block's shared
/// memory has room for `bytes_of` them, else small ones. Pointer: to the inputs; of 16 bits come large heads
/// here. kFew: for kernels of rules there are fewer.
template <class Pointer, bool kFew, class BytesOf, class Body>
void with_fp32_tiles(std::int64_t head_dim, BytesOf&& bytes_of, Body&& body) {
  const int most = most_shared_bytes();
  const auto fits = [&]<class T>(T tiles) { return head_dim <= T::kWidth && bytes_of(tiles) <= most; };
  if constexpr (std::is_same_v<Pointer, const float*>) {
    if (fits(Fp32Tiles<64, 8, 4>{})) return body(Fp32Tiles<64, 8, 4>{});
    if (fits(Fp32Tiles<128, 4, 4>{})) return body(Fp32Tiles<128, 4, 4>{});
  }
  if constexpr (!kFew) {
    if (fits(Fp32Tiles<192, 2, 4>{})) return body(Fp32Tiles<192, 2, 4>{});
    if (fits(Fp32Tiles<256, 2, 4, 8>{})) return body(Fp32Tiles<256, 2, 4, 8>{});
  }
  if (fits(Fp32Tiles<256, 2, 4>{})) return body(Fp32Tiles<256, 2, 4>{});
  body(Fp32Tiles<256, 1, 2>{});
}

template <class T>
dim3 fp32_grid(const AttentionShape& s, std::int64_t heads, std::int64_t rows, const char* what) {
  return {grid_size(s.batch * heads, what), static_cast<unsigned>(ceil_div(rows, T::kOwnRows)), 1};
}

// attention_fp32_forward.cu, attention_fp32_backward.cu: as the launchers of attention.h, for every dtype and
// head size; delta [B, H, T] is rowsum(dy y).
void launch_attention_forward_fp32(Stream stream, core::DType dtype, const AttentionShape& s, const void* qkv,
                                   void* y, float* lse, const Sinks& sinks);
void launch_attention_backward_fp32(Stream stream, core::DType dtype, const AttentionShape& s, const void* dy,
                                    const void* qkv, const float* lse, const float* delta, void* dqkv);

/// attention.cu: delta.
void launch_row_products(Stream stream, core::DType dtype, const AttentionShape& s, const void* dy,
                         const void* y, float* delta);

/// The same of a block of ring attention (attention_block.h); dq and d_keys_values are fp32.
void launch_block_forward_fp32(Stream stream, core::DType dtype, const AttentionBlock& block, const void* qkv,
                               const void* keys_values, void* y, float* lse);
void launch_block_backward_fp32(Stream stream, core::DType dtype, const AttentionBlock& block, const void* dy,
                                const void* qkv, const void* keys_values, const float* lse,
                                const float* delta, float* dq, float* d_keys_values, bool accumulate);

/// Whether rows of heads may be read and written 16 bytes at a time, eight elements of 16 bits or four of 32.
inline bool are_rows_aligned(core::DType dtype, const AttentionShape& s,
                             std::initializer_list<const void*> operands) {
  return s.head_dim % (dtype == core::DType::f32 ? 4 : kPack) == 0 && are_aligned(operands);
}

}  // namespace rooflm::backends::cuda
