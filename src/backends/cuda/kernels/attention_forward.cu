// Flash attention on tensor cores, forward (Dao, 2023): a block takes 64 or 128 queries of a head past all
// keys that they see, 64 at a time; the next keys and values arrive while these are worked on.
#include <type_traits>

#include "backends/cuda/kernels/attention_softmax.cuh"
#include "backends/cuda/kernels/attention_tiles.cuh"
#include "backends/cuda/kernels/attention_warp_groups.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kKeys = 64;
constexpr const char* kWhat = "flash_attention";

template <int kDim, int kM>
struct Tiles {
  static constexpr int kQueries = 16 * kM * kAttentionWarps;
  static constexpr int kQueryBytes = kTileBytes<kQueries, kDim>;
  static constexpr int kKeyBytes = kTileBytes<kKeys, kDim>;
  static constexpr int kBytes = kQueryBytes + 4 * kKeyBytes;  // two stages of keys and values
};

/// Block (head of batch, block of queries; the last ones, which have most work, first).
template <int kDim, int kM>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_forward(AttentionShape s, float scale, const bf16* qkv, bf16* y, float* lse) {
  using T = Tiles<kDim, kM>;
  extern __shared__ __align__(16) unsigned char shared[];
  auto* queries = reinterpret_cast<bf16*>(shared);
  const auto keys = [&](int stage) {
    return reinterpret_cast<bf16*>(shared + T::kQueryBytes + stage * 2 * T::kKeyBytes);
  };
  const auto values = [&](int stage) {
    return reinterpret_cast<bf16*>(shared + T::kQueryBytes + (stage * 2 + 1) * T::kKeyBytes);
  };
  const std::int64_t batch = blockIdx.x / s.heads;
  const std::int64_t head = blockIdx.x - batch * s.heads;
  const std::int64_t kv = head / (s.heads / s.kv_heads);
  const Packed<const bf16*> packed(s, qkv, batch);
  const auto dim = static_cast<int>(s.head_dim);
  const std::int64_t first = (gridDim.y - 1 - blockIdx.y) * std::int64_t{T::kQueries};
  const auto copy_keys = [&](int tile) {
    const std::int64_t at = std::int64_t{tile} * kKeys;
    copy_tile<kKeys, kDim, kAttentionThreads>(keys(tile % 2), packed.key(kv), packed.stride, at, s.seq, dim);
    copy_tile<kKeys, kDim, kAttentionThreads>(values(tile % 2), packed.value(kv), packed.stride, at, s.seq,
                                              dim);
  };
  copy_tile<T::kQueries, kDim, kAttentionThreads>(queries, packed.query(head), packed.stride, first, s.seq,
                                                  dim);
  copy_keys(0);

  const int warp = static_cast<int>(threadIdx.x) / 32;
  bf16* own_queries = queries + warp * 16 * kM * kTileStride<kDim>;
  const std::int64_t row = first + warp * 16 * kM;  // the warp's first
  const std::int64_t end = min(s.seq, first + T::kQueries);
  const auto tiles = static_cast<int>((end + kKeys - 1) / kKeys);
  RunningSoftmax<kM> softmax;
  Sums<kM, kDim / 8> sums{};
  for (int tile = 0; tile < tiles; ++tile) {
    wait_for_copies();
    __syncthreads();  // this tile is here, and nobody reads the other stage any more
    if (tile + 1 < tiles) copy_keys(tile + 1);
    const std::int64_t key = std::int64_t{tile} * kKeys;
    if (key >= row + 16 * kM) continue;  // all keys are behind this warp's queries
    Sums<kM, kKeys / 8> scores{};
    add_product_transposed<kDim>(scores, own_queries, keys(tile % 2));
    if (key + kKeys > row + 1) mask(scores, row, key);
    softmax.take(scores, scale * kLog2E, sums);
    Factor<kM, kKeys / 16> p;
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
      inverse[m][half] = 1.0F / softmax.sum[m][half];
      const std::int64_t t = row + m * 16 + half * 8 + lane / 4;
      if (lane % 4 == 0 && t < s.seq) {
        lse[(batch * s.heads + head) * s.seq + t] =
            softmax.greatest[m][half] * scale + logf(softmax.sum[m][half]);
      }
    }
  }
  bf16* to = y + batch * s.seq * s.heads * s.head_dim + head * s.head_dim;
  write_rows<kDim>(sums, inverse, own_queries, to, s.heads * s.head_dim, row, s.seq, dim);
}

template <int kDim, int kM>
void launch(Stream stream, const AttentionShape& s, const bf16* qkv, bf16* y, float* lse) {
  using T = Tiles<kDim, kM>;
  const dim3 grid(grid_size(s.batch * s.heads, kWhat), static_cast<unsigned>(ceil_div(s.seq, T::kQueries)));
  allow_shared(attention_forward<kDim, kM>, T::kBytes, kWhat);
  const float scale = 1.0F / sqrtf(static_cast<float>(s.head_dim));
  attention_forward<kDim, kM><<<grid, kAttentionThreads, T::kBytes, stream>>>(s, scale, qkv, y, lse);
  check_launch(kWhat);
}

}  // namespace

void launch_attention_forward_mma(Stream stream, const AttentionShape& s, const bf16* qkv, bf16* y,
                                  float* lse) {
  with_tile_dim(s.head_dim, [&]<class Dim>(Dim) {
    // 128 queries need half the traffic of shared memory, if that leaves a block for every multiprocessor.
    using Large = Tiles<Dim::value, 2>;
    const std::int64_t blocks = s.batch * s.heads * ceil_div(s.seq, Large::kQueries);
    if (blocks >= multiprocessors() && Large::kBytes <= most_shared_bytes()) {
      launch<Dim::value, 2>(stream, s, qkv, y, lse);
    } else {
      launch<Dim::value, 1>(stream, s, qkv, y, lse);
    }
  });
}

}  // namespace rooflm::backends::cuda
