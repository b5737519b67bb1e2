// Flash attention in fp32 on CUDA cores, forward: a block takes up to 128 queries of a head past all keys
// that they see. Values arrive while scores are computed, the next keys while values are added up.
#include "backends/cuda/kernels/attention/attention_fp32.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr const char* kWhat = "flash_attention";

/// The running softmax of a lane's rows; `sum` is of the lane's own columns.
template <class T>
struct Softmax {
  float greatest[T::kOwn], sum[T::kOwn];

  __device__ Softmax() {
#pragma unroll
    for (int i = 0; i < T::kOwn; ++i) {
      greatest[i] = -INFINITY;
      sum[i] = 0;
    }
  }
  /// scores := 2^(scale2 (scores - greatest)), and what was added up before is scaled to the new greatest.
  /// kHides: rows may see none of the columns so far.
  /// `ahead`: of the lane's first column over the last that its first row sees, and `row_step` how many more
  /// the next of its rows sees; columns ahead of that are masked.
  template <bool kHides>
  __device__ void take(float (&scores)[T::kOwn][T::kOther], float scale2, int ahead, int row_step,
                       Fp32Sums<T>& y) {
#pragma unroll
    for (int i = 0; i < T::kOwn; ++i) {
      float most = greatest[i];
#pragma unroll
      for (int j = 0; j < T::kOther; ++j) {
        if (ahead + j * kLanesX - i * row_step > 0) scores[i][j] = -INFINITY;
        most = fmaxf(most, scores[i][j]);
      }
      most = combine_x(most, [](float a, float b) { return fmaxf(a, b); });
      const float base = kHides && most == -INFINITY ? 0.0F : most;
      const float kept = exp2_fast((greatest[i] - base) * scale2);
      greatest[i] = most;
      const float offset = base * scale2;
      float total = 0;
#pragma unroll
      for (int j = 0; j < T::kOther; ++j) {
        scores[i][j] = exp2_fast(fmaf(scores[i][j], scale2, -offset));
        total += scores[i][j];
      }
      sum[i] = sum[i] * kept + total;
#pragma unroll
      for (int q = 0; q < T::kGroups; ++q) {
#pragma unroll
        for (int c = 0; c < 4; ++c) y[i][q][c] *= kept;
      }
    }
  }
  /// The sums of all lanes of a row.
  __device__ void finish() {
#pragma unroll
    for (int i = 0; i < T::kOwn; ++i) sum[i] = combine_x(sum[i], [](float a, float b) { return a + b; });
  }
};

/// Block (head of batch, block of queries; the last ones, which have most work, first). y and lse begin at
/// the first query; of each batch element there are s.seq rows of both.
template <class T, class In, class Out, bool kRules>
__global__ void __launch_bounds__(T::kThreads, T::kLeastBlocks)
    attention_forward(AttentionShape s, Fp32Sides<In> sides, float scale, bool aligned, Out y, float* lse,
                      Sinks sinks) {
  extern __shared__ __align__(16) float shared[];
  float* queries = shared;
  float* keys = queries + T::kOwnFloats;
  float* values = keys + T::kTileFloats;
  const Fp32Place<T> at(s, s.heads, gridDim.y - 1 - blockIdx.y);
  const float* own_queries = queries + at.own * T::kStride;
  const float* tile_keys = keys + at.x * T::kStride;
  float* own_scores = values + T::kTileFloats + at.own * T::kScoreStride;
  const std::int64_t kv = at.head / (s.heads / s.kv_heads);
  const In all_keys = sides.key(at.batch, kv);
  const In all_values = sides.value(at.batch, kv);
  copy_rows<T::kOwnRows, T>(queries, sides.query(at.batch, at.head), sides.query_stride, at.first,
                            sides.query_rows, at.dim, aligned);
  const HeadRules rules(s, scale, at.head);
  const std::int64_t begin = kRules ? rules.first_key(at.first) / T::kTileRows * T::kTileRows : 0;
  copy_rows<T::kTileRows, T>(keys, all_keys, sides.key_stride, begin, sides.key_rows, at.dim, aligned);
  const float rest = kRules ? rules.rest() : scale;
  Softmax<T> softmax;
  Fp32Sums<T> sums = {};
  const std::int64_t end = sides.last_key(at.first + T::kOwnRows);
  const int row_step = sides.causal ? kLanesY : 0;
  const std::int64_t last_seen = sides.causal ? at.first + at.own : sides.key_rows - 1;
  for (std::int64_t key = begin; key < end; key += T::kTileRows) {
    wait_for_copies();
    __syncthreads();  // these keys are here, and nobody reads values any more
    copy_rows<T::kTileRows, T>(values, all_values, sides.key_stride, key, sides.key_rows, at.dim, aligned);
    const bool sees = (!sides.causal || key < at.warp_first + T::kWarpRows) &&
                      (!kRules || key + T::kTileRows > rules.first_key(at.warp_first));
    if (sees) {
      float scores[T::kOwn][T::kOther] = {};
      add_dots<T>(scores, own_queries, tile_keys, at.dim);
      if constexpr (kRules) {
        const auto first = static_cast<int>(at.first + at.own - key - at.x);  // distance of the first
#pragma unroll
        for (int i = 0; i < T::kOwn; ++i) {
#pragma unroll
          for (int j = 0; j < T::kOther; ++j) {
            const int distance = first + i * kLanesY - j * kLanesX;
            if (rules.bend()) scores[i][j] = rules.score(scores[i][j], distance);
            if (distance >= rules.window) scores[i][j] = -INFINITY;
          }
        }
      }
      softmax.template take<kRules>(scores, rest * kLog2E, static_cast<int>(key + at.x - last_seen), row_step,
                                    sums);
      store_scores<T>(own_scores, scores, at.x);
    }
    wait_for_copies();
    __syncthreads();  // values are here, and nobody reads keys any more
    if (key + T::kTileRows < end) {
      copy_rows<T::kTileRows, T>(keys, all_keys, sides.key_stride, key + T::kTileRows, sides.key_rows, at.dim,
                                 aligned);
    }
    if (sees) add_weighted<T>(sums, own_scores, values, at.x, at.dim);
  }
  softmax.finish();
  float inverse[T::kOwn];
#pragma unroll
  for (int i = 0; i < T::kOwn; ++i) {
    const RowEnd end_of_row = RowEnd::of<kRules>(softmax.greatest[i] * rest, softmax.sum[i], sinks, at.head);
    inverse[i] = end_of_row.weight;
    const std::int64_t t = at.first + at.own + i * kLanesY;
    if (at.x == 0 && t < sides.query_rows) lse[blockIdx.x * s.seq + t] = end_of_row.lse;
  }
  const Out to = y + (at.batch * s.seq * s.heads * at.dim + at.head * at.dim);
  write_sums<T>(sums, inverse, to, s.heads * at.dim, at, sides.query_rows, aligned);
}

template <bool kRules, class In, class Out>
void launch(Stream stream, const AttentionShape& s, const Fp32Sides<In>& sides, bool aligned, Out y,
            float* lse, const Sinks& sinks) {
  const float scale = scale_of(s);
  const auto submit = [&]<class T>(T) {
    auto* kernel = attention_forward<T, In, Out, kRules>;
    allow_shared(kernel, T::kForwardBytes, kWhat);
    kernel<<<fp32_grid<T>(s, s.heads, sides.query_rows, kWhat), T::kThreads, T::kForwardBytes, stream>>>(
        s, sides, scale, aligned, y, lse, sinks);
  };
  with_fp32_tiles<In, kRules>(
      s.head_dim, []<class T>(T) { return T::kForwardBytes; }, submit);
  check_launch(kWhat);
}

}  // namespace

void launch_attention_forward_fp32(Stream stream, core::DType dtype, const AttentionShape& s, const void* qkv,
                                   void* y, float* lse, const Sinks& sinks) {
  with_pointers(dtype, kWhat, [&](auto in, auto out) {
    const void* keys = ahead(qkv, dtype, s.heads * s.head_dim);
    const auto sides = packed_sides(s, in(qkv), in(keys));
    const bool aligned = are_rows_aligned(dtype, s, {qkv, y});
    if (s.has_rules()) return launch<true>(stream, s, sides, aligned, out(y), lse, sinks);
    launch<false>(stream, s, sides, aligned, out(y), lse, sinks);
  });
}

void launch_block_forward_fp32(Stream stream, core::DType dtype, const AttentionBlock& block, const void* qkv,
                               const void* keys_values, void* y, float* lse) {
  const AttentionShape& s = block.shape;
  with_pointers(dtype, kWhat, [&](auto in, auto out) {
    void* first_y = ahead(y, dtype, block.first_query * s.heads * s.head_dim);
    launch<false>(stream, s, block_sides(block, dtype, in, qkv, keys_values),
                  are_rows_aligned(dtype, s, {qkv, keys_values, y}), out(first_y), lse + block.first_query,
                  {});
  });
}

}  // namespace rooflm::backends::cuda
