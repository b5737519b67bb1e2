// Attention and its gradient without tensor cores, in fp32.
#include <type_traits>

#include "backends/cuda/kernels/attention_rows.cuh"
#include "backends/cuda/kernels/attention_simple.cuh"
#include "backends/cuda/kernels/attention_tiles.cuh"

namespace rooflm::backends::cuda {
namespace {

/// Rows of a block's own side, then two tiles of the other side, in shared memory.
struct SharedRows {
  float *own, *other_own, *tile, *other_tile;
  __device__ SharedRows(float* base, int dim)
      : own(base),
        other_own(base + kBlockRows * dim),
        tile(base + 2 * kBlockRows * dim),
        other_tile(base + 2 * kBlockRows * dim + kTileRows * (dim + 1)) {}
  static int bytes(std::int64_t dim) {
    return static_cast<int>((2 * kBlockRows * dim + 2 * kTileRows * (dim + 1)) * std::int64_t{sizeof(float)});
  }
};

/// The block's place: head of the batch (of queries or of keys) and its rows.
struct Place {
  std::int64_t batch, head, first, own_first;
  int dim, own, lane;
  __device__ Place(const AttentionShape& s, std::int64_t heads, std::int64_t block)
      : batch(blockIdx.x / heads),
        head(blockIdx.x - batch * heads),
        first(block * kBlockRows),
        dim(static_cast<int>(s.head_dim)),
        own(static_cast<int>(threadIdx.x) / kWarp * kOwnRows),
        lane(static_cast<int>(threadIdx.x) % kWarp) {
    own_first = first + own;
  }
};

template <int kSlots, class In, class Out>
__global__ void __launch_bounds__(kRowThreads)
    forward(AttentionShape s, float scale, In qkv, Out y, float* lse) {
  extern __shared__ float shared_floats[];
  const Place at(s, s.heads, gridDim.y - 1 - blockIdx.y);
  const SharedRows rows(shared_floats, at.dim);
  const std::int64_t kv = at.head / (s.heads / s.kv_heads);
  const Packed packed(s, qkv, at.batch);
  copy_rows<kBlockRows>(rows.own, at.dim, packed.query(at.head), packed.stride, at.first, s.seq, at.dim);
  float sums[kOwnRows][kSlots] = {};
  float greatest[kOwnRows];
  float total[kOwnRows] = {};
#pragma unroll
  for (int r = 0; r < kOwnRows; ++r) greatest[r] = -INFINITY;
  const std::int64_t end = min(s.seq, at.first + kBlockRows);
  for (std::int64_t key = 0; key < end; key += kTileRows) {
    __syncthreads();
    copy_rows<kTileRows>(rows.tile, at.dim + 1, packed.key(kv), packed.stride, key, s.seq, at.dim);
    copy_rows<kTileRows>(rows.other_tile, at.dim + 1, packed.value(kv), packed.stride, key, s.seq, at.dim);
    __syncthreads();
    float scores[kOwnRows];
    multiply_rows(scores, rows.own + at.own * at.dim, rows.tile, at.dim);
#pragma unroll
    for (int r = 0; r < kOwnRows; ++r) {
      const float score = key + at.lane <= at.own_first + r ? scores[r] * scale : -INFINITY;
      const float most = fmaxf(greatest[r], warp_max(score));
      const float kept = __expf(greatest[r] - most);
      greatest[r] = most;
      scores[r] = __expf(score - most);
      total[r] = total[r] * kept + warp_sum(scores[r]);
#pragma unroll
      for (int i = 0; i < kSlots; ++i) sums[r][i] *= kept;
    }
    add_rows(sums, scores, rows.other_tile, at.dim);
  }
  float inverse[kOwnRows];
#pragma unroll
  for (int r = 0; r < kOwnRows; ++r) {
    inverse[r] = 1.0F / total[r];
    const std::int64_t t = at.own_first + r;
    if (at.lane == 0 && t < s.seq) lse[blockIdx.x * s.seq + t] = greatest[r] + logf(total[r]);
  }
  const Out to = y + at.batch * s.seq * s.heads * at.dim + at.head * at.dim;
  write_sums(sums, inverse, to, s.heads * at.dim, at.own_first, s.seq, at.dim);
}

template <int kSlots, class In, class Out>
__global__ void __launch_bounds__(kRowThreads)
    backward_queries(AttentionShape s, float scale, In dy, In qkv, const float* lse, const float* delta,
                     Out dqkv) {
  extern __shared__ float shared_floats[];
  const Place at(s, s.heads, gridDim.y - 1 - blockIdx.y);
  const SharedRows rows(shared_floats, at.dim);
  const std::int64_t kv = at.head / (s.heads / s.kv_heads);
  const std::int64_t dy_stride = s.heads * at.dim;
  const Packed packed(s, qkv, at.batch);
  copy_rows<kBlockRows>(rows.own, at.dim, packed.query(at.head), packed.stride, at.first, s.seq, at.dim);
  copy_rows<kBlockRows>(rows.other_own, at.dim, dy + at.batch * s.seq * dy_stride + at.head * at.dim,
                        dy_stride, at.first, s.seq, at.dim);
  float own_lse[kOwnRows];
  float own_delta[kOwnRows];
#pragma unroll
  for (int r = 0; r < kOwnRows; ++r) {
    const bool exists = at.own_first + r < s.seq;
    own_lse[r] = exists ? lse[blockIdx.x * s.seq + at.own_first + r] : 0.0F;
    own_delta[r] = exists ? delta[blockIdx.x * s.seq + at.own_first + r] : 0.0F;
  }
  float dq[kOwnRows][kSlots] = {};
  const std::int64_t end = min(s.seq, at.first + kBlockRows);
  for (std::int64_t key = 0; key < end; key += kTileRows) {
    __syncthreads();
    copy_rows<kTileRows>(rows.tile, at.dim + 1, packed.key(kv), packed.stride, key, s.seq, at.dim);
    copy_rows<kTileRows>(rows.other_tile, at.dim + 1, packed.value(kv), packed.stride, key, s.seq, at.dim);
    __syncthreads();
    float scores[kOwnRows];
    float dp[kOwnRows];
    multiply_rows(scores, rows.own + at.own * at.dim, rows.tile, at.dim);
    multiply_rows(dp, rows.other_own + at.own * at.dim, rows.other_tile, at.dim);
#pragma unroll
    for (int r = 0; r < kOwnRows; ++r) {
      const bool seen = key + at.lane <= at.own_first + r;
      dp[r] = seen ? __expf(scores[r] * scale - own_lse[r]) * (dp[r] - own_delta[r]) : 0.0F;
    }
    add_rows(dq, dp, rows.tile, at.dim);
  }
  float factor[kOwnRows];
#pragma unroll
  for (int r = 0; r < kOwnRows; ++r) factor[r] = scale;
  const Packed out(s, dqkv, at.batch);
  write_sums(dq, factor, out.query(at.head), out.stride, at.own_first, s.seq, at.dim);
}

template <int kSlots, class In, class Out>
__global__ void __launch_bounds__(kRowThreads) backward_keys(AttentionShape s, float scale, In dy, In qkv,
                                                             const float* lse, const float* delta, Out dqkv) {
  extern __shared__ float shared_floats[];
  const Place at(s, s.kv_heads, blockIdx.y);
  const SharedRows rows(shared_floats, at.dim);
  const std::int64_t group = s.heads / s.kv_heads;
  const std::int64_t dy_stride = s.heads * at.dim;
  const Packed packed(s, qkv, at.batch);
  copy_rows<kBlockRows>(rows.own, at.dim, packed.key(at.head), packed.stride, at.first, s.seq, at.dim);
  copy_rows<kBlockRows>(rows.other_own, at.dim, packed.value(at.head), packed.stride, at.first, s.seq,
                        at.dim);
  float dk[kOwnRows][kSlots] = {};
  float dv[kOwnRows][kSlots] = {};
  for (std::int64_t head = at.head * group; head < (at.head + 1) * group; ++head) {
    for (std::int64_t query = at.first / kTileRows * kTileRows; query < s.seq; query += kTileRows) {
      __syncthreads();
      copy_rows<kTileRows>(rows.tile, at.dim + 1, packed.query(head), packed.stride, query, s.seq, at.dim);
      copy_rows<kTileRows>(rows.other_tile, at.dim + 1, dy + at.batch * s.seq * dy_stride + head * at.dim,
                           dy_stride, query, s.seq, at.dim);
      __syncthreads();
      const std::int64_t t = query + at.lane;
      const std::int64_t place = (at.batch * s.heads + head) * s.seq + t;
      const float own_lse = t < s.seq ? lse[place] : 0.0F;
      const float own_delta = t < s.seq ? delta[place] : 0.0F;
      float p[kOwnRows];
      float dp[kOwnRows];
      multiply_rows(p, rows.own + at.own * at.dim, rows.tile, at.dim);
      multiply_rows(dp, rows.other_own + at.own * at.dim, rows.other_tile, at.dim);
#pragma unroll
      for (int r = 0; r < kOwnRows; ++r) {
        const bool seen = t >= at.own_first + r && t < s.seq;
        p[r] = seen ? __expf(p[r] * scale - own_lse) : 0.0F;
        dp[r] = p[r] * (dp[r] - own_delta);
      }
      add_rows(dv, p, rows.other_tile, at.dim);
      add_rows(dk, dp, rows.tile, at.dim);
    }
  }
  float factor[kOwnRows];
  float one[kOwnRows];
#pragma unroll
  for (int r = 0; r < kOwnRows; ++r) {
    factor[r] = scale;
    one[r] = 1.0F;
  }
  const Packed out(s, dqkv, at.batch);
  write_sums(dk, factor, out.key(at.head), out.stride, at.own_first, s.seq, at.dim);
  write_sums(dv, one, out.value(at.head), out.stride, at.own_first, s.seq, at.dim);
}

/// Calls body(the columns that a lane has, as a type).
template <class Body>
void with_slots(std::int64_t dim, Body&& body) {
  if (dim <= 2 * kWarp) return body(std::integral_constant<int, 2>{});
  if (dim <= 4 * kWarp) return body(std::integral_constant<int, 4>{});
  return body(std::integral_constant<int, 8>{});
}

dim3 grid_of(const AttentionShape& s, std::int64_t heads, const char* what) {
  return {grid_size(s.batch * heads, what), static_cast<unsigned>(ceil_div(s.seq, kBlockRows)), 1};
}

float scale_of(const AttentionShape& s) { return 1.0F / sqrtf(static_cast<float>(s.head_dim)); }

}  // namespace

void launch_attention_forward_simple(Stream stream, core::DType dtype, const AttentionShape& s,
                                     const void* qkv, void* y, float* lse) {
  const char* what = "flash_attention";
  const int bytes = SharedRows::bytes(s.head_dim);
  with_pointers(dtype, what, [&](auto in, auto out) {
    with_slots(s.head_dim, [&]<class Slots>(Slots) {
      auto* kernel = forward<Slots::value, decltype(in(qkv)), decltype(out(y))>;
      allow_shared(kernel, bytes, what);
      kernel<<<grid_of(s, s.heads, what), kRowThreads, bytes, stream>>>(s, scale_of(s), in(qkv), out(y), lse);
    });
  });
  check_launch(what);
}

void launch_attention_backward_simple(Stream stream, core::DType dtype, const AttentionShape& s,
                                      const void* dy, const void* qkv, const float* lse, const float* delta,
                                      void* dqkv) {
  const char* what = "flash_attention_backward";
  const int bytes = SharedRows::bytes(s.head_dim);
  with_pointers(dtype, what, [&](auto in, auto out) {
    using In = decltype(in(qkv));
    using Out = decltype(out(dqkv));
    const auto launch = [&](auto* kernel, std::int64_t heads) {
      allow_shared(kernel, bytes, what);
      kernel<<<grid_of(s, heads, what), kRowThreads, bytes, stream>>>(s, scale_of(s), in(dy), in(qkv), lse,
                                                                      delta, out(dqkv));
      check_launch(what);
    };
    with_slots(s.head_dim, [&]<class Slots>(Slots) {
      launch(backward_queries<Slots::value, In, Out>, s.heads);
      launch(backward_keys<Slots::value, In, Out>, s.kv_heads);
    });
  });
}

}  // namespace rooflm::backends::cuda
