// Gradient of flash attention in fp32 on CUDA cores. Queries: a block takes up to 128 queries of a head past
// the keys that they see. Keys and values: a block takes as many keys past the queries that see them, of all
// heads that share them, with scores transposed. What is needed next arrives while products are computed.
#include "backends/cuda/kernels/attention_fp32.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr const char* kWhat = "flash_attention_backward";

/// Block (head of batch, block of queries; the last ones, which have most work, first).
template <class T, class In, class Out>
__global__ void __launch_bounds__(kAttentionThreads, 2)
    attention_dq(AttentionShape s, float scale, bool aligned, In dy, In qkv, const float* lse,
                 const float* delta, Out dqkv) {
  extern __shared__ __align__(16) float shared[];
  float* queries = shared;
  float* gradients = queries + T::kOwnFloats;
  float* keys = gradients + T::kOwnFloats;
  float* values = keys + T::kTileFloats;
  const Fp32Place<T> at(s, s.heads, gridDim.y - 1 - blockIdx.y);
  const float* own_queries = queries + at.own * T::kStride;
  const float* own_gradients = gradients + at.own * T::kStride;
  float* own_scores = values + T::kTileFloats + at.own * T::kScoreStride;
  const std::int64_t kv = at.head / (s.heads / s.kv_heads);
  const std::int64_t dy_stride = s.heads * at.dim;
  const Packed packed(s, qkv, at.batch);
  copy_rows<T::kOwnRows, T>(queries, packed.query(at.head), packed.stride, at.first, s.seq, at.dim, aligned);
  copy_rows<T::kOwnRows, T>(gradients, dy + at.batch * s.seq * dy_stride + at.head * at.dim, dy_stride,
                            at.first, s.seq, at.dim, aligned);
  copy_rows<T::kTileRows, T>(values, packed.value(kv), packed.stride, 0, s.seq, at.dim, aligned);
  float own_lse2[T::kOwn];
  float own_delta[T::kOwn];
#pragma unroll
  for (int i = 0; i < T::kOwn; ++i) {
    const std::int64_t t = at.first + at.own + i * kLanesY;
    own_lse2[i] = t < s.seq ? lse[blockIdx.x * s.seq + t] * kLog2E : 0.0F;
    own_delta[i] = t < s.seq ? delta[blockIdx.x * s.seq + t] : 0.0F;
  }
  Fp32Sums<T> dq = {};
  const float scale2 = scale * kLog2E;
  const std::int64_t end = min(s.seq, at.first + T::kOwnRows);
  for (std::int64_t key = 0; key < end; key += T::kTileRows) {
    wait_for_copies();
    __syncthreads();  // these values are here, and nobody reads keys any more
    copy_rows<T::kTileRows, T>(keys, packed.key(kv), packed.stride, key, s.seq, at.dim, aligned);
    const bool sees = key < at.warp_first + T::kWarpRows;
    float ds[T::kOwn][T::kOther] = {};
    if (sees) add_dots<T>(ds, own_gradients, values + at.x * T::kStride, at.dim);
    wait_for_copies();
    __syncthreads();  // keys are here, and nobody reads values any more
    if (key + T::kTileRows < end) {
      copy_rows<T::kTileRows, T>(values, packed.value(kv), packed.stride, key + T::kTileRows, s.seq, at.dim,
                                 aligned);
    }
    if (!sees) continue;
    float scores[T::kOwn][T::kOther] = {};
    add_dots<T>(scores, own_queries, keys + at.x * T::kStride, at.dim);
    const auto ahead = static_cast<int>(key + at.x - at.first - at.own);
#pragma unroll
    for (int i = 0; i < T::kOwn; ++i) {
#pragma unroll
      for (int j = 0; j < T::kOther; ++j) {
        const float p = exp2_fast(fmaf(scores[i][j], scale2, -own_lse2[i]));
        ds[i][j] = ahead + j * kLanesX - i * kLanesY <= 0 ? p * (ds[i][j] - own_delta[i]) : 0.0F;
      }
    }
    store_scores<T>(own_scores, ds, at.x);
    __syncwarp();
    add_weighted<T>(dq, own_scores, keys, at.x, at.dim);
  }
  float factor[T::kOwn];
#pragma unroll
  for (int i = 0; i < T::kOwn; ++i) factor[i] = scale;
  const Packed out(s, dqkv, at.batch);
  write_sums<T>(dq, factor, out.query(at.head), out.stride, at, s.seq, aligned);
}

/// Block (key head of batch, block of keys; the first ones have most work).
template <class T, class In, class Out>
__global__ void __launch_bounds__(kAttentionThreads, 2)
    attention_dkv(AttentionShape s, float scale, bool aligned, In dy, In qkv, const float* lse,
                  const float* delta, Out dqkv) {
  extern __shared__ __align__(16) float shared[];
  float* keys = shared;
  float* values = keys + T::kOwnFloats;
  float* queries = values + T::kOwnFloats;
  float* gradients = queries + T::kTileFloats;
  float* scores = gradients + T::kTileFloats;
  float* tile_lse = scores + T::kScoreFloats;
  float* tile_delta = tile_lse + T::kTileRows;
  const Fp32Place<T> at(s, s.kv_heads, blockIdx.y);
  const float* own_keys = keys + at.own * T::kStride;
  const float* own_values = values + at.own * T::kStride;
  float* own_scores = scores + at.own * T::kScoreStride;
  const std::int64_t group = s.heads / s.kv_heads;
  const std::int64_t dy_stride = s.heads * at.dim;
  const Packed packed(s, qkv, at.batch);
  const std::int64_t begin = at.first / T::kTileRows * T::kTileRows;  // the first tile that sees a key
  const std::int64_t tiles = (s.seq - begin + T::kTileRows - 1) / T::kTileRows;  // of each head
  const auto head_of = [&](std::int64_t step) { return at.head * group + step / tiles; };
  const auto query_of = [&](std::int64_t step) { return begin + step % tiles * T::kTileRows; };
  const auto copy_gradients = [&](std::int64_t step) {
    copy_rows<T::kTileRows, T>(gradients, dy + at.batch * s.seq * dy_stride + head_of(step) * at.dim,
                               dy_stride, query_of(step), s.seq, at.dim, aligned);
  };
  const auto copy_queries = [&](std::int64_t step) {
    copy_rows<T::kTileRows, T>(queries, packed.query(head_of(step)), packed.stride, query_of(step), s.seq,
                               at.dim, aligned);
    const int row = static_cast<int>(threadIdx.x) % T::kTileRows;
    const int task = static_cast<int>(threadIdx.x) / T::kTileRows;
    const bool exists = query_of(step) + row < s.seq;
    const std::int64_t place =
        (at.batch * s.heads + head_of(step)) * s.seq + (exists ? query_of(step) + row : 0);
    if (task == 0) copy_4(tile_lse + row, lse + place, exists);
    if (task == 1) copy_4(tile_delta + row, delta + place, exists);
  };
  copy_rows<T::kOwnRows, T>(keys, packed.key(at.head), packed.stride, at.first, s.seq, at.dim, aligned);
  copy_rows<T::kOwnRows, T>(values, packed.value(at.head), packed.stride, at.first, s.seq, at.dim, aligned);
  copy_gradients(0);
  Fp32Sums<T> dk = {};
  Fp32Sums<T> dv = {};
  const float scale2 = scale * kLog2E;
  for (std::int64_t step = 0; step < group * tiles; ++step) {
    wait_for_copies();
    __syncthreads();  // these gradients are here, and nobody reads queries or scores any more
    copy_queries(step);
    const std::int64_t query = query_of(step);
    const bool is_seen = query + T::kTileRows > at.warp_first;
    float ds[T::kOwn][T::kOther] = {};
    if (is_seen) add_dots<T>(ds, own_values, gradients + at.x * T::kStride, at.dim);
    wait_for_copies();
    __syncthreads();  // queries are here
    if (is_seen) {
      float p[T::kOwn][T::kOther] = {};
      add_dots<T>(p, own_keys, queries + at.x * T::kStride, at.dim);
      const auto behind = static_cast<int>(query + at.x - at.first - at.own);  // a query after its key
#pragma unroll
      for (int j = 0; j < T::kOther; ++j) {
        const float lse2 = tile_lse[at.x + j * kLanesX] * kLog2E;
        const float own_delta = tile_delta[at.x + j * kLanesX];
#pragma unroll
        for (int i = 0; i < T::kOwn; ++i) {
          const bool sees = behind + j * kLanesX - i * kLanesY >= 0;
          p[i][j] = sees ? exp2_fast(fmaf(p[i][j], scale2, -lse2)) : 0.0F;
          ds[i][j] = p[i][j] * (ds[i][j] - own_delta);
        }
      }
      store_scores<T>(own_scores, p, at.x);
      __syncwarp();
      add_weighted<T>(dv, own_scores, gradients, at.x, at.dim);
    }
    __syncthreads();  // nobody reads gradients any more
    if (step + 1 < group * tiles) copy_gradients(step + 1);
    if (is_seen) {
      store_scores<T>(own_scores, ds, at.x);
      __syncwarp();
      add_weighted<T>(dk, own_scores, queries, at.x, at.dim);
    }
  }
  float factor[T::kOwn];
  float one[T::kOwn];
#pragma unroll
  for (int i = 0; i < T::kOwn; ++i) {
    factor[i] = scale;
    one[i] = 1.0F;
  }
  const Packed out(s, dqkv, at.batch);
  write_sums<T>(dk, factor, out.key(at.head), out.stride, at, s.seq, aligned);
  write_sums<T>(dv, one, out.value(at.head), out.stride, at, s.seq, aligned);
}

}  // namespace

void launch_attention_backward_fp32(Stream stream, core::DType dtype, const AttentionShape& s, const void* dy,
                                    const void* qkv, const float* lse, const float* delta, void* dqkv) {
  const bool aligned = are_rows_aligned(dtype, s, {dy, qkv, dqkv});
  const float scale = 1.0F / sqrtf(static_cast<float>(s.head_dim));
  with_pointers(dtype, kWhat, [&](auto in, auto out) {
    using In = decltype(in(qkv));
    using Out = decltype(out(dqkv));
    const auto launch = [&]<class T>(T) {
      const auto submit = [&](auto* kernel, std::int64_t heads) {
        allow_shared(kernel, T::kGradientBytes, kWhat);
        kernel<<<fp32_grid<T>(s, heads, kWhat), kAttentionThreads, T::kGradientBytes, stream>>>(
            s, scale, aligned, in(dy), in(qkv), lse, delta, out(dqkv));
        check_launch(kWhat);
      };
      submit(attention_dq<T, In, Out>, s.heads);
      submit(attention_dkv<T, In, Out>, s.kv_heads);
    };
    with_fp32_tiles<In>(
        s.head_dim, []<class T>(T) { return T::kGradientBytes; }, launch);
  });
}

}  // namespace rooflm::backends::cuda
