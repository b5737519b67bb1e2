// Flash attention on tensor cores, forward (Dao, 2023): a block takes 64 or 128 queries of a head past all
// keys that they see, 64 at a time; the next keys and values arrive while these are worked on.
#include <type_traits>

#include "backends/cuda/kernels/attention/attention_rules.cuh"
#include "backends/cuda/kernels/attention/attention_softmax.cuh"
#include "backends/cuda/kernels/attention/attention_tiles.cuh"
#include "backends/cuda/kernels/attention/attention_warp_groups.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr const char* kWhat = "flash_attention";

template <int kDim, int kM, class E>
struct Tiles {
  static constexpr int kQueries = 16 * kM * kAttentionWarps;
  static constexpr int kKeys = kMostTiles<kDim, E> > 1 ? 64 : 32;  // so that two blocks have room
  static constexpr int kQueryBytes = kTileBytes<kQueries, kDim, E>;
  static constexpr int kKeyBytes = kTileBytes<kKeys, kDim, E>;
  static constexpr int kBytes = kQueryBytes + 4 * kKeyBytes;  // two stages of keys and values
};

/// Block (head of batch, block of queries; the last ones, which have most work, first).
template <int kDim, int kM, class E, bool kRules>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_forward(AttentionShape s, float scale, const E* qkv, E* y, float* lse, Sinks sinks) {
  using T = Tiles<kDim, kM, E>;
  constexpr int kKeys = T::kKeys;
  extern __shared__ __align__(16) unsigned char shared[];
  auto* queries = reinterpret_cast<E*>(shared);
  const auto keys = [&](int stage) {
    return reinterpret_cast<E*>(shared + T::kQueryBytes + stage * 2 * T::kKeyBytes);
  };
  const auto values = [&](int stage) {
    return reinterpret_cast<E*>(shared + T::kQueryBytes + (stage * 2 + 1) * T::kKeyBytes);
  };
  const std::int64_t batch = blockIdx.x / s.heads;
  const std::int64_t head = blockIdx.x - batch * s.heads;
  const std::int64_t kv = head / (s.heads / s.kv_heads);
  const Packed<const E*> packed(s, qkv, batch);
  const auto dim = static_cast<int>(s.head_dim);
  const std::int64_t first = (gridDim.y - 1 - blockIdx.y) * std::int64_t{T::kQueries};
  const HeadRules rules(s, scale, head);
  const int first_tile = kRules ? static_cast<int>(rules.first_key(first) / kKeys) : 0;
  const auto copy_keys = [&](int tile) {
    const std::int64_t at = std::int64_t{tile} * kKeys;
    copy_tile<kKeys, kDim, kAttentionThreads>(keys(tile % 2), packed.key(kv), packed.stride, at, s.seq, dim);
    copy_tile<kKeys, kDim, kAttentionThreads>(values(tile % 2), packed.value(kv), packed.stride, at, s.seq,
                                              dim);
  };
  copy_tile<T::kQueries, kDim, kAttentionThreads>(queries, packed.query(head), packed.stride, first, s.seq,
                                                  dim);
  copy_keys(first_tile);

  const int warp = static_cast<int>(threadIdx.x) / 32;
  E* own_queries = queries + warp * 16 * kM * kTileStride<kDim, E>;
  const std::int64_t row = first + warp * 16 * kM;  // the warp's first
  const std::int64_t end = min(s.seq, first + T::kQueries);
  const auto tiles = static_cast<int>((end + kKeys - 1) / kKeys);
  const float rest = kRules ? rules.rest() : scale;
  RunningSoftmax<kM> softmax;
  Sums<kM, kDim / 8> sums{};
  for (int tile = first_tile; tile < tiles; ++tile) {
    wait_for_copies();
    __syncthreads();  // this tile is here, and nobody reads the other stage any more
    if (tile + 1 < tiles) copy_keys(tile + 1);
    const std::int64_t key = std::int64_t{tile} * kKeys;
    if (key >= row + 16 * kM) continue;                           // all keys are behind this warp's queries
    if (kRules && key + kKeys <= rules.first_key(row)) continue;  // or before what they see
    Sums<kM, kKeys / 8> scores{};
    add_product_transposed<kDim>(scores, own_queries, keys(tile % 2));
    if constexpr (kRules) {
      apply_rules(rules, scores, row, key);
    } else if (key + kKeys > row + 1) {
      mask(scores, row, key);
    }
    softmax.template take<kRules>(scores, rest * kLog2E, sums);
    Factor<kM, kKeys / kDepth<E>, E> p;
    p.round(scores);
    add_product<kDim>(sums, p, values(tile % 2));
  }
  softmax.finish();

  const int lane = static_cast<int>(threadIdx.x) % 32;
  float inverse[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const RowEnd end_of_row =
          RowEnd::of<kRules>(softmax.greatest[m][half] * rest, softmax.sum[m][half], sinks, head);
      inverse[m][half] = end_of_row.weight;
      const std::int64_t t = row + m * 16 + half * 8 + lane / 4;
      if (lane % 4 == 0 && t < s.seq) lse[(batch * s.heads + head) * s.seq + t] = end_of_row.lse;
    }
  }
  E* to = y + batch * s.seq * s.heads * s.head_dim + head * s.head_dim;
  write_rows<kDim>(sums, inverse, own_queries, to, s.heads * s.head_dim, row, s.seq, dim);
}

template <int kDim, int kM, bool kRules, class E>
void launch(Stream stream, const AttentionShape& s, const E* qkv, E* y, float* lse, const Sinks& sinks) {
  using T = Tiles<kDim, kM, E>;
  static_assert(kSharedBytes<kDim, E> == 0 || T::kBytes <= kSharedBytes<kDim, E>);
  const dim3 grid(grid_size(s.batch * s.heads, kWhat), static_cast<unsigned>(ceil_div(s.seq, T::kQueries)));
  auto* kernel = attention_forward<kDim, kM, E, kRules>;
  allow_shared(kernel, T::kBytes, kWhat);
  kernel<<<grid, kAttentionThreads, T::kBytes, stream>>>(s, scale_of(s), qkv, y, lse, sinks);
  check_launch(kWhat);
}

}  // namespace

template <class E>
void launch_attention_forward_mma(Stream stream, const AttentionShape& s, const E* qkv, E* y, float* lse,
                                  const Sinks& sinks) {
  if constexpr (std::is_same_v<E, bf16>) {
    if (prefers_warp_groups(s)) return launch_attention_forward_warp_groups(stream, s, qkv, y, lse, sinks);
  }
  with_tile_dim<E>(s.head_dim, [&]<class Dim>(Dim) {
    if constexpr (has_kernels_of_rules<E>) {
      if (s.has_rules())
        return launch<Dim::value, kTilesOfRules<Dim::value>, true>(stream, s, qkv, y, lse, sinks);
    }
    // 128 queries need half the traffic of shared memory, if that leaves a block for every multiprocessor.
    constexpr int kMost = kMostTiles<Dim::value, E>;
    using Large = Tiles<Dim::value, kMost, E>;
    const std::int64_t blocks = s.batch * s.heads * ceil_div(s.seq, Large::kQueries);
    if (has_few_kernels<E> || (blocks >= multiprocessors() && Large::kBytes <= most_shared_bytes())) {
      launch<Dim::value, kMost, false>(stream, s, qkv, y, lse, sinks);
    } else if constexpr (!has_few_kernels<E>) {
      launch<Dim::value, 1, false>(stream, s, qkv, y, lse, sinks);
    }
  });
}

template void launch_attention_forward_mma(Stream, const AttentionShape&, const bf16*, bf16*, float*,
                                           const Sinks&);
template void launch_attention_forward_mma(Stream, const AttentionShape&, const fp16*, fp16*, float*,
                                           const Sinks&);
template void launch_attention_forward_mma(Stream, const AttentionShape&, const float*, float*, float*,
                                           const Sinks&);
template void launch_attention_forward_mma(Stream, const AttentionShape&, const SplitFloat*, SplitFloat*,
                                           float*, const Sinks&);

}  // namespace rooflm::backends::cuda
