// Gradient of flash attention on tensor cores, keys and values: a block takes 64 or 128 keys past the queries
// that see them, of all heads that share them. Scores are computed transposed, so that p and ds are left
// factors as they leave the tensor cores: they never go through shared memory. Of wide heads registers hold
// the sums of keys or of values, and each has blocks of its own.
#include <type_traits>

#include "backends/cuda/kernels/attention/attention_gradient_of_scores.cuh"
#include "backends/cuda/kernels/attention/attention_warp_groups.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr const char* kWhat = "flash_attention_backward, keys";

template <int kDim, int kM, class E>
struct Tiles {
  static constexpr int kKeys = 16 * kM * kAttentionWarps;
  static constexpr int kQueries = (kDim > 80 ? 32 : 64) / (is_wide<E> && (kDim != 96 || is_split<E>) ? 2 : 1);
  static constexpr int kPart = kQueries < 32 ? kQueries : 32;  ///< columns of scores in registers
  static constexpr int kKeyBytes = kTileBytes<kKeys, kDim, E>;
  static constexpr int kQueryBytes = kTileBytes<kQueries, kDim, E>;
  static constexpr int kRowBytes = kQueries * static_cast<int>(sizeof(float));
  static constexpr int kStageBytes = 2 * kQueryBytes + 2 * kRowBytes;  // q, dy, lse, delta
  static constexpr int kBytes = 2 * kKeyBytes + 2 * kStageBytes;
};

/// One stage of queries in shared memory.
template <class T, class E>
struct Stage {
  E *queries, *gradients;
  float *lse, *delta;
  __device__ explicit Stage(unsigned char* base)
      : queries(reinterpret_cast<E*>(base)),
        gradients(reinterpret_cast<E*>(base + T::kQueryBytes)),
        lse(reinterpret_cast<float*>(base + 2 * T::kQueryBytes)),
        delta(reinterpret_cast<float*>(base + 2 * T::kQueryBytes + T::kRowBytes)) {}
};

/// What a block of attention_dkv does, of keys, of values or of both.
template <int kDim, int kM, bool kOfKeys, bool kOfValues, bool kRules, class E>
__device__ void add_gradients(const AttentionGradient<E>& g) {
  using T = Tiles<kDim, kM, E>;
  extern __shared__ __align__(16) unsigned char shared[];
  auto* keys = reinterpret_cast<E*>(shared);
  auto* values = reinterpret_cast<E*>(shared + T::kKeyBytes);
  const auto stage_of = [&](int step) {
    return Stage<T, E>(shared + 2 * T::kKeyBytes + step % 2 * T::kStageBytes);
  };
  const AttentionShape& s = g.shape;
  const std::int64_t batch = blockIdx.x / s.kv_heads;
  const std::int64_t kv = blockIdx.x - batch * s.kv_heads;
  const auto group = static_cast<int>(s.heads / s.kv_heads);
  const Packed<const E*> packed(s, g.qkv, batch);
  const auto dim = static_cast<int>(s.head_dim);
  const std::int64_t first = blockIdx.y * std::int64_t{T::kKeys};
  const auto first_tile = static_cast<int>(first / T::kQueries);
  const std::int64_t end =
      kRules ? min(s.seq, HeadRules(s, g.scale, 0).end_query(first + T::kKeys - 1)) : s.seq;
  const int tiles = static_cast<int>((end + T::kQueries - 1) / T::kQueries) - first_tile;  // of each head
  const std::int64_t dy_stride = s.heads * s.head_dim;
  const auto query_of = [&](int step) { return std::int64_t{first_tile + step % tiles} * T::kQueries; };
  const auto copy_queries = [&](int step) {
    const std::int64_t head = kv * group + step / tiles;
    const std::int64_t query = query_of(step);
    const Stage<T, E> stage = stage_of(step);
    copy_tile<T::kQueries, kDim, kAttentionThreads>(stage.queries, packed.query(head), packed.stride, query,
                                                    s.seq, dim);
    copy_tile<T::kQueries, kDim, kAttentionThreads>(
        stage.gradients, g.dy + batch * s.seq * dy_stride + head * s.head_dim, dy_stride, query, s.seq, dim);
    const auto row = static_cast<int>(threadIdx.x) % T::kQueries;
    const bool exists = query + row < s.seq;
    const std::int64_t at = (batch * s.heads + head) * s.seq + (exists ? query + row : 0);
    const auto task = static_cast<int>(threadIdx.x) / T::kQueries;
    if (task == 0) copy_4(stage.lse + row, g.lse + at, exists);
    if (task == 1) copy_4(stage.delta + row, g.delta + at, exists);
  };
  copy_tile<T::kKeys, kDim, kAttentionThreads>(keys, packed.key(kv), packed.stride, first, s.seq, dim);
  if constexpr (kOfKeys) {
    copy_tile<T::kKeys, kDim, kAttentionThreads>(values, packed.value(kv), packed.stride, first, s.seq, dim);
  }
  copy_queries(0);

  const int own = static_cast<int>(threadIdx.x) / 32 * 16 * kM;
  E* own_keys = keys + own * kTileStride<kDim, E>;
  E* own_values = values + own * kTileStride<kDim, E>;
  const std::int64_t key = first + own;
  Sums<kM, kDim / 8> dk{};
  Sums<kM, kDim / 8> dv{};
  for (int step = 0; step < group * tiles; ++step) {
    wait_for_copies();
    __syncthreads();  // this step's queries are here, and nobody reads the other stage any more
    if (step + 1 < group * tiles) copy_queries(step + 1);
    const Stage<T, E> stage = stage_of(step);
#pragma unroll 1
    for (int part = 0; part < T::kQueries; part += T::kPart) {
      const std::int64_t query = query_of(step) + part;
      if (query + T::kPart <= key) continue;  // no query of the part sees a key of this warp
      const HeadRules rules(s, g.scale, kv * group + step / tiles);
      if (kRules && query >= rules.end_query(key + 16 * kM - 1)) continue;  // nor here
      const E* queries = stage.queries + part * kTileStride<kDim, E>;
      const E* gradients = stage.gradients + part * kTileStride<kDim, E>;
      Sums<kM, T::kPart / 8> p{};
      Sums<kM, T::kPart / 8> ds{};
      add_product_transposed<kDim>(p, own_keys, queries);
      if constexpr (kOfKeys) add_product_transposed<kDim>(ds, own_values, gradients);
      if constexpr (kRules) {
        transposed_probabilities(rules, p, stage.lse + part, key, query);
      } else {
        transposed_probabilities(p, stage.lse + part, g.scale * kLog2E, key, query);
      }
      if constexpr (kOfKeys) {
        gradient_of_transposed_scores(p, ds, stage.delta + part);
        if constexpr (kRules) derive_transposed(rules, p, ds, stage.lse + part, key, query);
      }
      Factor<kM, T::kPart / kDepth<E>, E> factor;
      if constexpr (kOfValues) {
        factor.round(p);
        add_product<kDim>(dv, factor, gradients);
      }
      if constexpr (kOfKeys) {
        factor.round(ds);
        add_product<kDim>(dk, factor, queries);
      }
    }
  }
  float scale[kM][2];
  float one[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
    scale[m][0] = scale[m][1] = g.scale;
    one[m][0] = one[m][1] = 1.0F;
  }
  const Packed<E*> out(s, g.dqkv, batch);
  if constexpr (kOfKeys) write_rows<kDim>(dk, scale, own_keys, out.key(kv), out.stride, key, s.seq, dim);
  if constexpr (kOfValues) write_rows<kDim>(dv, one, own_values, out.value(kv), out.stride, key, s.seq, dim);
}

/// Block (key head of batch, block of keys, the first ones have most work; of wide heads: keys or values).
template <int kDim, int kM, class E, bool kRules>
__global__ void __launch_bounds__(kAttentionThreads) attention_dkv(AttentionGradient<E> g) {
  if constexpr (kDim < kWideTile) {
    add_gradients<kDim, kM, true, true, kRules>(g);
  } else if (blockIdx.z == 0) {
    add_gradients<kDim, kM, true, false, kRules>(g);
  } else {
    add_gradients<kDim, kM, false, true, kRules>(g);
  }
}

template <int kDim, int kM, bool kRules, class E>
void launch(Stream stream, const AttentionGradient<E>& g) {
  using T = Tiles<kDim, kM, E>;
  const AttentionShape& s = g.shape;
  static_assert(kSharedBytes<kDim, E> == 0 || T::kBytes <= kSharedBytes<kDim, E>);
  const dim3 grid(grid_size(s.batch * s.kv_heads, kWhat), static_cast<unsigned>(ceil_div(s.seq, T::kKeys)),
                  kDim < kWideTile ? 1 : 2);
  allow_shared(attention_dkv<kDim, kM, E, kRules>, T::kBytes, kWhat);
  attention_dkv<kDim, kM, E, kRules><<<grid, kAttentionThreads, T::kBytes, stream>>>(g);
  check_launch(kWhat);
}

}  // namespace

template <class E>
void launch_attention_dkv(Stream stream, const AttentionGradient<E>& g) {
  if constexpr (std::is_same_v<E, bf16>) {
    if (prefers_warp_groups(g.shape)) return launch_attention_dkv_warp_groups(stream, g);
  }
  with_tile_dim<E>(g.shape.head_dim, [&]<class Dim>(Dim) {
    // 128 keys need less traffic of shared memory, if registers suffice and every multiprocessor gets a
    // block.
    constexpr int kDim = Dim::value;
    if constexpr (has_kernels_of_rules<E>) {
      if (g.shape.bends_scores()) return launch<kDim, 1, true>(stream, g);
    }
    if constexpr (kDim <= 64 && !has_few_kernels<E>) {
      const std::int64_t blocks =
          g.shape.batch * g.shape.kv_heads * ceil_div(g.shape.seq, Tiles<kDim, 2, E>::kKeys);
      if (blocks >= multiprocessors()) return launch<kDim, 2, false>(stream, g);
    }
    launch<kDim, 1, false>(stream, g);
  });
}

template void launch_attention_dkv(Stream, const AttentionGradient<bf16>&);
template void launch_attention_dkv(Stream, const AttentionGradient<fp16>&);
template void launch_attention_dkv(Stream, const AttentionGradient<float>&);
template void launch_attention_dkv(Stream, const AttentionGradient<SplitFloat>&);

}  // namespace rooflm::backends::cuda
