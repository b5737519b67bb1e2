// The one-pass gradient of attention with dq a tile behind (attention_fused_ahead.cuh): shared memory,
// barriers, the warp that loads, and how dq leaves.
#pragma once

#include "backends/cuda/kernels/attention_fused_walk.cuh"

namespace rooflm::backends::cuda {

/// kTakesTurns: the warp groups issue their matmuls in turn, so that one computes exponentials meanwhile.
/// kOwns: a block has all walks of a key head of the batch, one after the other. Then nobody else adds to the
/// head's dq: the first walk stores it, the last one that sees a tile rounds it, and the bits are the same
/// every time. Otherwise walks are handed out one by one, and dq is added in any order.
template <int kDim_, bool kTakesTurns_, bool kOwns_>
struct AheadTiles {
  static constexpr int kDim = kDim_, kQueries = kFusedQueries<kDim>;
  static constexpr bool kTakesTurns = kTakesTurns_, kOwns = kOwns_;
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
struct AheadBarriers {
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
      for (const PhaseBarrier empty :
           {keys_empty(s), queries_empty(s), gradients_empty(s), scores_full(s), scores_empty(s)}) {
        empty.init(kConsumers);
      }
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

/// The same value in all lanes, which the compiler then knows.
__device__ inline int uniform(int value) { return __shfl_sync(0xffffffffU, value, 0); }

/// The walks of a block, in order: item() is one of FusedGradient's, -1 behind the last one.
template <class T>
class ItemsOfBlock {
 public:
  __device__ explicit ItemsOfBlock(const FusedGradient& g) : item_(static_cast<int>(blockIdx.x)) {
    if constexpr (T::kOwns) {
      blocks_ = (static_cast<int>(g.shape.seq) + kFusedKeys - 1) / kFusedKeys;
      item_ *= blocks_;
    }
    if (item_ >= g.items) item_ = -1;
  }
  [[nodiscard]] __device__ int item() const { return item_; }
  __device__ void go_on(const FusedGradient& g) {
    if constexpr (T::kOwns) {
      ++item_;
      if (++done_ % blocks_ == 0) item_ += (static_cast<int>(gridDim.x) - 1) * blocks_;
    } else {
      item_ = static_cast<int>(gridDim.x) + atomicAdd(g.next, 1);
    }
    if (item_ >= g.items) item_ = -1;
  }

 private:
  int item_, blocks_ = 1, done_ = 0;
};

/// The warp that loads; one lane does it.
template <class T>
__device__ void load_ahead(const FusedGradient& g, unsigned shared, AheadBarriers barriers,
                           volatile int* items) {
  const auto heads = static_cast<int>(g.shape.heads);
  const auto kv_heads = static_cast<int>(g.shape.kv_heads);
  ItemsOfBlock<T> own(g);
  Waits await;
  int step = 0;
  for (int visit = 0;; ++visit, own.go_on(g)) {
    const int key_stage = visit % 2;
    await(barriers.keys_empty(key_stage), visit / 2 % 2 ^ 1);
    items[key_stage] = own.item();
    const PhaseBarrier keys_full = barriers.keys_full(key_stage);
    if (own.item() < 0) {
      keys_full.arrive();
      return;
    }
    FusedWalk<T> walk(g, own.item());
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

__device__ inline void add_four(float* to, float4 value) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(value.x),
               "f"(value.y), "f"(value.z), "f"(value.w)
               : "memory");
}
__device__ inline void store_four(float* to, float4 value) {
  asm volatile("st.relaxed.gpu.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(value.x), "f"(value.y),
               "f"(value.z), "f"(value.w)
               : "memory");
}
/// Past the first-level cache, which does not see what was added.
__device__ inline float4 load_four(const float* from) {
  float4 value;
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "l"(from)
               : "memory");
  return value;
}

/// A part of a tile of dq lies as threads hold it: float4 i of thread t of the group is number 128 i + t. It
/// has sums of rows 16 (t / 32) + t % 32 / 4 (x, y) and 8 behind (z, w), columns 8 i + 2 (t % 4) and the
/// next.
constexpr int kPartStride = 4 * kWarpGroup;  // floats

/// A thread's share of dq of one tile, 64 rows of 64 columns by warp group: where it goes and how.
template <class T>
class ShareOfDq {
 public:
  enum class Way { none, add, store, finish, round };  // finish: what was added before is added, and rounded
  Way way = Way::none;
  float* sums = nullptr;
  bf16* to = nullptr;        // of finish and round: the thread's first two elements
  int stride = 0, rows = 0;  // of to; rows that there are from its own on

  ShareOfDq() = default;
  __device__ ShareOfDq(const FusedGradient& g, const FusedWalk<T>& at, int group) {
    constexpr int kRowParts = T::kQueries / 64;
    const int thread = static_cast<int>(threadIdx.x) % kWarpGroup;
    const auto heads = static_cast<int>(g.shape.heads);
    std::int64_t place = at.place(g);
    way = Way::add;
    if constexpr (T::kOwns) {
      const int shared_by = heads / static_cast<int>(g.shape.kv_heads);
      const int slot = (static_cast<int>(blockIdx.x) * shared_by + at.head - at.kv * shared_by);
      place = slot * at.tiles + at.tile;
      const bool is_first = at.block == 0;
      const bool is_last = at.tile < at.first_tile + T::kTilesOfKeys;
      way = is_last ? is_first ? Way::round : Way::finish : is_first ? Way::store : Way::add;
      if (is_last) {
        const int row = group % kRowParts * 64 + thread / 32 * 16 + thread % 32 / 4;
        const int first = at.tile * T::kQueries + row;
        stride = static_cast<int>((g.shape.heads + 2 * g.shape.kv_heads) * g.shape.head_dim);
        rows = static_cast<int>(g.shape.seq) - first;
        to = g.dqkv + (at.batch * g.shape.seq + first) * stride + at.head * T::kDim + group / kRowParts * 64 +
             thread % 4 * 2;
      }
    }
    sums = g.sums + (place * kFusedParts + group) * kPartFloats + thread * 4;
  }

  /// What was added before.
  __device__ void load(float4 (&before)[8]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) before[i] = load_four(sums + i * kPartStride);
  }
  __device__ void write(const Sums<1, 8>& dq, float scale, const float4 (&before)[8]) const {
    if (way == Way::none) return;
    if constexpr (T::kOwns) {
      if (way == Way::finish || way == Way::round) return round(dq, scale, before);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float* v = dq.v[0][i];
      const float4 four = make_float4(v[0], v[1], v[2], v[3]);
      if (T::kOwns && way == Way::store) {
        store_four(sums + i * kPartStride, four);
      } else {
        add_four(sums + i * kPartStride, four);
      }
    }
  }

 private:
  __device__ void round(const Sums<1, 8>& dq, float scale, const float4 (&before)[8]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float* v = dq.v[0][i];
      const float4 b = before[i];
      const unsigned upper = pack_pair((v[0] + b.x) * scale, (v[1] + b.y) * scale, to);
      const unsigned lower = pack_pair((v[2] + b.z) * scale, (v[3] + b.w) * scale, to);
      if (rows > 0) *reinterpret_cast<unsigned*>(to + i * 8) = upper;
      if (rows > 8) *reinterpret_cast<unsigned*>(to + 8 * stride + i * 8) = lower;
    }
  }
};

}  // namespace rooflm::backends::cuda
