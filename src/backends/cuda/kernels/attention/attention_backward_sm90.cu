// Gradient of flash attention on Hopper's matrix instructions. Queries: two warp groups take 64 queries each
// of a head past the keys that they see. Keys and values: a warp group takes 64 keys past the queries that
// see them, of all heads that share them; scores are computed transposed, so that p and ds stay in registers.
#include <type_traits>

#include "backends/cuda/kernels/attention/attention_gradient_of_scores.cuh"
#include "backends/cuda/kernels/attention/attention_warp_groups.cuh"
#include "backends/cuda/kernels/wgmma.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr const char* kWhat = "flash_attention_backward";
constexpr int kRows = 64;  // of a tile that is streamed past

template <int kDim>
struct QueryTiles {
  static constexpr int kThreads = 2 * kWarpGroup;
  static constexpr int kQueries = 2 * kGroupRows;
  static constexpr int kQueryBytes = kPanels<kDim> * kPanelBytes<kQueries>;
  static constexpr int kKeyBytes = kPanels<kDim> * kPanelBytes<kRows>;
  static constexpr int kBytes = 2 * kQueryBytes + 4 * kKeyBytes + kPanelAlignment;  // q, dy; stages of k, v
  static_assert(8 * kTileBytes<16, kDim> <= 4 * kKeyBytes, "results go out through the stages");
};

/// Block (head of batch, block of queries; the last ones, which have most work, first; group of heads).
template <int kDim, bool kRules>
__global__ void __launch_bounds__(2 * kWarpGroup, kDim == 64 ? 2 : 1)
    attention_dq(AttentionGradient<bf16> g) {
  if constexpr (kHasWarpGroups) {
    using T = QueryTiles<kDim>;
    extern __shared__ unsigned char raw[];
    unsigned char* queries = align_panels(raw);
    unsigned char* gradients = queries + T::kQueryBytes;
    const auto keys = [&](int stage) { return queries + 2 * T::kQueryBytes + stage * 2 * T::kKeyBytes; };
    const auto values = [&](int stage) { return keys(stage) + T::kKeyBytes; };
    const AttentionShape& s = g.shape;
    const std::int64_t item = head_of_block();
    const std::int64_t batch = item / s.heads;
    if (batch >= s.batch) return;
    const std::int64_t head = item - batch * s.heads;
    const std::int64_t kv = head / (s.heads / s.kv_heads);
    const Packed<const bf16*> packed(s, g.qkv, batch);
    const std::int64_t first = (gridDim.y - 1 - blockIdx.y) * std::int64_t{T::kQueries};
    const HeadRules rules(s, g.scale, head);
    const int first_tile = kRules ? static_cast<int>(rules.first_key(first) / kRows) : 0;
    const std::int64_t dy_stride = s.heads * s.head_dim;
    const PanelCopy<kRows, kDim, T::kThreads> copy_tile(packed.stride);
    const auto copy_keys = [&](int tile) {
      const std::int64_t at = std::int64_t{tile} * kRows;
      copy_tile(keys(tile % 2), packed.key(kv) + at * packed.stride, s.seq - at);
      copy_tile(values(tile % 2), packed.value(kv) + at * packed.stride, s.seq - at);
    };
    PanelCopy<T::kQueries, kDim, T::kThreads>{packed.stride}(
        queries, packed.query(head) + first * packed.stride, s.seq - first);
    PanelCopy<T::kQueries, kDim, T::kThreads>{dy_stride}(
        gradients, g.dy + (batch * s.seq + first) * dy_stride + head * s.head_dim, s.seq - first);
    copy_keys(first_tile);

    const int group_row = static_cast<int>(threadIdx.x) / kWarpGroup * kGroupRows;
    const int own = static_cast<int>(threadIdx.x) / 32 * 16;
    const std::int64_t row = first + own;
    wait_for_copies();
    __syncthreads();
    Rows<1> rows;
    rows.read(g, batch, head, row, [&](int own_row, int d) {
      const int at = own + own_row;
      return reinterpret_cast<const bf16*>(gradients + d / kPanelCols * kPanelBytes<T::kQueries> +
                                           at * kPanelRowBytes + (d % kPanelCols / 8 ^ at % 8) * 16);
    });
    const std::int64_t end = min(s.seq, first + T::kQueries);
    const auto tiles = static_cast<int>((end + kRows - 1) / kRows);
    Sums<1, kDim / 8> dq{};
    for (int tile = first_tile; tile < tiles; ++tile) {
      wait_for_copies();
      publish_to_matrix_unit();
      __syncthreads();  // this tile is here, and nobody reads the other stage any more
      if (tile + 1 < tiles) copy_keys(tile + 1);
      const std::int64_t key = std::int64_t{tile} * kRows;
      if (key >= first + group_row + kGroupRows) continue;  // all keys are behind this group's queries
      if (kRules && key + kRows <= rules.first_key(first + group_row)) continue;  // or before all they see
      Sums<1, 8> scores;
      Sums<1, 8> ds;
      begin_products();
      issue_tile_transposed<kDim, T::kQueries>(scores, queries, group_row, keys(tile % 2));
      group_products();
      issue_tile_transposed<kDim, T::kQueries>(ds, gradients, group_row, values(tile % 2));
      group_products();
      await_products<1>();
      receive(scores);
      if constexpr (kRules) {
        probabilities(rules, scores, rows, row, key);
      } else {
        probabilities(scores, rows, g.scale * kLog2E, row, key);
      }
      await_products<0>();
      receive(ds);
      gradient_of_scores(scores, ds, rows);
      Factor<1, 4> factor;
      factor.round(ds);
      settle(factor);
      receive(dq);
      begin_products();
      issue_tile<kDim>(dq, factor, keys(tile % 2));
      finish_products();
      receive(dq);
    }
    __syncthreads();  // nobody reads a stage any more
    auto* tile = reinterpret_cast<bf16*>(keys(0)) + own * kTileStride<kDim>;
    const float scale[1][2] = {{g.scale, g.scale}};
    const Packed<bf16*> out(s, g.dqkv, batch);
    write_rows<kDim>(dq, scale, tile, out.query(head), out.stride, row, s.seq, kDim);
  }
}

template <int kDim>
struct KeyTiles {
  static constexpr int kTile = kPanels<kDim> * kPanelBytes<kRows>;  // of 64 keys or queries
  static constexpr int kRowBytes = kRows * static_cast<int>(sizeof(float));
  static constexpr int kStageBytes = 2 * kTile;                // q and dy
  static constexpr int kRowsAt = 2 * kTile + 2 * kStageBytes;  // lse and delta of both stages
  static constexpr int kBytes = kRowsAt + 4 * kRowBytes + kPanelAlignment;
  static_assert(4 * kTileBytes<16, kDim> <= 2 * kStageBytes, "results go out through the stages");
};

/// Where a block is among the queries that see its keys: past those of one head, then of the next one that
/// shares them.
struct Walk {
  int head, tile;
  __device__ void go_on(int first_tile, int end_tile) {
    if (++tile < end_tile) return;
    tile = first_tile;
    ++head;
  }
};

/// Block (key head of batch, block of keys, of which the first ones have most work; group of heads).
template <int kDim, bool kRules>
__global__ void __launch_bounds__(kWarpGroup, kDim == 64 ? 3 : 2) attention_dkv(AttentionGradient<bf16> g) {
  if constexpr (kHasWarpGroups) {
    using T = KeyTiles<kDim>;
    extern __shared__ unsigned char raw[];
    unsigned char* keys = align_panels(raw);
    unsigned char* values = keys + T::kTile;
    const auto queries = [&](int step) { return keys + 2 * T::kTile + step % 2 * T::kStageBytes; };
    const auto gradients = [&](int step) { return queries(step) + T::kTile; };
    const auto lse = [&](int step) {
      return reinterpret_cast<float*>(keys + T::kRowsAt + step % 2 * 2 * T::kRowBytes);
    };
    const auto delta = [&](int step) { return lse(step) + kRows; };
    const AttentionShape& s = g.shape;
    const std::int64_t item = head_of_block();
    const std::int64_t batch = item / s.kv_heads;
    if (batch >= s.batch) return;
    const std::int64_t kv = item - batch * s.kv_heads;
    const auto group = static_cast<int>(s.heads / s.kv_heads);
    const Packed<const bf16*> packed(s, g.qkv, batch);
    const std::int64_t first = blockIdx.y * std::int64_t{kGroupRows};
    const auto first_tile = static_cast<int>(blockIdx.y);
    const std::int64_t end =
        kRules ? min(s.seq, HeadRules(s, g.scale, 0).end_query(first + kGroupRows - 1)) : s.seq;
    const int tiles = static_cast<int>((end + kRows - 1) / kRows) - first_tile;  // of each head
    const std::int64_t dy_stride = s.heads * s.head_dim;
    const PanelCopy<kRows, kDim, kWarpGroup> copy_tile(packed.stride);
    const PanelCopy<kRows, kDim, kWarpGroup> copy_gradient(dy_stride);
    const auto copy_queries = [&](int step, Walk at) {
      const std::int64_t head = kv * group + at.head;
      const std::int64_t query = std::int64_t{at.tile} * kRows;
      copy_tile(queries(step), packed.query(head) + query * packed.stride, s.seq - query);
      copy_gradient(gradients(step), g.dy + (batch * s.seq + query) * dy_stride + head * s.head_dim,
                    s.seq - query);
      const int row = static_cast<int>(threadIdx.x) % kRows;
      const float* rows =
          (static_cast<int>(threadIdx.x) < kRows ? g.lse : g.delta) + (batch * s.heads + head) * s.seq;
      const bool exists = query + row < s.seq;
      copy_4(lse(step) + threadIdx.x, rows + (exists ? query + row : 0), exists);  // delta is behind lse
    };
    copy_tile(keys, packed.key(kv) + first * packed.stride, s.seq - first);
    copy_tile(values, packed.value(kv) + first * packed.stride, s.seq - first);
    Walk at{.head = 0, .tile = first_tile};
    copy_queries(0, at);

    const int own = static_cast<int>(threadIdx.x) / 32 * 16;
    Sums<1, kDim / 8> dk{};
    Sums<1, kDim / 8> dv{};
    for (int step = 0; step < group * tiles; ++step) {
      wait_for_copies();
      publish_to_matrix_unit();
      __syncthreads();  // this step's queries are here, and nobody reads the other stage any more
      const std::int64_t query = std::int64_t{at.tile} * kRows;
      const HeadRules rules(s, g.scale, kv * group + at.head);
      at.go_on(first_tile, first_tile + tiles);
      if (step + 1 < group * tiles) copy_queries(step + 1, at);
      Sums<1, 8> p;
      Sums<1, 8> ds;
      begin_products();
      issue_tile_transposed<kDim, kRows>(p, keys, 0, queries(step));
      group_products();
      issue_tile_transposed<kDim, kRows>(ds, values, 0, gradients(step));
      group_products();
      await_products<1>();
      receive(p);
      if constexpr (kRules) {
        transposed_probabilities(rules, p, lse(step), first + own, query);
      } else {
        transposed_probabilities(p, lse(step), g.scale * kLog2E, first + own, query);
      }
      await_products<0>();
      receive(ds);
      gradient_of_transposed_scores(p, ds, delta(step));
      if constexpr (kRules) derive_transposed(rules, p, ds, lse(step), first + own, query);
      Factor<1, 4> left;
      Factor<1, 4> right;
      left.round(p);
      right.round(ds);
      settle(left);
      settle(right);
      receive(dv);
      receive(dk);
      begin_products();
      issue_tile<kDim>(dv, left, gradients(step));
      issue_tile<kDim>(dk, right, queries(step));
      finish_products();
      receive(dv);
      receive(dk);
    }
    __syncthreads();  // nobody reads a stage any more
    auto* tile = reinterpret_cast<bf16*>(queries(0)) + own * kTileStride<kDim>;
    const float scale[1][2] = {{g.scale, g.scale}};
    const float one[1][2] = {{1.0F, 1.0F}};
    const Packed<bf16*> out(s, g.dqkv, batch);
    write_rows<kDim>(dk, scale, tile, out.key(kv), out.stride, first + own, s.seq, kDim);
    write_rows<kDim>(dv, one, tile, out.value(kv), out.stride, first + own, s.seq, kDim);
  }
}

}  // namespace

void launch_attention_dq_warp_groups(Stream stream, const AttentionGradient<bf16>& g) {
  const AttentionShape& s = g.shape;
  with_panel_dim(s.head_dim, [&]<class Dim>(Dim) {
    using T = QueryTiles<Dim::value>;
    const std::int64_t bytes = 2 * s.seq * s.head_dim * std::int64_t{sizeof(bf16)};  // keys and values
    const dim3 grid = head_grid(s.batch * s.heads, ceil_div(s.seq, T::kQueries), bytes, kWhat);
    auto* kernel = s.bends_scores() ? attention_dq<Dim::value, true> : attention_dq<Dim::value, false>;
    allow_shared(kernel, T::kBytes, kWhat);
    kernel<<<grid, T::kThreads, T::kBytes, stream>>>(g);
    check_launch(kWhat);
  });
}

void launch_attention_dkv_warp_groups(Stream stream, const AttentionGradient<bf16>& g) {
  const AttentionShape& s = g.shape;
  with_panel_dim(s.head_dim, [&]<class Dim>(Dim) {
    constexpr int kBytes = KeyTiles<Dim::value>::kBytes;
    // Queries and gradients of the heads that share keys.
    const std::int64_t bytes = 2 * s.heads / s.kv_heads * s.seq * s.head_dim * std::int64_t{sizeof(bf16)};
    const dim3 grid = head_grid(s.batch * s.kv_heads, ceil_div(s.seq, kGroupRows), bytes, kWhat);
    auto* kernel = s.bends_scores() ? attention_dkv<Dim::value, true> : attention_dkv<Dim::value, false>;
    allow_shared(kernel, kBytes, kWhat);
    kernel<<<grid, kWarpGroup, kBytes, stream>>>(g);
    check_launch(kWhat);
  });
}

}  // namespace rooflm::backends::cuda
