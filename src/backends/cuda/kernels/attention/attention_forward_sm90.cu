// Flash attention on Hopper's matrix instructions, forward: two warp groups take 64 queries each of a head
// past all keys that they see, 64 at a time; the next keys and values arrive while these are worked on.
#include <type_traits>

#include "backends/cuda/kernels/attention/attention_rules.cuh"
#include "backends/cuda/kernels/attention/attention_softmax.cuh"
#include "backends/cuda/kernels/attention/attention_warp_groups.cuh"
#include "backends/cuda/kernels/wgmma.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr const char* kWhat = "flash_attention";
constexpr int kThreads = 2 * kWarpGroup;
constexpr int kQueries = 2 * kGroupRows;
constexpr int kKeys = 64;

template <int kDim>
struct Tiles {
  static constexpr int kQueryBytes = kPanels<kDim> * kPanelBytes<kQueries>;
  static constexpr int kKeyBytes = kPanels<kDim> * kPanelBytes<kKeys>;
  static constexpr int kBytes =
      kQueryBytes + 4 * kKeyBytes + kPanelAlignment;  // two stages of keys and values
  static_assert(8 * kTileBytes<16, kDim> <= 4 * kKeyBytes, "results go out through the stages");
};

/// Block (head of batch, block of queries; the last ones, which have most work, first; group of heads).
/// What bends scores of wide heads keeps more registers than two blocks have.
template <int kDim, bool kRules, bool kBends>
__global__ void __launch_bounds__(kThreads, kBends&& kDim == 128 ? 1 : 2)
    attention_forward(AttentionShape s, float scale, const bf16* qkv, bf16* y, float* lse, Sinks sinks) {
  if constexpr (kHasWarpGroups) {
    using T = Tiles<kDim>;
    extern __shared__ unsigned char raw[];
    unsigned char* shared = align_panels(raw);
    const auto keys = [&](int stage) { return shared + T::kQueryBytes + stage * 2 * T::kKeyBytes; };
    const auto values = [&](int stage) { return shared + T::kQueryBytes + (stage * 2 + 1) * T::kKeyBytes; };
    const std::int64_t item = head_of_block();
    const std::int64_t batch = item / s.heads;
    if (batch >= s.batch) return;
    const std::int64_t head = item - batch * s.heads;
    const std::int64_t kv = head / (s.heads / s.kv_heads);
    const Packed<const bf16*> packed(s, qkv, batch);
    const std::int64_t first = (gridDim.y - 1 - blockIdx.y) * std::int64_t{kQueries};
    const HeadRules<kBends> rules(s, scale, head);
    const int first_tile = kRules ? static_cast<int>(rules.first_key(first) / kKeys) : 0;
    const PanelCopy<kKeys, kDim, kThreads> copy_tile(packed.stride);
    const auto copy_keys = [&](int tile) {
      const std::int64_t at = std::int64_t{tile} * kKeys;
      copy_tile(keys(tile % 2), packed.key(kv) + at * packed.stride, s.seq - at);
      copy_tile(values(tile % 2), packed.value(kv) + at * packed.stride, s.seq - at);
    };
    PanelCopy<kQueries, kDim, kThreads>{packed.stride}(shared, packed.query(head) + first * packed.stride,
                                                       s.seq - first);
    copy_keys(first_tile);

    const int group_row = static_cast<int>(threadIdx.x) / kWarpGroup * kGroupRows;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const std::int64_t group_end = first + group_row + kGroupRows;
    const std::int64_t row = first + warp * 16;  // the warp's first
    const std::int64_t end = min(s.seq, first + kQueries);
    const auto tiles = static_cast<int>((end + kKeys - 1) / kKeys);
    const float rest = kRules ? rules.rest() : scale;
    RunningSoftmax<1> softmax;
    Sums<1, kDim / 8> sums{};
    for (int tile = first_tile; tile < tiles; ++tile) {
      wait_for_copies();
      publish_to_matrix_unit();
      __syncthreads();  // this tile is here, and nobody reads the other stage any more
      if (tile + 1 < tiles) copy_keys(tile + 1);
      const std::int64_t key = std::int64_t{tile} * kKeys;
      if (key >= group_end) continue;  // all keys are behind this group's queries
      if (kRules && key + kKeys <= rules.first_key(group_end - kGroupRows)) continue;  // or before all
      Sums<1, 8> scores;
      begin_products();
      issue_tile_transposed<kDim, kQueries>(scores, shared, group_row, keys(tile % 2));
      finish_products();
      receive(scores);
      if constexpr (kRules) {
        apply_rules(rules, scores, row, key);
      } else if (key + kKeys > row + 1) {
        mask(scores, row, key);
      }
      softmax.template take<kRules>(scores, rest * kLog2E, sums);
      Factor<1, 4> p;
      p.round(scores);
      settle(p);
      receive(sums);
      begin_products();
      issue_tile<kDim>(sums, p, values(tile % 2));
      finish_products();
      receive(sums);
    }
    softmax.finish();

    const int lane = static_cast<int>(threadIdx.x) % 32;
    float inverse[1][2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const RowEnd end_of_row =
          RowEnd::of<kRules>(softmax.greatest[0][half] * rest, softmax.sum[0][half], sinks, head);
      inverse[0][half] = end_of_row.weight;
      const std::int64_t t = row + half * 8 + lane / 4;
      if (lane % 4 == 0 && t < s.seq) lse[(batch * s.heads + head) * s.seq + t] = end_of_row.lse;
    }
    __syncthreads();  // nobody reads a stage any more
    auto* own = reinterpret_cast<bf16*>(keys(0)) + warp * 16 * kTileStride<kDim>;
    bf16* to = y + batch * s.seq * s.heads * s.head_dim + head * s.head_dim;
    write_rows<kDim>(sums, inverse, own, to, s.heads * s.head_dim, row, s.seq, kDim);
  }
}

}  // namespace

void launch_attention_forward_warp_groups(Stream stream, const AttentionShape& s, const bf16* qkv, bf16* y,
                                          float* lse, const Sinks& sinks) {
  with_panel_dim(s.head_dim, [&]<class Dim>(Dim) {
    constexpr int kBytes = Tiles<Dim::value>::kBytes;
    const std::int64_t bytes = 2 * s.seq * s.head_dim * std::int64_t{sizeof(bf16)};  // keys and values
    const dim3 grid = head_grid(s.batch * s.heads, ceil_div(s.seq, kQueries), bytes, kWhat);
    auto* kernel = attention_forward<Dim::value, false, false>;
    if (s.has_rules()) kernel = attention_forward<Dim::value, true, false>;
    if (s.rules.cap > 0 || s.rules.alibi) kernel = attention_forward<Dim::value, true, true>;
    allow_shared(kernel, kBytes, kWhat);
    kernel<<<grid, kThreads, kBytes, stream>>>(s, scale_of(s), qkv, y, lse, sinks);
    check_launch(kWhat);
  });
}

bool prefers_warp_groups(const AttentionShape& shape) {
  const bool fits = shape.head_dim == 64 || shape.head_dim == 80 || shape.head_dim == 128;
  return ROOFLM_WARP_GROUPS != 0 && fits && has_warp_groups();
}

}  // namespace rooflm::backends::cuda
