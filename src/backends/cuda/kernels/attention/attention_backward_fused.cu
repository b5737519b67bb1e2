// Gradient of flash attention in one pass over the tiles of scores, on Hopper: five matmuls per tile.
//
// A block has 128 keys at a time, whose dk and dv two warp groups of 64 keys keep in registers, and walks
// past the tiles of queries that see them. Scores are computed transposed, so that p and ds are left factors
// of dv and dk as they lie; ds also goes to shared memory for dq = ds k, which comes a tile later
// (attention_fused_compute.cuh). dq is added from registers to global memory, in fp32 and in whatever order
// blocks come; then it is rounded. A third group has one warp that loads: q, dy and what is known of their
// rows in a ring; keys and values of the next walk while this one goes on.
#include <algorithm>

#include "backends/cuda/kernels/attention/attention_fused_compute.cuh"
#include "backends/cuda/kernels/attention/attention_fused_walk.cuh"
#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/tensor_map.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr const char* kWhat = "flash_attention_backward";
constexpr int kThreads = 256;
constexpr int kLanes = 8;  // of a row

// What 504 registers, of three threads of different groups, are for.
constexpr int kLoaderRegisters = 24;
constexpr int kConsumerRegisters = 240;

template <int kDim, bool kWindowed>
__global__ void __launch_bounds__(kFusedThreads, 1)
    attention_gradient(const __grid_constant__ FusedGradient g) {
  if constexpr (kHasWarpGroups) {
    using T = FusedTiles<kDim, kWindowed>;
    extern __shared__ __align__(kPanelAlignment) unsigned char shared[];
    const unsigned base = shared_address(shared);
    const FusedBarriers barriers{base + T::kBarriersAt};
    auto* items = reinterpret_cast<volatile int*>(shared + T::kItemsAt);
    if (threadIdx.x == 0) {
      if (base % kPanelAlignment != 0) asm volatile("trap;");
      barriers.init();
    }
    __syncthreads();
    if (threadIdx.x < kWarpGroup) {
      give_registers<kLoaderRegisters>();
      if (threadIdx.x == 0) load_walks<T>(g, base, barriers, items);
    } else {
      take_registers<kConsumerRegisters>();
      compute_walks<T>(g, shared, barriers, items);
    }
  }
}

/// rows [B H, tiles, 2, kQueries] (FusedGradient), and zeros in sums and next: eight lanes per position and
/// head, in the order of dy.
template <int kDim>
__global__ void __launch_bounds__(kThreads)
    rows_and_zeros(AttentionShape s, int tiles, const bf16* dy, const bf16* y, const float* lse, float* rows,
                   float4* sums, int* next) {
  constexpr int kQueries = kFusedQueries<kDim>;
  const std::int64_t thread = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const auto heads = static_cast<int>(s.heads);
  const std::int64_t row = thread / kLanes;  // of [B, tiles kQueries, H]
  const auto lane = static_cast<int>(thread % kLanes);
  const std::int64_t position = row / heads;
  const auto head = static_cast<int>(row - position * heads);
  const int padded = tiles * kQueries;
  const std::int64_t batch = position / padded;
  const auto t = static_cast<int>(position - batch * padded);
  if (thread == 0) *next = 0;
  if (batch >= s.batch) return;
  float sum = 0;
  if (t < s.seq) {
    const std::int64_t from = ((batch * s.seq + t) * heads + head) * kDim;
#pragma unroll
    for (int d = 0; d < kDim; d += kLanes * kPack) {
      const Pack a = load_whole(dy + from + d + lane * kPack);
      const Pack b = load_whole(y + from + d + lane * kPack);
#pragma unroll
      for (int i = 0; i < kPack; ++i) sum += a[i] * b[i];
    }
  }
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, step);
  const std::int64_t place = (batch * heads + head) * padded + t;  // of [B H, tiles kQueries]
#pragma unroll
  for (int d = 0; d < kDim / 4; d += kLanes) sums[place * (kDim / 4) + d + lane] = float4{};
  if (lane > 1) return;
  float* to = rows + (place - t % kQueries) * 2 + t % kQueries;
  if (lane == 0) to[0] = t < s.seq ? -lse[(batch * heads + head) * s.seq + t] * kLog2E : 0.0F;
  if (lane == 1) to[kQueries] = sum;
}

/// Where dq of a tile goes: its first row, and how many there are.
struct TileOfDq {
  bf16* to;
  int stride, rows;

  __device__ TileOfDq(const FusedGradient& g, int batch, int head, int first)
      : stride(static_cast<int>((g.shape.heads + 2 * g.shape.kv_heads) * g.shape.head_dim)),
        rows(static_cast<int>(g.shape.seq) - first) {
    to = g.dqkv + (batch * g.shape.seq + first) * stride + head * g.shape.head_dim;
  }
};

/// dq of one tile from its sums, which lie as threads held them (kPartStride): a thread takes eight columns
/// of two rows.
template <int kDim>
__global__ void __launch_bounds__(kThreads) round_dq(const __grid_constant__ FusedGradient g) {
  using T = FusedTiles<kDim, false>;
  constexpr int kRowParts = T::kQueries / 64;
  const auto tile = static_cast<int>(blockIdx.x) % g.tiles;
  const auto owner = static_cast<int>(blockIdx.x) / g.tiles;
  const auto heads = static_cast<int>(g.shape.heads);
  const TileOfDq dq(g, owner / heads, owner % heads, tile * T::kQueries);
  const int thread = static_cast<int>(threadIdx.x);
  const int eight = thread % 8;
  const int warp = thread / 64;
  const int row = thread / 8 % 8;
  float4 own[kFusedParts][4];
#pragma unroll
  for (int part = 0; part < kFusedParts; ++part) {
    const float* from = g.sums + (std::int64_t{blockIdx.x} * kFusedParts + part) * kPartFloats +
                        eight * kPartStride + (warp * 32 + row * 4) * 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) own[part][i] = reinterpret_cast<const float4*>(from)[i];
  }
#pragma unroll
  for (int part = 0; part < kFusedParts; ++part) {
    const int first = part % kRowParts * 64 + warp * 16 + row;
    bf16* to = dq.to + first * dq.stride + part / kRowParts * 64 + eight * 8;
    unsigned upper[4];
    unsigned lower[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      upper[i] = pack_pair(own[part][i].x * g.scale, own[part][i].y * g.scale, to);
      lower[i] = pack_pair(own[part][i].z * g.scale, own[part][i].w * g.scale, to);
    }
    if (first < dq.rows) {
      *reinterpret_cast<uint4*>(to) = make_uint4(upper[0], upper[1], upper[2], upper[3]);
    }
    if (first + 8 < dq.rows) {
      *reinterpret_cast<uint4*>(to + 8 * dq.stride) = make_uint4(lower[0], lower[1], lower[2], lower[3]);
    }
  }
}

/// Where the parts of the workspace begin, in bytes; sums are first.
struct Workspace {
  std::int64_t tiles, rows, next, bytes;

  explicit Workspace(const AttentionShape& s) {
    const int queries = s.head_dim == 64 ? kFusedQueries<64> : kFusedQueries<128>;
    tiles = ceil_div(s.seq, queries);
    const std::int64_t all = s.batch * s.heads * tiles;
    rows = all * kFusedParts * kPartBytes;
    next = rows + all * 2 * queries * std::int64_t{sizeof(float)};
    bytes = next + std::int64_t{sizeof(int)};
  }
};

template <int kDim>
void launch_fused(Stream stream, const AttentionGradient<bf16>& operands, void* workspace,
                  const FusedBackward& how) {
  using T = FusedTiles<kDim, false>;
  const AttentionShape& s = operands.shape;
  const Workspace parts(s);
  auto* base = static_cast<unsigned char*>(workspace);
  auto* rows = reinterpret_cast<float*>(base + parts.rows);
  auto* next = reinterpret_cast<int*>(base + parts.next);
  const auto tiles = static_cast<int>(parts.tiles);
  const std::int64_t columns = (s.heads + 2 * s.kv_heads) * s.head_dim;
  const FusedGradient g{
      .queries = map_boxes(operands.qkv, s.batch, s.seq, columns, T::kQueries),
      .keys = map_boxes(operands.qkv, s.batch, s.seq, columns, kFusedKeys),
      .gradients = map_boxes(operands.dy, s.batch, s.seq, s.heads * s.head_dim, T::kQueries),
      .shape = s,
      .scale = operands.scale,
      .items = static_cast<int>(s.batch * s.kv_heads * ceil_div(s.seq, kFusedKeys)),
      .tiles = tiles,
      .dqkv = operands.dqkv,
      .rows = rows,
      .sums = reinterpret_cast<float*>(base),
      .next = next,
  };
  const std::int64_t threads = s.batch * s.heads * tiles * T::kQueries * kLanes;
  const unsigned row_blocks = grid_size(ceil_div(threads, kThreads), kWhat);
  const unsigned all_tiles = grid_size(s.batch * s.heads * tiles, kWhat);
  if (how.prepares) {
    rows_and_zeros<kDim><<<row_blocks, kThreads, 0, stream>>>(s, tiles, operands.dy, operands.y, operands.lse,
                                                              rows, reinterpret_cast<float4*>(base), next);
    check_launch(kWhat);
  }
  if (how.multiplies) {
    auto* kernel = s.bends_scores() ? attention_gradient<kDim, true> : attention_gradient<kDim, false>;
    allow_shared(kernel, T::kBytes, kWhat);
    kernel<<<std::min(g.items, multiprocessors()), kFusedThreads, T::kBytes, stream>>>(g);
    check_launch(kWhat);
  }
  if (how.rounds) {
    round_dq<kDim><<<all_tiles, kThreads, 0, stream>>>(g);
    check_launch(kWhat);
  }
}

}  // namespace

bool fits_fused_backward(core::DType dtype, const AttentionShape& s) {
  constexpr std::int64_t kMostTiles = 1 << 30;
  return runs_on_warp_groups(dtype, s) && s.head_dim != 80 && !(s.rules.cap > 0) && !s.rules.alibi &&
         s.batch * s.heads * ceil_div(s.seq, kGroupRows) < kMostTiles;
}

void launch_fused_attention_backward(Stream stream, const AttentionShape& shape, const void* dy,
                                     const void* qkv, const void* y, const float* lse, void* dqkv,
                                     void* workspace, FusedBackward how) {
  if (!are_aligned({dy, qkv, y, dqkv})) {
    return launch_flash_attention_backward(stream, core::DType::bf16, shape, dy, qkv, y, lse, dqkv,
                                           workspace);
  }
  const AttentionGradient<bf16> operands{.shape = shape,
                                         .scale = scale_of(shape),
                                         .dy = static_cast<const bf16*>(dy),
                                         .qkv = static_cast<const bf16*>(qkv),
                                         .y = static_cast<const bf16*>(y),
                                         .lse = lse,
                                         .delta = nullptr,
                                         .dqkv = static_cast<bf16*>(dqkv)};
  if (shape.head_dim == 64) return launch_fused<64>(stream, operands, workspace, how);
  launch_fused<128>(stream, operands, workspace, how);
}

std::size_t fused_attention_backward_workspace_bytes(const AttentionShape& shape) {
  return static_cast<std::size_t>(Workspace(shape).bytes);
}

}  // namespace rooflm::backends::cuda
