// The one-pass gradient of attention (attention_backward_fused.cu): how blocks walk past tiles, and the two
// warps that bring operands and take dq away.
#pragma once

#include "backends/cuda/kernels/attention_backward.cuh"
#include "backends/cuda/kernels/attention_warp_groups.cuh"
#include "backends/cuda/kernels/tensor_copy.cuh"
#include "backends/cuda/kernels/wgmma.cuh"

namespace rooflm::backends::cuda {

constexpr int kFusedKeys = 128;  // of a block
constexpr int kFusedThreads = 3 * kWarpGroup;
constexpr int kFusedParts = 2;  // of a tile of dq: 64 rows of 64 columns each, one of each group
constexpr int kPartFloats = 64 * 64;
constexpr int kPartBytes = 4 * kPartFloats;

/// Queries of a tile: registers hold scores and their gradients beside dk and dv.
template <int kDim>
constexpr int kFusedQueries = kDim == 64 ? 128 : 64;

/// Operands. Workspace: rows [B H, tiles, 2, queries] fp32 hold -lse log2(e) and delta, zeros behind the end;
/// sums [B H, tiles, 2, 64, 64] fp32 hold dq / scale as place_in_part says, zeros before the kernel, as is
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

template <int kDim_>
struct FusedTiles {
  static constexpr int kDim = kDim_, kQueries = kFusedQueries<kDim>;
  static constexpr int kKeyStages = kDim == 64 ? 2 : 1;  // as shared memory allows
  static constexpr bool kAhead = kDim == 64;             // the next scores begin before this tile is done
  static constexpr int kQueryBytes = kPanels<kDim> * kPanelBytes<kQueries>;
  static constexpr int kKeyBytes = kPanels<kDim> * kPanelBytes<kFusedKeys>;
  static constexpr int kScoreBytes = kQueries / 64 * kPanelBytes<kFusedKeys>;
  static constexpr int kRowBytes = 2 * kQueries * 4;
  // Shared memory: stages of keys and values, stages of queries, stages of dy, ds, dq, rows, barriers.
  static constexpr int kQueriesAt = kKeyStages * 2 * kKeyBytes;
  static constexpr int kGradientsAt = kQueriesAt + 2 * kQueryBytes;
  static constexpr int kScoresAt = kGradientsAt + 2 * kQueryBytes;
  static constexpr int kSumsAt = kScoresAt + kScoreBytes;
  static constexpr int kRowsAt = kSumsAt + kFusedParts * kPartBytes;
  static constexpr int kBarriersAt = kRowsAt + 2 * kRowBytes;
  static constexpr int kBarriers = 2 * kKeyStages + 8 + 1 + 2 * kFusedParts;
  static constexpr int kItemsAt = kBarriersAt + 8 * kBarriers;
  static constexpr int kBytes = kItemsAt + 4 * kKeyStages;
};

/// The barriers of a block: x_full and x_empty of each stage.
template <class T>
struct FusedBarriers {
  unsigned base;
  __device__ PhaseBarrier at(int i) const { return PhaseBarrier(base + 8 * i); }
  __device__ PhaseBarrier keys_full(int s) const { return at(s); }
  __device__ PhaseBarrier keys_empty(int s) const { return at(T::kKeyStages + s); }
  __device__ PhaseBarrier queries_full(int s) const { return at(2 * T::kKeyStages + s); }
  __device__ PhaseBarrier queries_empty(int s) const { return at(2 * T::kKeyStages + 2 + s); }
  __device__ PhaseBarrier gradients_full(int s) const { return at(2 * T::kKeyStages + 4 + s); }
  __device__ PhaseBarrier gradients_empty(int s) const { return at(2 * T::kKeyStages + 6 + s); }
  __device__ PhaseBarrier scores_empty() const { return at(2 * T::kKeyStages + 8); }
  __device__ PhaseBarrier sums_full(int part) const { return at(2 * T::kKeyStages + 9 + part); }
  __device__ PhaseBarrier sums_empty(int part) const {
    return at(2 * T::kKeyStages + 9 + kFusedParts + part);
  }

  __device__ void init() const {
    constexpr int kConsumers = 8;  // warps
    for (int s = 0; s < T::kKeyStages; ++s) {
      keys_full(s).init(1);
      keys_empty(s).init(kConsumers + 1);
    }
    for (int s = 0; s < 2; ++s) {
      queries_full(s).init(1);
      queries_empty(s).init(kConsumers);
      gradients_full(s).init(1);
      gradients_empty(s).init(kConsumers);
    }
    scores_empty().init(kConsumers);
    for (int part = 0; part < kFusedParts; ++part) {
      sums_full(part).init(4);
      sums_empty(part).init(1);
    }
    publish_barriers();
  }
};

/// Waits for a phase of a barrier.
__device__ inline void await_phase(PhaseBarrier barrier, unsigned phase) {
  while (!barrier.has_completed(phase)) {
  }
}

/// One walk: 128 keys of a key head of the batch past the tiles of queries that see them, of one query head
/// after the other.
template <class T>
struct FusedWalk {
  int batch, kv, block, first_tile, tiles, head, end_head, tile;  // head and tile: where it is

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
    return (batch * static_cast<int>(g.shape.heads) + head) * tiles + tile;
  }
};

/// The warp that loads; one lane does it.
template <class T>
__device__ void load_walks(const FusedGradient& g, unsigned shared, FusedBarriers<T> barriers,
                           volatile int* items) {
  const auto heads = static_cast<int>(g.shape.heads);
  const auto kv_heads = static_cast<int>(g.shape.kv_heads);
  int step = 0;
  for (int visit = 0;; ++visit) {
    const int key_stage = visit % T::kKeyStages;
    await_phase(barriers.keys_empty(key_stage), visit / T::kKeyStages % 2 ^ 1);
    const int item =
        visit == 0 ? static_cast<int>(blockIdx.x) : static_cast<int>(gridDim.x) + atomicAdd(g.next, 1);
    items[key_stage] = item < g.items ? item : -1;
    if (item >= g.items) {
      barriers.keys_full(key_stage).arrive();
      return;
    }
    FusedWalk<T> walk(g, item);
    const int steps = walk.steps();
    const unsigned keys = shared + key_stage * 2 * T::kKeyBytes;
    for (int i = 0; i < steps; ++i, ++step, walk.go_on()) {
      const int stage = step % 2;
      const unsigned phase = step / 2 % 2 ^ 1;
      const int row = walk.tile * T::kQueries;
      await_phase(barriers.queries_empty(stage), phase);
      barriers.queries_full(stage).expect(T::kQueryBytes + T::kRowBytes);
#pragma unroll
      for (int panel = 0; panel < kPanels<T::kDim>; ++panel) {
        copy_box(shared + T::kQueriesAt + stage * T::kQueryBytes + panel * kPanelBytes<T::kQueries>,
                 g.queries, walk.head * T::kDim + panel * kPanelCols, row, walk.batch,
                 barriers.queries_full(stage));
      }
      copy_bytes(shared + T::kRowsAt + stage * T::kRowBytes,
                 g.rows + std::int64_t{walk.place(g)} * 2 * T::kQueries, T::kRowBytes,
                 barriers.queries_full(stage));
      if (i == 0) {
        const PhaseBarrier full = barriers.keys_full(key_stage);
        full.expect(2 * T::kKeyBytes);
#pragma unroll
        for (int panel = 0; panel < kPanels<T::kDim>; ++panel) {
          const unsigned to = keys + panel * kPanelBytes<kFusedKeys>;
          const int key = walk.block * kFusedKeys;
          const int column = (heads + walk.kv) * T::kDim + panel * kPanelCols;
          copy_box(to, g.keys, column, key, walk.batch, full);
          copy_box(to + T::kKeyBytes, g.keys, column + kv_heads * T::kDim, key, walk.batch, full);
        }
      }
      await_phase(barriers.gradients_empty(stage), phase);
      barriers.gradients_full(stage).expect(T::kQueryBytes);
#pragma unroll
      for (int panel = 0; panel < kPanels<T::kDim>; ++panel) {
        copy_box(shared + T::kGradientsAt + stage * T::kQueryBytes + panel * kPanelBytes<T::kQueries>,
                 g.gradients, walk.head * T::kDim + panel * kPanelCols, row, walk.batch,
                 barriers.gradients_full(stage));
      }
    }
  }
}

/// Where element (row, column) of a part of dq lies: chunks of 8 floats are swizzled, so that eight rows of a
/// product's sums lie in different banks.
__device__ inline int place_in_part(int row, int column) {
  return row * 64 + ((column / 8 ^ row % 8) * 8) + column % 8;
}

/// Where dq of a tile goes: its first row, and how many there are.
struct TileOfDq {
  bf16* to;
  int stride, rows;
  float scale;

  __device__ TileOfDq(const FusedGradient& g, int batch, int head, int first)
      : stride(static_cast<int>((g.shape.heads + 2 * g.shape.kv_heads) * g.shape.head_dim)),
        rows(static_cast<int>(g.shape.seq) - first),
        scale(g.scale) {
    to = g.dqkv + (batch * g.shape.seq + first) * stride + head * g.shape.head_dim;
  }
  /// Four sums of part `part`, from place `place` on, as bf16.
  template <int kQueries>
  __device__ void write(int part, int place, float4 sum) const {
    constexpr int kRowParts = kQueries / 64;
    const int row = place / 64 + part % kRowParts * 64;
    const int column = (place / 8 % 8 ^ row % 8) * 8 + place % 8 + part / kRowParts * 64;
    if (row >= rows) return;
    *reinterpret_cast<uint2*>(to + row * stride + column) =
        make_uint2(pack_pair(sum.x * scale, sum.y * scale, to), pack_pair(sum.z * scale, sum.w * scale, to));
  }
};

/// The warp that adds dq to global memory; one lane does it.
template <class T>
__device__ void add_walks(const FusedGradient& g, unsigned shared, FusedBarriers<T> barriers,
                          const volatile int* items) {
  int step = 0;
  for (int visit = 0;; ++visit) {
    const int key_stage = visit % T::kKeyStages;
    await_phase(barriers.keys_full(key_stage), visit / T::kKeyStages % 2);
    const int item = items[key_stage];
    if (item < 0) return;
    FusedWalk<T> walk(g, item);
    barriers.keys_empty(key_stage).arrive();
    const int steps = walk.steps();
    for (int i = 0; i < steps; ++i, ++step, walk.go_on()) {
      float* sums = g.sums + std::int64_t{walk.place(g)} * kFusedParts * kPartFloats;
      for (int part = 0; part < kFusedParts; ++part) {
        await_phase(barriers.sums_full(part), step % 2);
        add_floats(sums + part * kPartFloats, shared + T::kSumsAt + part * kPartBytes, kPartBytes);
        group_stores();
      }
      await_stores_read();
      for (int part = 0; part < kFusedParts; ++part) barriers.sums_empty(part).arrive();
    }
  }
}

}  // namespace rooflm::backends::cuda
