// Gradient of flash attention in fp32 on CUDA cores. Queries: a block takes up to 128 queries of a head past
// the keys that they see. Keys and values: a block takes as many keys past the queries that see them, of all
// heads that share them, with scores transposed. What is needed next arrives while products are computed.
#include "backends/cuda/kernels/attention/attention_fp32.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr const char* kWhat = "flash_attention_backward";

/// Block (head of batch, block of queries; the last ones, which have most work, first).
template <class T, class In, class Out, bool kRules>
__global__ void __launch_bounds__(T::kThreads, T::kLeastBlocks)
    attention_dq(AttentionShape s, Fp32Sides<In> sides, float scale, bool aligned, In dy, const float* lse,
                 const float* delta, Fp32Rows<Out> out) {
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
  const In all_keys = sides.key(at.batch, kv);
  const In all_values = sides.value(at.batch, kv);
  copy_rows<T::kOwnRows, T>(queries, sides.query(at.batch, at.head), sides.query_stride, at.first,
                            sides.query_rows, at.dim, aligned);
  copy_rows<T::kOwnRows, T>(gradients, dy + (at.batch * s.seq * dy_stride + at.head * at.dim), dy_stride,
                            at.first, sides.query_rows, at.dim, aligned);
  const HeadRules rules(s, scale, at.head);
  const std::int64_t begin = kRules ? rules.first_key(at.first) / T::kTileRows * T::kTileRows : 0;
  copy_rows<T::kTileRows, T>(values, all_values, sides.key_stride, begin, sides.key_rows, at.dim, aligned);
  float own_lse2[T::kOwn];
  float own_delta[T::kOwn];
#pragma unroll
  for (int i = 0; i < T::kOwn; ++i) {
    const std::int64_t t = at.first + at.own + i * kLanesY;
    own_lse2[i] = t < sides.query_rows ? lse[blockIdx.x * s.seq + t] * kLog2E : 0.0F;
    own_delta[i] = t < sides.query_rows ? delta[blockIdx.x * s.seq + t] : 0.0F;
  }
  Fp32Sums<T> dq = {};
  const float scale2 = scale * kLog2E;
  const std::int64_t end = sides.last_key(at.first + T::kOwnRows);
  const int row_step = sides.causal ? kLanesY : 0;
  const std::int64_t last_seen = sides.causal ? at.first + at.own : sides.key_rows - 1;
  for (std::int64_t key = begin; key < end; key += T::kTileRows) {
    wait_for_copies();
    __syncthreads();  // these values are here, and nobody reads keys any more
    copy_rows<T::kTileRows, T>(keys, all_keys, sides.key_stride, key, sides.key_rows, at.dim, aligned);
    const bool sees = (!sides.causal || key < at.warp_first + T::kWarpRows) &&
                      (!kRules || key + T::kTileRows > rules.first_key(at.warp_first));
    float ds[T::kOwn][T::kOther] = {};
    if (sees) add_dots<T>(ds, own_gradients, values + at.x * T::kStride, at.dim);
    wait_for_copies();
    __syncthreads();  // keys are here, and nobody reads values any more
    if (key + T::kTileRows < end) {
      copy_rows<T::kTileRows, T>(values, all_values, sides.key_stride, key + T::kTileRows, sides.key_rows,
                                 at.dim, aligned);
    }
    if (!sees) continue;
    float scores[T::kOwn][T::kOther] = {};
    add_dots<T>(scores, own_queries, keys + at.x * T::kStride, at.dim);
    const auto ahead = static_cast<int>(key + at.x - last_seen);
#pragma unroll
    for (int i = 0; i < T::kOwn; ++i) {
#pragma unroll
      for (int j = 0; j < T::kOther; ++j) {
        if constexpr (kRules) {
          const int distance = i * row_step - j * kLanesX - ahead;
          const float score = rules.score(scores[i][j], distance);
          const float p = exp2_fast(fmaf(score, kLog2E, -own_lse2[i])) * rules.derivative(score, distance);
          ds[i][j] = rules.sees(distance) ? p * (ds[i][j] - own_delta[i]) : 0.0F;
        } else {
          const float p = exp2_fast(fmaf(scores[i][j], scale2, -own_lse2[i]));
          ds[i][j] = ahead + j * kLanesX - i * row_step <= 0 ? p * (ds[i][j] - own_delta[i]) : 0.0F;
        }
      }
    }
    store_scores<T>(own_scores, ds, at.x);
    __syncwarp();
    add_weighted<T>(dq, own_scores, keys, at.x, at.dim);
  }
  float factor[T::kOwn];
#pragma unroll
  for (int i = 0; i < T::kOwn; ++i) factor[i] = scale;
  write_sums<T>(dq, factor, out.of(at.batch, at.head), out.stride, at, sides.query_rows, aligned, out.add);
}

/// Block (key head of batch, block of keys; the first ones have most work).
template <class T, class In, class Out, bool kRules>
__global__ void __launch_bounds__(T::kThreads, T::kLeastBlocks)
    attention_dkv(AttentionShape s, Fp32Sides<In> sides, float scale, bool aligned, In dy, const float* lse,
                  const float* delta, Fp32Rows<Out> out) {
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
  // The first tile that sees a key, and how many there are of each head.
  const std::int64_t begin = sides.causal ? at.first / T::kTileRows * T::kTileRows : 0;
  const std::int64_t end =
      kRules ? min(sides.query_rows, HeadRules(s, scale, 0).end_query(at.first + T::kOwnRows - 1))
             : sides.query_rows;
  const std::int64_t tiles = (end - begin + T::kTileRows - 1) / T::kTileRows;
  const auto head_of = [&](std::int64_t step) { return at.head * group + step / tiles; };
  const auto query_of = [&](std::int64_t step) { return begin + step % tiles * T::kTileRows; };
  const auto copy_gradients = [&](std::int64_t step) {
    copy_rows<T::kTileRows, T>(gradients, dy + (at.batch * s.seq * dy_stride + head_of(step) * at.dim),
                               dy_stride, query_of(step), sides.query_rows, at.dim, aligned);
  };
  const auto copy_queries = [&](std::int64_t step) {
    copy_rows<T::kTileRows, T>(queries, sides.query(at.batch, head_of(step)), sides.query_stride,
                               query_of(step), sides.query_rows, at.dim, aligned);
    const int row = static_cast<int>(threadIdx.x) % T::kTileRows;
    const int task = static_cast<int>(threadIdx.x) / T::kTileRows;
    const bool exists = query_of(step) + row < sides.query_rows;
    const std::int64_t place =
        (at.batch * s.heads + head_of(step)) * s.seq + (exists ? query_of(step) + row : 0);
    if (task == 0) copy_4(tile_lse + row, lse + place, exists);
    if (task == 1) copy_4(tile_delta + row, delta + place, exists);
  };
  copy_rows<T::kOwnRows, T>(keys, sides.key(at.batch, at.head), sides.key_stride, at.first, sides.key_rows,
                            at.dim, aligned);
  copy_rows<T::kOwnRows, T>(values, sides.value(at.batch, at.head), sides.key_stride, at.first,
                            sides.key_rows, at.dim, aligned);
  copy_gradients(0);
  Fp32Sums<T> dk = {};
  Fp32Sums<T> dv = {};
  const float scale2 = scale * kLog2E;
  for (std::int64_t step = 0; step < group * tiles; ++step) {
    wait_for_copies();
    __syncthreads();  // these gradients are here, and nobody reads queries or scores any more
    copy_queries(step);
    const std::int64_t query = query_of(step);
    const HeadRules rules(s, scale, head_of(step));
    const bool is_seen = (!sides.causal || query + T::kTileRows > at.warp_first) &&
                         (!kRules || query < rules.end_query(at.warp_first + T::kWarpRows - 1));
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
          const int distance = behind + j * kLanesX - i * kLanesY;
          if constexpr (kRules) {
            const float score = rules.score(p[i][j], distance);
            p[i][j] = rules.sees(distance) ? exp2_fast(fmaf(score, kLog2E, -lse2)) : 0.0F;
            ds[i][j] = p[i][j] * (ds[i][j] - own_delta) * rules.derivative(score, distance);
          } else {
            const bool sees = !sides.causal || distance >= 0;
            p[i][j] = sees ? exp2_fast(fmaf(p[i][j], scale2, -lse2)) : 0.0F;
            ds[i][j] = p[i][j] * (ds[i][j] - own_delta);
          }
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
  write_sums<T>(dk, factor, out.of(at.batch, at.head), out.stride, at, sides.key_rows, aligned, out.add);
  write_sums<T>(dv, one, out.of(at.batch, s.kv_heads + at.head), out.stride, at, sides.key_rows, aligned,
                out.add);
}

template <bool kRules, class In, class Out>
void launch(Stream stream, const AttentionShape& s, const Fp32Sides<In>& sides, bool aligned, In dy,
            const float* lse, const float* delta, const Fp32Rows<Out>& dq,
            const Fp32Rows<Out>& d_keys_values) {
  const float scale = scale_of(s);
  const auto launch_both = [&]<class T>(T) {
    const auto submit = [&](auto* kernel, std::int64_t heads, std::int64_t rows, const Fp32Rows<Out>& to) {
      allow_shared(kernel, T::kGradientBytes, kWhat);
      kernel<<<fp32_grid<T>(s, heads, rows, kWhat), T::kThreads, T::kGradientBytes, stream>>>(
          s, sides, scale, aligned, dy, lse, delta, to);
      check_launch(kWhat);
    };
    submit(attention_dq<T, In, Out, kRules>, s.heads, sides.query_rows, dq);
    submit(attention_dkv<T, In, Out, kRules>, s.kv_heads, sides.key_rows, d_keys_values);
  };
  with_fp32_tiles<In, kRules>(
      s.head_dim, []<class T>(T) { return T::kGradientBytes; }, launch_both);
}

}  // namespace

void launch_attention_backward_fp32(Stream stream, core::DType dtype, const AttentionShape& s, const void* dy,
                                    const void* qkv, const float* lse, const float* delta, void* dqkv) {
  with_pointers(dtype, kWhat, [&](auto in, auto out) {
    const std::int64_t queries = s.heads * s.head_dim;
    const auto sides = packed_sides(s, in(qkv), in(ahead(qkv, dtype, queries)));
    using Out = decltype(out(dqkv));
    const auto to = [&](void* data) {
      return Fp32Rows<Out>{out(data), sides.query_stride, sides.query_batch, s.head_dim};
    };
    const bool aligned = are_rows_aligned(dtype, s, {dy, qkv, dqkv});
    const auto run = [&]<bool kRules>(std::bool_constant<kRules>) {
      launch<kRules>(stream, s, sides, aligned, in(dy), lse, delta, to(dqkv),
                     to(ahead(dqkv, dtype, queries)));
    };
    s.bends_scores() ? run(std::true_type{}) : run(std::false_type{});
  });
}

void launch_block_backward_fp32(Stream stream, core::DType dtype, const AttentionBlock& block, const void* dy,
                                const void* qkv, const void* keys_values, const float* lse,
                                const float* delta, float* dq, float* d_keys_values, bool accumulate) {
  const AttentionShape& s = block.shape;
  with_pointers(dtype, kWhat, [&](auto in, auto) {
    const std::int64_t queries = s.heads * s.head_dim;
    const auto sides = block_sides(block, dtype, in, qkv, keys_values);
    const std::int64_t first = block.first_query * queries;
    launch<false>(stream, s, sides, are_rows_aligned(dtype, s, {dy, qkv, keys_values, dq, d_keys_values}),
                  in(ahead(dy, dtype, first)), lse + block.first_query, delta + block.first_query,
                  Fp32Rows<float*>{dq + first, queries, s.seq * queries, s.head_dim, accumulate},
                  Fp32Rows<float*>{d_keys_values, sides.key_stride, sides.key_batch, s.head_dim, accumulate});
  });
}

}  // namespace rooflm::backends::cuda
