// The one-pass gradient of attention (attention_backward_fused.cu): shared memory, barriers, how blocks walk
// past tiles, and the warp that loads.
#pragma once

#include "backends/cuda/kernels/attention/attention_backward.cuh"
#include "backends/cuda/kernels/attention/attention_warp_groups.cuh"
#include "backends/cuda/kernels/tensor_copy.cuh"
#include "backends/cuda/kernels/wgmma.cuh"

namespace rooflm::backends::cuda {

constexpr int kFusedKeys = 128;  // of a block
constexpr int kFusedThreads = 3 * kWarpGroup;
/// Lanes of a warp that read different numbers of a tile's rows, and arrive for it.
constexpr int kFusedReaders = 4;
constexpr int kFusedParts = 2;  // of a tile of dq: 64 rows of 64 columns each, one of each group
constexpr int kPartFloats = 64 * 64;
constexpr int kPartBytes = 4 * kPartFloats;

/// Queries of a tile: registers hold scores and their gradients beside dk and dv.
template <int kDim>
constexpr int kFusedQueries = kDim == 64 ? 128 : 64;

/// Operands. Workspace: rows [B H, tiles, 2, queries] fp32 hold -lse log2(e) and delta, zeros behind the end;
/// sums [B H, tiles, 2, 64, 64] fp32 hold dq / scale as kPartStride says, zeros before the kernel, as is
/// next, the number of walks that were handed out beyond the first of each block.
struct FusedGradient {
  CUtensorMap queries, keys, gradients;  // boxes of kFusedQueries or kFusedKeys rows, 64 columns of qkv or dy
  AttentionShape shape;
  float scale;
  int items, tiles;  // walks; tiles of queries of a head
  bf16* dqkv;
  const float* rows;
  float* sums;
  int* next;
};

/// kWindowed: queries see so many keys, as shape.rules.window says.
template <int kDim_, bool kWindowed_>
struct FusedTiles {
  static constexpr bool kWindowed = kWindowed_;
  static constexpr int kDim = kDim_, kQueries = kFusedQueries<kDim>;
  static constexpr int kKeyStages = 2;
  static constexpr int kTilesOfKeys = kFusedKeys / kQueries;
  static constexpr int kQueryBytes = kPanels<kDim> * kPanelBytes<kQueries>;
  static constexpr int kKeyBytes = kPanels<kDim> * kPanelBytes<kFusedKeys>;
  static constexpr int kScoreBytes = kQueries / 64 * kPanelBytes<kFusedKeys>;
  static constexpr int kRowBytes = 2 * kQueries * 4;
  // Shared memory: two stages each of keys and values, queries, dy, ds, rows; barriers.
  static constexpr int kQueriesAt = kKeyStages * 2 * kKeyBytes;
  static constexpr int kGradientsAt = kQueriesAt + 2 * kQueryBytes;
  static constexpr int kScoresAt = kGradientsAt + 2 * kQueryBytes;
  static constexpr int kRowsAt = kScoresAt + 2 * kScoreBytes;
  static constexpr int kBarriersAt = kRowsAt + 2 * kRowBytes;
  static constexpr int kBarriers = 2 * 9;
  static constexpr int kItemsAt = kBarriersAt + 8 * kBarriers;
  static constexpr int kBytes = kItemsAt + 4 * kKeyStages;
  static_assert(kBytes <= 227 * 1024);
};

/// The barriers of a block: x_full and x_empty of both stages.
struct FusedBarriers {
  unsigned base;
  [[nodiscard]] __device__ PhaseBarrier at(int i) const { return PhaseBarrier(base + 8 * i); }
  [[nodiscard]] __device__ PhaseBarrier keys_full(int s) const { return at(s); }
  [[nodiscard]] __device__ PhaseBarrier keys_empty(int s) const { return at(2 + s); }
  [[nodiscard]] __device__ PhaseBarrier queries_full(int s) const { return at(4 + s); }
  [[nodiscard]] __device__ PhaseBarrier queries_empty(int s) const { return at(6 + s); }
  [[nodiscard]] __device__ PhaseBarrier gradients_full(int s) const { return at(8 + s); }
  [[nodiscard]] __device__ PhaseBarrier gradients_empty(int s) const { return at(10 + s); }
  [[nodiscard]] __device__ PhaseBarrier scores_full(int s) const { return at(12 + s); }
  [[nodiscard]] __device__ PhaseBarrier scores_empty(int s) const { return at(14 + s); }
  /// Whether a group may issue matmuls.
  [[nodiscard]] __device__ PhaseBarrier turn(int group) const { return at(16 + group); }

  __device__ void init() const {
    constexpr int kConsumers = 8;  // warps
    for (int s = 0; s < 2; ++s) {
      for (const PhaseBarrier full : {keys_full(s), queries_full(s), gradients_full(s)}) full.init(1);
      for (const PhaseBarrier empty : {keys_empty(s), gradients_empty(s), scores_full(s), scores_empty(s)}) {
        empty.init(kConsumers);
      }
      queries_empty(s).init(kConsumers * kFusedReaders);
      turn(s).init(kConsumers / 2);
    }
    publish_barriers();
  }
};

/// Waits for phases, each time with so many tries, a tenth of a second at least; once that was too few, no
/// more. So an error of ours leads to wrong results, not to a kernel that never ends. (A trap would cost
/// registers: with one in a wait the compiler gives each matmul a wait of its own.)
class Waits {
 public:
  __device__ void operator()(PhaseBarrier barrier, unsigned phase) {
    for (int left = most_; !barrier.has_completed(phase); --left) {
      if (left > 0) continue;
      most_ = 0;
      break;
    }
  }

 private:
  int most_ = 1 << 22;
};

/// One walk: 128 keys of a key head of the batch past the tiles of queries that see them, of one query head
/// after the other.
template <class T>
struct FusedWalk {
  int batch, kv, block, first_tile, tiles, head, end_head,
      tile;  // head and tile: where it is; tiles: the end

  __device__ FusedWalk(const FusedGradient& g, int item) {
    const int blocks = (static_cast<int>(g.shape.seq) + kFusedKeys - 1) / kFusedKeys;
    const auto kv_heads = static_cast<int>(g.shape.kv_heads);
    const int group = static_cast<int>(g.shape.heads) / kv_heads;
    const int owner = item / blocks;
    block = item - owner * blocks;
    batch = owner / kv_heads;
    kv = owner - batch * kv_heads;
    first_tile = block * (kFusedKeys / T::kQueries);
    tiles = g.tiles;
    if constexpr (T::kWindowed) {
      const std::int64_t end = std::int64_t{block + 1} * kFusedKeys - 1 + g.shape.rules.window;
      tiles = static_cast<int>(min(std::int64_t{tiles}, (end + T::kQueries - 1) / T::kQueries));
    }
    head = kv * group;
    end_head = head + group;
    tile = first_tile;
  }
  __device__ int steps() const { return (end_head - head) * (tiles - first_tile); }  // before the first
  __device__ void go_on() {
    if (++tile < tiles) return;
    tile = first_tile;
    ++head;
  }
  /// Which tile of all heads it is at.
  __device__ int place(const FusedGradient& g) const {
    return (batch * static_cast<int>(g.shape.heads) + head) * g.tiles + tile;
  }
};

/// The warp that loads; one lane does it.
template <class T>
__device__ void load_walks(const FusedGradient& g, unsigned shared, FusedBarriers barriers,
                           volatile int* items) {
  const auto heads = static_cast<int>(g.shape.heads);
  const auto kv_heads = static_cast<int>(g.shape.kv_heads);
  const auto known = [&](int item) { return item < g.items ? item : -1; };
  int item = known(static_cast<int>(blockIdx.x));
  Waits await;
  int step = 0;
  for (int visit = 0;; ++visit, item = known(static_cast<int>(gridDim.x) + atomicAdd(g.next, 1))) {
    const int key_stage = visit % 2;
    await(barriers.keys_empty(key_stage), visit / 2 % 2 ^ 1);
    items[key_stage] = item;
    const PhaseBarrier keys_full = barriers.keys_full(key_stage);
    if (item < 0) {
      keys_full.arrive();
      return;
    }
    FusedWalk<T> walk(g, item);
    keys_full.expect(2 * T::kKeyBytes);
#pragma unroll
    for (int panel = 0; panel < kPanels<T::kDim>; ++panel) {
      const unsigned to = shared + key_stage * 2 * T::kKeyBytes + panel * kPanelBytes<kFusedKeys>;
      const int key = walk.block * kFusedKeys;
      const int column = (heads + walk.kv) * T::kDim + panel * kPanelCols;
      copy_box(to, g.keys, column, key, walk.batch, keys_full);
      copy_box(to + T::kKeyBytes, g.keys, column + kv_heads * T::kDim, key, walk.batch, keys_full);
    }
    const int steps = walk.steps();
    for (int i = 0; i < steps; ++i, ++step, walk.go_on()) {
      const int stage = step % 2;
      const unsigned phase = step / 2 % 2 ^ 1;
      const int row = walk.tile * T::kQueries;
      await(barriers.queries_empty(stage), phase);
      const PhaseBarrier queries_full = barriers.queries_full(stage);
      queries_full.expect(T::kQueryBytes + T::kRowBytes);
#pragma unroll
      for (int panel = 0; panel < kPanels<T::kDim>; ++panel) {
        copy_box(shared + T::kQueriesAt + stage * T::kQueryBytes + panel * kPanelBytes<T::kQueries>,
                 g.queries, walk.head * T::kDim + panel * kPanelCols, row, walk.batch, queries_full);
      }
      copy_bytes(shared + T::kRowsAt + stage * T::kRowBytes,
                 g.rows + std::int64_t{walk.place(g)} * 2 * T::kQueries, T::kRowBytes, queries_full);
      await(barriers.gradients_empty(stage), phase);
      const PhaseBarrier gradients_full = barriers.gradients_full(stage);
      gradients_full.expect(T::kQueryBytes);
#pragma unroll
      for (int panel = 0; panel < kPanels<T::kDim>; ++panel) {
        copy_box(shared + T::kGradientsAt + stage * T::kQueryBytes + panel * kPanelBytes<T::kQueries>,
                 g.gradients, walk.head * T::kDim + panel * kPanelCols, row, walk.batch, gradients_full);
      }
    }
  }
}

}  // namespace rooflm::backends::cuda
