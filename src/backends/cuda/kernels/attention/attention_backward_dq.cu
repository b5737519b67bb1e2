// Gradient of flash attention on tensor cores, queries: a block takes 64 or 128 queries of a head past the
// keys that they see, as forward, and adds up ds k.
#include <type_traits>

#include "backends/cuda/kernels/attention/attention_gradient_of_scores.cuh"
#include "backends/cuda/kernels/attention/attention_warp_groups.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr const char* kWhat = "flash_attention_backward, queries";

template <int kDim, int kM, class E>
struct Tiles {
  static constexpr int kQueries = 16 * kM * kAttentionWarps;
  static constexpr int kKeys =
      (kDim > 80 ? 32 : 64) / (is_wide<E> && (kDim != 96 || is_split<E>) ? 2 : 1);  // two blocks
  static constexpr int kPart = kKeys < 32 ? kKeys : 32;  ///< columns of scores in registers, and gradients
  static constexpr int kQueryBytes = kTileBytes<kQueries, kDim, E>;
  static constexpr int kKeyBytes = kTileBytes<kKeys, kDim, E>;
  static constexpr int kBytes = 2 * kQueryBytes + 4 * kKeyBytes;  // q and dy; two stages of keys and values
};

/// Block (head of batch, block of queries; the last ones, which have most work, first).
template <int kDim, int kM, class E, bool kRules>
__global__ void __launch_bounds__(kAttentionThreads) attention_dq(AttentionGradient<E> g) {
  using T = Tiles<kDim, kM, E>;
  extern __shared__ __align__(16) unsigned char shared[];
  auto* queries = reinterpret_cast<E*>(shared);
  auto* gradients = reinterpret_cast<E*>(shared + T::kQueryBytes);
  const auto keys = [&](int stage) {
    return reinterpret_cast<E*>(shared + 2 * T::kQueryBytes + stage * 2 * T::kKeyBytes);
  };
  const auto values = [&](int stage) {
    return reinterpret_cast<E*>(shared + 2 * T::kQueryBytes + (stage * 2 + 1) * T::kKeyBytes);
  };
  const AttentionShape& s = g.shape;
  const std::int64_t batch = blockIdx.x / s.heads;
  const std::int64_t head = blockIdx.x - batch * s.heads;
  const std::int64_t kv = head / (s.heads / s.kv_heads);
  const Packed<const E*> packed(s, g.qkv, batch);
  const auto dim = static_cast<int>(s.head_dim);
  const std::int64_t first = (gridDim.y - 1 - blockIdx.y) * std::int64_t{T::kQueries};
  const HeadRules rules(s, g.scale, head);
  const int first_tile = kRules ? static_cast<int>(rules.first_key(first) / T::kKeys) : 0;
  const auto copy_keys = [&](int tile) {
    const std::int64_t at = std::int64_t{tile} * T::kKeys;
    copy_tile<T::kKeys, kDim, kAttentionThreads>(keys(tile % 2), packed.key(kv), packed.stride, at, s.seq,
                                                 dim);
    copy_tile<T::kKeys, kDim, kAttentionThreads>(values(tile % 2), packed.value(kv), packed.stride, at, s.seq,
                                                 dim);
  };
  const std::int64_t dy_stride = s.heads * s.head_dim;
  copy_tile<T::kQueries, kDim, kAttentionThreads>(queries, packed.query(head), packed.stride, first, s.seq,
                                                  dim);
  copy_tile<T::kQueries, kDim, kAttentionThreads>(
      gradients, g.dy + batch * s.seq * dy_stride + head * s.head_dim, dy_stride, first, s.seq, dim);
  copy_keys(first_tile);

  const int own = static_cast<int>(threadIdx.x) / 32 * 16 * kM;
  E* own_queries = queries + own * kTileStride<kDim, E>;
  const E* own_gradients = gradients + own * kTileStride<kDim, E>;
  const std::int64_t row = first + own;
  wait_for_copies();
  __syncthreads();
  Rows<kM> rows;
  rows.read(g, batch, head, row,
            [&](int own_row, int d) { return own_gradients + own_row * kTileStride<kDim, E> + d; });
  const std::int64_t end = min(s.seq, first + T::kQueries);
  const auto tiles = static_cast<int>((end + T::kKeys - 1) / T::kKeys);
  Sums<kM, kDim / 8> dq{};
  for (int tile = first_tile; tile < tiles; ++tile) {
    wait_for_copies();
    __syncthreads();  // this tile is here, and nobody reads the other stage any more
    if (tile + 1 < tiles) copy_keys(tile + 1);
#pragma unroll 1
    for (int part = 0; part < T::kKeys; part += T::kPart) {
      const std::int64_t key = std::int64_t{tile} * T::kKeys + part;
      if (key >= row + 16 * kM) break;  // all keys are behind this warp's queries
      if (kRules && key + T::kPart <= rules.first_key(row)) continue;  // or before all that they see
      const E* part_keys = keys(tile % 2) + part * kTileStride<kDim, E>;
      Sums<kM, T::kPart / 8> scores{};
      Sums<kM, T::kPart / 8> ds{};
      add_product_transposed<kDim>(scores, own_queries, part_keys);
      add_product_transposed<kDim>(ds, own_gradients, values(tile % 2) + part * kTileStride<kDim, E>);
      if constexpr (kRules) {
        probabilities(rules, scores, rows, row, key);
      } else {
        probabilities(scores, rows, g.scale * kLog2E, row, key);
      }
      gradient_of_scores(scores, ds, rows);
      Factor<kM, T::kPart / kDepth<E>, E> factor;
      factor.round(ds);
      add_product<kDim>(dq, factor, part_keys);
    }
  }
  float scale[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) scale[m][0] = scale[m][1] = g.scale;
  const Packed<E*> out(s, g.dqkv, batch);
  write_rows<kDim>(dq, scale, own_queries, out.query(head), out.stride, row, s.seq, dim);
}

template <int kDim, int kM, bool kRules, class E>
void launch(Stream stream, const AttentionGradient<E>& g) {
  using T = Tiles<kDim, kM, E>;
  static_assert(kSharedBytes<kDim, E> == 0 || T::kBytes <= kSharedBytes<kDim, E>);
  const AttentionShape& s = g.shape;
  const dim3 grid(grid_size(s.batch * s.heads, kWhat), static_cast<unsigned>(ceil_div(s.seq, T::kQueries)));
  allow_shared(attention_dq<kDim, kM, E, kRules>, T::kBytes, kWhat);
  attention_dq<kDim, kM, E, kRules><<<grid, kAttentionThreads, T::kBytes, stream>>>(g);
  check_launch(kWhat);
}

}  // namespace

template <class E>
void launch_attention_dq(Stream stream, const AttentionGradient<E>& g) {
  if constexpr (std::is_same_v<E, bf16>) {
    if (prefers_warp_groups(g.shape)) return launch_attention_dq_warp_groups(stream, g);
  }
  with_tile_dim<E>(g.shape.head_dim, [&]<class Dim>(Dim) {
    if constexpr (has_kernels_of_rules<E>) {
      if (g.shape.bends_scores()) return launch<Dim::value, kTilesOfRules<Dim::value>, true>(stream, g);
    }
    constexpr int kMost = kMostTiles<Dim::value, E>;
    using Large = Tiles<Dim::value, kMost, E>;
    const std::int64_t blocks = g.shape.batch * g.shape.heads * ceil_div(g.shape.seq, Large::kQueries);
    if (has_few_kernels<E> || (blocks >= multiprocessors() && Large::kBytes <= most_shared_bytes())) {
      launch<Dim::value, kMost, false>(stream, g);
    } else if constexpr (!has_few_kernels<E>) {
      launch<Dim::value, 1, false>(stream, g);
    }
  });
}

template void launch_attention_dq(Stream, const AttentionGradient<bf16>&);
template void launch_attention_dq(Stream, const AttentionGradient<fp16>&);
template void launch_attention_dq(Stream, const AttentionGradient<float>&);
template void launch_attention_dq(Stream, const AttentionGradient<SplitFloat>&);

}  // namespace rooflm::backends::cuda
