// Matmuls of experts on Hopper: tiles of 128 x 256, of one expert each.
//
// Blocks stay and go from tile to tile. Each makes for itself, from the offsets on the device, the number of
// tiles before each expert, so that no host and no other kernel need to know who has how many rows. One
// thread loads steps of 64 of the summed index with the copy engine; two warp groups of 64 rows multiply, and
// store their sums while the next tile's factors arrive.
//
// Three products:
//   forward  c = a b^T     rows of an expert, of which a tile may have fewer than 128; the summed index runs
//                          along the rows of both factors
//   data     c = a b       the same; in b the summed index runs across rows
//   weight   c[e] = a^T b  the summed index are the expert's rows: it runs across the rows of both factors,
//                          and a last step may reach into the next expert's, whose rows are set to zero
#include <algorithm>

#include "backends/cuda/kernels/experts/expert_tiles.cuh"
#include "backends/cuda/kernels/experts/grouped_gemm_sm90.h"
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/tensor_copy.cuh"
#include "backends/cuda/kernels/tensor_map.cuh"
#include "backends/cuda/kernels/wgmma_wide.cuh"

namespace rooflm::backends::cuda {
namespace {

enum class Product { forward, data, weight };

constexpr int kGroupThreads = 128;
constexpr int kThreads = 3 * kGroupThreads;
constexpr int kConsumers = 2 * kGroupThreads;
constexpr int kConsumerWarps = kConsumers / kWarp;
constexpr int kLoaderRegisters = 40;  // with kConsumerRegisters all that a multiprocessor has
constexpr int kConsumerRegisters = 232;
constexpr int kRows = 128;  // of a tile
constexpr int kCols = kWideCols;
constexpr int kStep = 64;  // of the summed index
constexpr int kBytesOfA = kRows * kStep * 2;
constexpr int kBytesOfB = kCols * kStep * 2;
constexpr int kStageBytes = kBytesOfA + kBytesOfB;
constexpr int kStages = 4;
constexpr int kOutCols = 64;                     // that a warp writes at a time
constexpr int kOutRowBytes = kOutCols * 2 + 16;  // eight rows lie in different banks
constexpr int kOutBytes = kRows * kOutRowBytes;
constexpr int kPanelOfStep = kPanelBytes<kStep>;
constexpr std::int64_t kMostExperts = 1024;

/// Bytes of dynamic shared memory: stages, rows on their way out, and two numbers of each expert.
int shared_bytes(std::int64_t experts) {
  return kPanelAlignment + kStages * kStageBytes + kOutBytes +
         static_cast<int>(2 * (experts + 1) * std::int64_t{sizeof(int)});
}

struct Grouped {
  CUtensorMap a, b;
  const std::int32_t* offsets;
  int experts;
  int rows;   ///< of an expert's c; Product::weight only
  int cols;   ///< of c
  int depth;  ///< summed index; Product::weight: each expert's rows
  void* c;
  bool accumulate;
  int multiprocessors;  ///< of the launch; 0: all
};

/// A tile of c, and what is summed for it.
struct Tile {
  int expert;
  int row;   ///< of c, Product::weight: of the expert's c
  int rows;  ///< that exist, from `row` on
  int col;
  int first;  ///< of the summed index
  int depth;
  int steps;
};

/// The tiles of a block, one after the other.
template <Product kProduct>
class Walk {
 public:
  /// `offsets` and `tiles`: in shared memory, [experts + 1].
  __device__ Walk(const Grouped& g, const int* offsets, const int* tiles)
      : offsets_(offsets),
        tiles_(tiles),
        experts_(g.experts),
        rows_(g.rows),
        depth_(g.depth),
        cols_((g.cols + kCols - 1) / kCols),
        index_(blockIdx.x) {}

  __device__ bool next(Tile& tile) {
    const std::int64_t row = index_ / cols_;
    tile.col = static_cast<int>(index_ % cols_) * kCols;
    index_ += gridDim.x;
    if constexpr (kProduct == Product::weight) {
      const int rows = (rows_ + kRows - 1) / kRows;
      if (row >= std::int64_t{experts_} * rows) return false;
      tile.expert = static_cast<int>(row / rows);
      tile.row = static_cast<int>(row % rows) * kRows;
      tile.rows = rows_ - tile.row;
      tile.first = offsets_[tile.expert];
      tile.depth = offsets_[tile.expert + 1] - tile.first;
    } else {
      if (row >= tiles_[experts_]) return false;
      while (tiles_[expert_ + 1] <= row) ++expert_;
      tile.expert = expert_;
      tile.row = offsets_[expert_] + (static_cast<int>(row) - tiles_[expert_]) * kRows;
      tile.rows = offsets_[expert_ + 1] - tile.row;
      tile.first = 0;
      tile.depth = depth_;
    }
    tile.steps = (tile.depth + kStep - 1) / kStep;
    return true;
  }

 private:
  const int* offsets_;
  const int* tiles_;
  int experts_, rows_, depth_, cols_;
  std::int64_t index_;
  int expert_ = 0;
};

/// offsets, and the number of row tiles before each expert; by one warp.
__device__ void count_tiles(const Grouped& g, int* offsets, int* tiles) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int before = 0;
  for (int first = 0; first < g.experts; first += kWarp) {
    const int expert = first + lane;
    const bool exists = expert < g.experts;
    const int begin = exists ? g.offsets[expert] : 0;
    const int end = exists ? g.offsets[expert + 1] : 0;
    int up_to = (end - begin + kRows - 1) / kRows;
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      const int other = __shfl_up_sync(kAllLanes, up_to, step);
      if (lane >= step) up_to += other;
    }
    if (exists) {
      offsets[expert + 1] = end;
      tiles[expert + 1] = before + up_to;
    }
    before += __shfl_sync(kAllLanes, up_to, kWarp - 1);
  }
  if (lane == 0) offsets[0] = tiles[0] = 0;
}

// What [[maybe_unused]] marks is called by templates alone, which other GPUs' code has no instances of.

/// A ring of stages, each with two barriers: it is full; nobody reads it any more.
struct Ring {
  unsigned char* tiles;
  unsigned barriers;
  int stage = 0;
  unsigned phase = 0;

  [[nodiscard]] __device__ PhaseBarrier full() const { return PhaseBarrier(barriers + stage * 16); }
  [[nodiscard]] __device__ PhaseBarrier empty() const { return PhaseBarrier(barriers + stage * 16 + 8); }
  __device__ void next() {
    stage = stage + 1 == kStages ? 0 : stage + 1;
    if (stage == 0) phase ^= 1U;
  }
};

/// A stage has a's part of a step, then b's.
[[maybe_unused]] __device__ unsigned char* stage_of(const Ring& ring) {
  return ring.tiles + ring.stage * kStageBytes;
}

[[maybe_unused]] __device__ void await(PhaseBarrier barrier, unsigned phase) {
  while (!barrier.has_completed(phase)) {
  }
}

/// One thread: all steps of all tiles.
template <Product kProduct>
__device__ void load(const Grouped& g, Walk<kProduct> walk, Ring ring) {
  Tile tile;
  while (walk.next(tile)) {
    for (int step = 0; step < tile.steps; ++step, ring.next()) {
      await(ring.empty(), ring.phase ^ 1U);
      const PhaseBarrier full = ring.full();
      full.expect(kStageBytes);
      const int k = tile.first + step * kStep;
      const unsigned a = shared_address(stage_of(ring));
      const unsigned b = shared_address(stage_of(ring) + kBytesOfA);
      if constexpr (kProduct == Product::weight) {
#pragma unroll
        for (int i = 0; i < kRows / kPanelCols; ++i)
          copy_box(a + i * kPanelOfStep, g.a, tile.row + i * kPanelCols, k, 0, full);
      } else {
        copy_box(a, g.a, k, tile.row, 0, full);
      }
      if constexpr (kProduct == Product::forward) {
        copy_box(b, g.b, k, tile.col, tile.expert, full);
      } else {
        const int batch = kProduct == Product::data ? tile.expert : 0;
#pragma unroll
        for (int i = 0; i < kCols / kPanelCols; ++i)
          copy_box(b + i * kPanelOfStep, g.b, tile.col + i * kPanelCols, k, batch, full);
      }
    }
  }
}

/// Of a step across the rows of both factors: sets those from `rows` on to zero. By all consumers.
[[maybe_unused]] __device__ void clear_rows(unsigned char* stage, int rows) {
  constexpr int kChunks = kPanelRowBytes / 16;
  constexpr int kOfRow = kStageBytes / kPanelOfStep * kChunks;
  const int thread = static_cast<int>(threadIdx.x) - kGroupThreads;
  for (int i = thread; i < (kStep - rows) * kOfRow; i += kConsumers) {
    const int row = rows + i / kOfRow;
    const int panel = i % kOfRow / kChunks;
    *reinterpret_cast<uint4*>(stage + panel * kPanelOfStep + row * kPanelRowBytes + i % kChunks * 16) =
        uint4{};
  }
  publish_to_matrix_unit();
  asm volatile("bar.sync 1, %0;" ::"n"(kConsumers) : "memory");
}

/// sums += 64 rows of a step's product.
template <Product kProduct, class E>
__device__ void issue_step(float (&sums)[kWideSums], const Ring& ring, int group) {
  constexpr bool kAcrossA = kProduct == Product::weight;
  constexpr bool kAcrossB = kProduct != Product::forward;
  constexpr int kAlong = 16 * 2;  // bytes of 16 steps
  constexpr int kAcross = 16 * kPanelRowBytes;
  const std::uint64_t a = describe(stage_of(ring) + group * (kAcrossA ? kPanelOfStep : 64 * kPanelRowBytes));
  const std::uint64_t b = kAcrossB ? describe_columns(stage_of(ring) + kBytesOfA, kPanelOfStep)
                                   : describe(stage_of(ring) + kBytesOfA);
#pragma unroll
  for (int i = 0; i < kStep / 16; ++i) {
    issue_wide<E, kAcrossA, kAcrossB>(sums, behind(a, i * (kAcrossA ? kAcross : kAlong)),
                                      behind(b, i * (kAcrossB ? kAcross : kAlong)));
  }
}

/// Sums, rounded, by way of the warp's own rows of shared memory, from where a row's neighbours go together.
/// `to`: the warp group's first row; of its 64 rows `rows` exist, and of the columns `cols`, a multiple of
/// eight.
template <class E>
__device__ void store(const float (&sums)[kWideSums], unsigned char* out, E* to, std::int64_t stride,
                      int rows, int cols) {
  constexpr int kChunks = kOutCols / 8;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first = static_cast<int>(threadIdx.x) % kGroupThreads / kWarp * 16;  // the warp's
  unsigned char* own = out + first * kOutRowBytes;
  const unsigned matrix = shared_address(own) + (lane % 8 + lane / 8 % 2 * 8) * kOutRowBytes + lane / 16 * 16;
#pragma unroll
  for (int part = 0; part < kCols / kOutCols; ++part) {
    __syncwarp();  // what was written before has been read
#pragma unroll
    for (int n = 0; n < kChunks; n += 2) {
      const float* pair = sums + (part * kChunks + n) * 4;
      const unsigned words[4] = {pack_pair(pair[0], pair[1], to), pack_pair(pair[2], pair[3], to),
                                 pack_pair(pair[4], pair[5], to), pack_pair(pair[6], pair[7], to)};
      store_matrices(matrix + n * 16, words);
    }
    __syncwarp();
    const int col = part * kOutCols + lane % kChunks * 8;
#pragma unroll
    for (int i = 0; i < 16; i += kWarp / kChunks) {
      const int row = i + lane / kChunks;
      const uint4 eight = *reinterpret_cast<const uint4*>(own + row * kOutRowBytes + lane % kChunks * 16);
      if (first + row < rows && col < cols)
        *reinterpret_cast<uint4*>(to + (first + row) * stride + col) = eight;
    }
  }
}

/// Sums in fp32, added to what is there or not.
[[maybe_unused]] __device__ void store(const float (&sums)[kWideSums], float* to, std::int64_t stride,
                                       int rows, int cols, bool accumulate) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first = static_cast<int>(threadIdx.x) % kGroupThreads / kWarp * 16 + lane / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + half * 8;
    if (row >= rows) continue;
    float* own = to + row * stride + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < kCols / 8; ++n) {
      if (n * 8 >= cols) continue;
      float2 v = {sums[n * 4 + half * 2], sums[n * 4 + half * 2 + 1]};
      auto* at = reinterpret_cast<float2*>(own + n * 8);
      if (accumulate) {
        const float2 old = *at;
        v = {v.x + old.x, v.y + old.y};
      }
      *at = v;
    }
  }
}

/// A warp group: its half of all tiles.
template <Product kProduct, class E, class Out>
__device__ void consume(const Grouped& g, Walk<kProduct> walk, Ring ring, unsigned char* out) {
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads - 1;
  const bool is_first_lane = threadIdx.x % kWarp == 0;
  out += group * (kRows / 2) * kOutRowBytes;
  Tile tile;
  while (walk.next(tile)) {
    if (kProduct == Product::weight && tile.depth == 0 && g.accumulate) continue;
    float sums[kWideSums] = {};
    receive(sums);
    Ring before = ring;
    for (int step = 0; step < tile.steps; ++step) {
      await(ring.full(), ring.phase);
      if constexpr (kProduct == Product::weight) {
        const int left = tile.depth - step * kStep;
        if (left < kStep) clear_rows(stage_of(ring), left);
      }
      begin_products();
      issue_step<kProduct, E>(sums, ring, group);
      group_products();
      await_products<1>();  // those of the step before
      if (step > 0 && is_first_lane) before.empty().arrive();
      before = ring;
      ring.next();
    }
    await_products<0>();
    if (tile.steps > 0 && is_first_lane) before.empty().arrive();
    receive(sums);
    const int row = tile.row + group * (kRows / 2);
    const int rows = tile.rows - group * (kRows / 2);
    const std::int64_t of_all = kProduct == Product::weight ? std::int64_t{tile.expert} * g.rows + row : row;
    Out* to = static_cast<Out*>(g.c) + of_all * g.cols + tile.col;
    if constexpr (std::is_same_v<Out, float>) {
      store(sums, to, g.cols, rows, g.cols - tile.col, g.accumulate);
    } else {
      store<Out>(sums, out, to, g.cols, rows, g.cols - tile.col);
    }
  }
}

template <Product kProduct, class E, class Out>
__global__ void __launch_bounds__(kThreads, 1) grouped_gemm(const __grid_constant__ Grouped g) {
  if constexpr (kHasWarpGroups) {
    extern __shared__ unsigned char raw[];
    __shared__ std::uint64_t barriers[2 * kStages];
    unsigned char* tiles = align_panels(raw);
    unsigned char* out = tiles + kStages * kStageBytes;
    int* offsets = reinterpret_cast<int*>(out + kOutBytes);
    int* tiles_before = offsets + g.experts + 1;
    Ring ring{.tiles = tiles, .barriers = shared_address(barriers)};
    if (threadIdx.x < kWarp) count_tiles(g, offsets, tiles_before);
    if (threadIdx.x == 0) {
      Ring each = ring;
      for (int i = 0; i < kStages; ++i, each.next()) {
        each.full().init(1);
        each.empty().init(kConsumerWarps);
      }
      publish_barriers();
    }
    __syncthreads();
    const Walk<kProduct> walk(g, offsets, tiles_before);
    if (threadIdx.x < kGroupThreads) {
      give_registers<kLoaderRegisters>();
      if (threadIdx.x == 0) load<kProduct>(g, walk, ring);
    } else {
      take_registers<kConsumerRegisters>();
      consume<kProduct, E, Out>(g, walk, ring, out);
    }
  }
}

template <Product kProduct, class E, class Out>
void launch(Stream stream, const Grouped& g, std::int64_t row_tiles, const char* what) {
  auto* kernel = grouped_gemm<kProduct, E, Out>;
  const int bytes = shared_bytes(g.experts);
  allow_shared(kernel, bytes, what);
  const std::int64_t tiles = row_tiles * ceil_div(g.cols, kCols);
  const int most = g.multiprocessors > 0 ? g.multiprocessors : multiprocessors();
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(tiles, most));
  kernel<<<blocks, kThreads, bytes, stream>>>(g);
  check_launch(what);
}

/// Calls body with the element type of 16 bits.
template <class Body>
void with_half(core::DType dtype, Body&& body) {
  dtype == core::DType::bf16 ? body(bf16{}) : body(fp16{});
}

/// Whether the copy engine takes rows of so many elements.
bool fits(core::DType factors, std::int64_t experts, std::initializer_list<std::int64_t> lengths,
          std::initializer_list<const void*> operands) {
  constexpr std::int64_t kUnit = 8;
  constexpr std::int64_t kMost = 1 << 30;
  const bool is_half = factors == core::DType::bf16 || factors == core::DType::f16;
  const bool takes_lengths = std::all_of(lengths.begin(), lengths.end(), [](std::int64_t length) {
    return length >= kPanelCols && length < kMost && length % kUnit == 0;
  });
  return is_half && takes_lengths && experts <= kMostExperts && are_aligned(operands) && has_warp_groups();
}

}  // namespace

bool launch_grouped_matmul_sm90(Stream stream, const GroupedMatmul& p) {
  constexpr const char* kWhat = "grouped_matmul";
  if (p.result != p.factors || !fits(p.factors, p.experts, {p.n, p.k}, {p.a, p.b, p.c})) return false;
  const Grouped g{.a = map_boxes(p.a, 1, p.rows, p.k, kRows),
                  .b = p.trans_b ? map_boxes(p.b, p.experts, p.n, p.k, kCols)
                                 : map_boxes(p.b, p.experts, p.k, p.n, kStep),
                  .offsets = p.offsets,
                  .experts = static_cast<int>(p.experts),
                  .rows = 0,
                  .cols = static_cast<int>(p.n),
                  .depth = static_cast<int>(p.k),
                  .c = p.c,
                  .accumulate = false,
                  .multiprocessors = p.multiprocessors};
  const std::int64_t tiles = most_expert_tiles(p.rows, p.experts, kRows);
  with_half(p.factors, [&]<class E>(E) {
    p.trans_b ? launch<Product::forward, E, E>(stream, g, tiles, kWhat)
              : launch<Product::data, E, E>(stream, g, tiles, kWhat);
  });
  return true;
}

bool launch_grouped_matmul_weight_sm90(Stream stream, const GroupedMatmulWeight& p) {
  constexpr const char* kWhat = "grouped_matmul_weight";
  const bool is_half = p.result == p.factors;
  if (p.rows == 0 || (is_half && p.accumulate)) return false;
  if (!fits(p.factors, p.experts, {p.m, p.n}, {p.a, p.b, p.c})) return false;
  const Grouped g{.a = map_boxes(p.a, 1, p.rows, p.m, kStep),
                  .b = map_boxes(p.b, 1, p.rows, p.n, kStep),
                  .offsets = p.offsets,
                  .experts = static_cast<int>(p.experts),
                  .rows = static_cast<int>(p.m),
                  .cols = static_cast<int>(p.n),
                  .depth = 0,
                  .c = p.c,
                  .accumulate = p.accumulate,
                  .multiprocessors = p.multiprocessors};
  const std::int64_t tiles = p.experts * ceil_div(p.m, kRows);
  with_half(p.factors, [&]<class E>(E) {
    is_half ? launch<Product::weight, E, E>(stream, g, tiles, kWhat)
            : launch<Product::weight, E, float>(stream, g, tiles, kWhat);
  });
  return true;
}

}  // namespace rooflm::backends::cuda
