// GEMMs of fp32 factors as six bf16 products (S. Markidis et al., "NVIDIA Tensor Core Programmability", 2018,
// and H. Ootomo and R. Yokota, "Recovering single precision accuracy from Tensor Cores", 2022, refine
// products of 16 bits in this way; bf16 has the exponents of fp32, so nothing is scaled).
//
// A block has four warp groups. Two of them read a factor each from global memory to registers, one step of k
// ahead, split it, and write its parts as tiles to shared memory, whichever way it lies in memory. The others
// take 64 rows of the result each: they issue the products of a step, the smallest first, and add what
// the tensor cores have summed to sums of their own while the other group's products run. Blocks stay and go
// from tile to tile, so the next tile's factors arrive while one is stored.
#include <algorithm>

#include "backends/cuda/kernels/gemm_bf16x6.h"
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/tensor_copy.cuh"
#include "backends/cuda/kernels/wgmma_columns.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr const char* kWhat = "gemm_bf16x6";
constexpr int kGroupThreads = 128;
constexpr int kThreads = 4 * kGroupThreads;
constexpr int kProducerRegisters = 88;  // with kConsumerRegisters all that a multiprocessor has
constexpr int kConsumerRegisters = 168;
constexpr int kTile = 128;  // rows and columns of a block's tile
constexpr int kStep = 32;   // of k
constexpr int kStages = 4;
constexpr int kParts = 3;  // of a factor
constexpr int kRowBytes = 2 * kStep;
constexpr int kPartBytes = kTile * kRowBytes;
constexpr int kStageBytes = 2 * kParts * kPartBytes;
constexpr int kBytes = kStages * kStageBytes + kPanelAlignment;
constexpr unsigned kConsumerWarps = 2 * kGroupThreads / 32;
constexpr std::int64_t kRowsOfGroup = 12;  // tiles: with as many columns they are a wave of 132 or 144 blocks

/// A tile of the result, and the steps of k that are summed for it.
struct Work {
  std::int64_t batch, part, row, col;
  int first, end;
};

struct Grid {
  std::int64_t rows, cols, parts, steps;  // tiles, tiles, of k, of k

  __host__ __device__ std::int64_t tiles() const { return rows * cols; }
  /// Tiles that run at the same time share rows and columns of the factors in the second-level cache.
  __device__ Work work(std::int64_t index) const {
    const std::int64_t tile = index % tiles();
    const std::int64_t rest = index / tiles();
    const std::int64_t group = tile / (kRowsOfGroup * cols);
    const std::int64_t in_group = tile % (kRowsOfGroup * cols);
    const std::int64_t height = min(kRowsOfGroup, rows - group * kRowsOfGroup);
    const std::int64_t part = rest % parts;
    return {.batch = rest / parts,
            .part = part,
            .row = (group * kRowsOfGroup + in_group % height) * kTile,
            .col = in_group / height * kTile,
            .first = static_cast<int>(part * steps / parts),
            .end = static_cast<int>((part + 1) * steps / parts)};
  }
};

/// The upper halves of two words: both numbers cut to bf16, the first one below.
[[maybe_unused]] __device__ unsigned upper_halves(float low, float high) {
  return __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x7632);
}
[[maybe_unused]] __device__ float without_upper_half(float x) {
  return x - __uint_as_float(__float_as_uint(x) & 0xffff0000U);  // exact
}

/// What one thread carries of a factor's step, in units of a row's neighbours. kAlongK: k runs along the
/// memory's rows; otherwise the factor's rows do. Lanes beside each other read what lies side by side in
/// memory, 16 bytes each along k: with 32 bytes a load touches twice as many lines, and the kernel took up to
/// 15 % longer.
template <bool kAlongK>
class Carrier {
 public:
  /// `rows` and `depth`: how much of the tile exists, the rest is zero.
  __device__ void load(const float* from, std::int64_t stride, std::int64_t rows, std::int64_t depth,
                       bool is_aligned) {
    if (rows < kTile || depth < kStep) return load_edge(from, stride, rows, depth);
    const float* own = from + (kAlongK ? row_of(0) * stride + k_of(0) : row_of(0));
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      if (kAlongK && is_aligned) {
        const float4 four = __ldg(reinterpret_cast<const float4*>(own));
        v_[unit][0] = four.x;
        v_[unit][1] = four.y;
        v_[unit][2] = four.z;
        v_[unit][3] = four.w;
      } else {
#pragma unroll
        for (int i = 0; i < kWide; ++i) v_[unit][i] = __ldg(own + i * (kAlongK ? 1 : stride));
      }
      own += (kAlongK ? kRowsOfUnit : kWide) * stride;
    }
  }
  /// Writes the three parts, in rows of kRowBytes with the 64-byte swizzle.
  __device__ void store(unsigned tile) const {
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      const int row = row_of(unit);
      const int k = k_of(unit);
      const unsigned to = tile + row * kRowBytes + (k / 8 ^ row / 2 % 4) * 16 + k % 8 * 2;
      float rest[kWide];
#pragma unroll
      for (int i = 0; i < kWide; ++i) rest[i] = v_[unit][i];
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        write(to + part * kPartBytes, rest);
#pragma unroll
        for (int i = 0; i < kWide; ++i) rest[i] = without_upper_half(rest[i]);
      }
    }
  }

 private:
  static constexpr int kWide = kAlongK ? 4 : 8;  // elements of a unit
  static constexpr int kUnits = kTile * kStep / kGroupThreads / kWide;
  static constexpr int kRowsOfUnit = kGroupThreads * kWide / kStep;  // kAlongK

  static __device__ void write(unsigned to, const float (&v)[kWide]) {
    if constexpr (kAlongK) {
      asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(upper_halves(v[0], v[1])),
                   "r"(upper_halves(v[2], v[3]))
                   : "memory");
    } else {
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(upper_halves(v[0], v[1])),
                   "r"(upper_halves(v[2], v[3])), "r"(upper_halves(v[4], v[5])), "r"(upper_halves(v[6], v[7]))
                   : "memory");
    }
  }
  /// Reads the last row or column again where there is none, so that no load waits for a condition.
  __device__ void load_edge(const float* from, std::int64_t stride, std::int64_t rows, std::int64_t depth) {
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
#pragma unroll
      for (int i = 0; i < kWide; ++i) {
        const std::int64_t row = row_of(unit);
        const std::int64_t k = k_of(unit) + i;
        const std::int64_t own_row = min(row, rows - 1);
        const std::int64_t own_k = min(k, depth - 1);
        const float value = __ldg(from + (kAlongK ? own_row * stride + own_k : own_k * stride + own_row));
        v_[unit][i] = row < rows && k < depth ? value : 0.0F;
      }
    }
  }
  static __device__ int row_of(int unit) {
    const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
    return kAlongK ? thread / (kStep / kWide) + unit * kRowsOfUnit : thread;
  }
  static __device__ int k_of(int unit) {
    return kAlongK ? static_cast<int>(threadIdx.x) % (kStep / kWide) * kWide : unit * kWide;
  }

  float v_[kUnits][kWide];
};

/// The barriers of a stage: its parts are here; nobody reads them any more.
struct Stages {
  unsigned tiles, barriers;
  int stage = 0;
  unsigned phase = 0;

  __device__ PhaseBarrier full() const { return PhaseBarrier(barriers + stage * 16); }
  __device__ PhaseBarrier empty() const { return PhaseBarrier(barriers + stage * 16 + 8); }
  [[nodiscard]] __device__ unsigned tile() const { return tiles + stage * kStageBytes; }
  __device__ void next() {
    stage = stage + 1 == kStages ? 0 : stage + 1;
    if (stage == 0) phase ^= 1U;
  }
};

/// A matrix descriptor (wgmma.cuh) of rows of 64 bytes: 512 bytes between groups of eight, 64-byte swizzle.
__device__ std::uint64_t describe_narrow(unsigned address) {
  constexpr std::uint64_t kSwizzle64 = std::uint64_t{2} << 62;
  constexpr std::uint64_t kGroups = std::uint64_t{8 * kRowBytes >> 4} << 32;
  constexpr std::uint64_t kUnused = std::uint64_t{1} << 16;
  return kSwizzle64 | kGroups | kUnused | ((address & 0x3ffffU) >> 4);
}

/// One factor of all of this block's tiles, as [rows, depth]: of its left or its right side.
template <bool kAlongK>
__device__ void produce(const Grid& grid, std::int64_t works, Stages stages, const float* factor,
                        std::int64_t rows, std::int64_t depth, std::int64_t stride, bool is_left) {
  const bool is_aligned =
      reinterpret_cast<std::uintptr_t>(factor) % 16 == 0 && stride % 4 == 0 && rows * depth % 4 == 0;
  Carrier<kAlongK> carrier;
  const auto load = [&](const Work& w, int step) {
    const std::int64_t row = is_left ? w.row : w.col;
    const std::int64_t k = std::int64_t{step} * kStep;
    const float* from = factor + w.batch * rows * depth + (kAlongK ? row * stride + k : k * stride + row);
    carrier.load(from, stride, rows - row, depth - k, is_aligned);
  };
  std::int64_t index = blockIdx.x;
  Work work = grid.work(index);
  int step = work.first;
  load(work, step);
  while (index < works) {
    if (++step == work.end) {
      index += gridDim.x;
      work = grid.work(index);
      step = work.first;
    }
    while (!stages.empty().has_completed(stages.phase ^ 1U)) {
    }
    carrier.store(stages.tile() + (is_left ? 0 : kParts * kPartBytes));
    if (index < works) load(work, step);
    publish_to_matrix_unit();
    stages.full().arrive();
    stages.next();
  }
}

/// sums = a b^T of a step, the smallest products first: a are 64 rows of a stage's tile, b the 128 of the
/// other.
__device__ void issue_step(Sums<1, 16>& sums, unsigned a, unsigned b) {
  constexpr int kProducts = 6;
  constexpr int kOfA[kProducts] = {2, 1, 0, 1, 0, 0};
  constexpr int kOfB[kProducts] = {0, 1, 2, 0, 1, 0};
  const std::uint64_t left = describe_narrow(a);
  const std::uint64_t right = describe_narrow(b);
#pragma unroll
  for (int i = 0; i < kProducts; ++i) {
#pragma unroll
    for (int bytes = 0; bytes < kRowBytes; bytes += 32) {  // 16 elements of k
      const std::uint64_t of_a = behind(left, kOfA[i] * kPartBytes + bytes);
      const std::uint64_t of_b = behind(right, kOfB[i] * kPartBytes + bytes);
      if (i == 0 && bytes == 0) {
        issue_transposed_128<false>(&sums.v[0][0][0], of_a, of_b);
      } else {
        issue_transposed_128<true>(&sums.v[0][0][0], of_a, of_b);
      }
    }
  }
}

__device__ void store(const Bf16x6Gemm& g, const Grid& grid, const Work& w, const Sums<1, 16>& sums) {
  const int thread = static_cast<int>(threadIdx.x) - 2 * kGroupThreads;
  const int lane = thread % 32;
  const bool is_part = grid.parts > 1;
  const std::int64_t stride = is_part ? g.n : g.c_stride;
  const std::int64_t own = is_part ? w.part * g.batch + w.batch : w.batch;
  float* to = (is_part ? g.workspace : g.c) + own * g.m * g.n;
  const bool is_even = stride % 2 == 0 && reinterpret_cast<std::uintptr_t>(to) % 8 == 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t row = w.row + thread / 32 * 16 + lane / 4 + half * 8;
    if (row >= g.m) continue;
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      const std::int64_t col = w.col + n * 8 + lane % 4 * 2;
      float* at = to + row * stride + col;
      float2 v = {sums.v[0][n][2 * half], sums.v[0][n][2 * half + 1]};
      if (is_even && col + 1 < g.n) {
        if (!is_part && g.bias != nullptr) v = {v.x + __ldg(g.bias + col), v.y + __ldg(g.bias + col + 1)};
        if (!is_part && g.accumulate) {
          const float2 old = *reinterpret_cast<const float2*>(at);
          v = {v.x + old.x, v.y + old.y};
        }
        *reinterpret_cast<float2*>(at) = v;
        continue;
      }
      const float each[2] = {v.x, v.y};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (col + i >= g.n) continue;
        float value = each[i];
        if (!is_part && g.bias != nullptr) value += __ldg(g.bias + col + i);
        if (!is_part && g.accumulate) value += at[i];
        at[i] = value;
      }
    }
  }
}

__device__ void consume(const Bf16x6Gemm& g, const Grid& grid, std::int64_t works, Stages stages) {
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads - 2;
  for (std::int64_t index = blockIdx.x; index < works; index += gridDim.x) {
    const Work work = grid.work(index);
    Sums<1, 16> total{};
    for (int step = work.first; step < work.end; ++step) {
      while (!stages.full().has_completed(stages.phase)) {
      }
      Sums<1, 16> sums;
      begin_products();
      issue_step(sums, stages.tile() + group * (kTile / 2) * kRowBytes, stages.tile() + kParts * kPartBytes);
      finish_products();
      receive(sums);
      if (threadIdx.x % 32 == 0) stages.empty().arrive();
      stages.next();
#pragma unroll
      for (int n = 0; n < 16; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) total.v[0][n][i] += sums.v[0][n][i];
      }
    }
    store(g, grid, work, total);
  }
}

template <bool kAlongA, bool kAlongB>
__global__ void __launch_bounds__(kThreads, 1) gemm_bf16x6(Bf16x6Gemm g, Grid grid, std::int64_t works) {
  if constexpr (kHasWarpGroups) {
    extern __shared__ unsigned char raw[];
    __shared__ std::uint64_t barriers[2 * kStages];
    Stages stages{.tiles = shared_address(align_panels(raw)), .barriers = shared_address(barriers)};
    if (threadIdx.x == 0) {
      Stages each = stages;
      for (int i = 0; i < kStages; ++i, each.next()) {
        each.full().init(2 * kGroupThreads);
        each.empty().init(kConsumerWarps);
      }
    }
    __syncthreads();
    if (threadIdx.x < kGroupThreads) {
      give_registers<kProducerRegisters>();
      produce<kAlongA>(grid, works, stages, g.a, g.m, g.k, g.a_stride, true);
    } else if (threadIdx.x < 2 * kGroupThreads) {
      give_registers<kProducerRegisters>();
      produce<kAlongB>(grid, works, stages, g.b, g.n, g.k, g.b_stride, false);
    } else {
      take_registers<kConsumerRegisters>();
      consume(g, grid, works, stages);
    }
  }
}

/// c (+)= the parts' sums, in order, (+ bias).
__global__ void gemm_bf16x6_sum(Bf16x6Gemm g) {
  const std::int64_t count = g.batch * g.m * g.n;
  const float* sums = g.workspace;
  for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    float sum = sums[i];
    for (std::int64_t part = 1; part < g.parts; ++part) sum += sums[part * count + i];
    const std::int64_t row = i / g.n;
    const std::int64_t col = i - row * g.n;
    if (g.bias != nullptr) sum += g.bias[col];
    float& to = g.c[row * g.c_stride + col];
    to = g.accumulate ? to + sum : sum;
  }
}

Grid grid_of(const Bf16x6Gemm& g) {
  return {.rows = ceil_div(g.m, kTile),
          .cols = ceil_div(g.n, kTile),
          .parts = g.parts,
          .steps = ceil_div(g.k, kStep)};
}

}  // namespace

bool has_bf16x6() { return has_warp_groups(); }

void launch_bf16x6_gemm(Stream stream, const Bf16x6Gemm& g) {
  const Grid grid = grid_of(g);
  const std::int64_t works = grid.tiles() * grid.parts * g.batch;
  const auto launch = [&](auto kernel) {
    allow_shared(kernel, kBytes, kWhat);
    kernel<<<grid_size(std::min(works, std::int64_t{g.multiprocessors}), kWhat), kThreads, kBytes, stream>>>(
        g, grid, works);
    check_launch(kWhat);
  };
  if (g.trans_a) {
    g.trans_b ? launch(gemm_bf16x6<false, true>) : launch(gemm_bf16x6<false, false>);
  } else {
    g.trans_b ? launch(gemm_bf16x6<true, true>) : launch(gemm_bf16x6<true, false>);
  }
  if (grid.parts == 1) return;
  constexpr int kAdders = 256;
  constexpr std::int64_t kMostBlocks = 4096;
  const std::int64_t blocks = std::min(ceil_div(g.batch * g.m * g.n, kAdders), kMostBlocks);
  gemm_bf16x6_sum<<<grid_size(blocks, kWhat), kAdders, 0, stream>>>(g);
  check_launch(kWhat);
}

}  // namespace rooflm::backends::cuda
