// Matmuls of few rows: a warp has eight rows of w, or some warps share them where w has few. A lane loads 16
// bytes at a time into registers, two batches of loads ahead, the first of them before the kernel's input
// exists. Warps wait for nobody else. Tensor cores multiply, so that eight rows of a take as long as one.
//
// In a dot product elements may stand in any order. So a lane of mma.m16n8k16 takes as its columns what it
// loaded: neighbours of one row of w, and those of a.
#include <algorithm>
#include <cstdint>

#include "backends/cuda/kernels/chain.cuh"
#include "backends/cuda/kernels/few_rows/batch.cuh"
#include "backends/cuda/kernels/few_rows/codes.cuh"
#include "backends/cuda/kernels/few_rows/few_rows_gemm.h"
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/mma.cuh"
#include "core/packed_weights.h"

namespace rooflm::backends::cuda {
namespace {

constexpr int kBlocks = 2;        // per multiprocessor, at most
constexpr int kFewestWarps = 12;  // per multiprocessor, that keep the memory busy
/// Of `a`, in shared memory; larger ones are read from where they are.
constexpr std::int64_t kMostInputBytes = 64 << 10;

/// A lane's rows of a: kEighths of them, 8 apart, in shared memory or where a is. Rows beyond a's are others
/// again: nobody looks at their sums.
template <class T, int kEighths, bool kShared>
struct Rows {
  const T* at[kEighths];
  int k;

  __device__ Rows(const Operands& p, const T* a) : k(p.k) {
#pragma unroll
    for (int i = 0; i < kEighths; ++i) {
      const int row = 8 * i + lane_of_thread() / kLanesOfRow;
      at[i] = a + (row < p.m ? row : 0) * p.a_stride;
    }
  }
  /// Eight elements from `column` on. Shared memory has zeros behind a row.
  __device__ uint4 eight(int i, int column) const {
    if (!kShared && column >= k) return {0, 0, 0, 0};
    return *reinterpret_cast<const uint4*>(at[i] + column);
  }
};

/// Sums of a lane: of each 16 rows of a, four.
template <int kEighths>
struct RowSums {
  static constexpr int kTiles = (kEighths + 1) / 2;
  float v[kTiles][4];
};

/// sums += rows of a times eight elements of w, as pairs (0, 1), (2, 3), .. or, with kApart, (0, 4), (1, 5),
/// ..; a in shared memory has the order of w.
template <bool kApart, class T, int kEighths, bool kShared>
__device__ void multiply_eight(RowSums<kEighths>& sums, const Rows<T, kEighths, kShared>& rows, int column,
                               const unsigned (&w)[4]) {
  const T* type = nullptr;
#pragma unroll
  for (int i = 0; i < kEighths; i += 2) {
    uint4 x = rows.eight(i, column);
    uint4 y{0, 0, 0, 0};
    if (i + 1 < kEighths) y = rows.eight(i + 1, column);
    if constexpr (kApart && !kShared) {
      x = {low_halves(x.x, x.z), high_halves(x.x, x.z), low_halves(x.y, x.w), high_halves(x.y, x.w)};
      y = {low_halves(y.x, y.z), high_halves(y.x, y.z), low_halves(y.y, y.w), high_halves(y.y, y.w)};
    }
    multiply(sums.v[i / 2], {x.x, y.x, x.y, y.y}, w[0], w[1], type);
    multiply(sums.v[i / 2], {x.z, y.z, x.w, y.w}, w[2], w[3], type);
  }
}

/// sums += scale * part; columns of sums are rows of w.
template <int kEighths>
__device__ void add_scaled(RowSums<kEighths>& sums, const RowSums<kEighths>& part, float lower, float upper) {
#pragma unroll
  for (int tile = 0; tile < RowSums<kEighths>::kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      sums.v[tile][i] = fmaf(part.v[tile][i], i % 2 == 0 ? lower : upper, sums.v[tile][i]);
  }
}

/// The scales of nf4 blocks first / 64 and the next, of one row.
__device__ inline float2 nf4_scales(const Operands& p, const float* values, int row, int first,
                                    unsigned codes) {
  const std::int64_t element = std::int64_t{min(row, p.n - 1)} * p.k + first;
  const float2 second =
      __ldg(reinterpret_cast<const float2*>(p.second_scales + element / core::kScaleGroup * 2));
  return {fmaf(values[codes & 0xffU], second.x, second.y), fmaf(values[codes >> 8], second.x, second.y)};
}

/// One step of a warp.
template <class T, DType kFormat, int kEighths, bool kShared>
__device__ void multiply_step(RowSums<kEighths>& sums, const Operands& p,
                              const Rows<T, kEighths, kShared>& rows, int tile, int step, const uint4& words,
                              const StepScales<kFormat>& scales, const float* scale_values) {
  const int first = step * kStep<kFormat>;
  const int own = first + lane_of_row() * (kFormat == DType::nf4 ? 16 : kPerLoad<kFormat>);
  const unsigned each[4] = {words.x, words.y, words.z, words.w};
  if constexpr (kFormat == DType::bf16) {  // or fp16
    multiply_eight<false>(sums, rows, own, each);
  } else if constexpr (has_row_scales<kFormat>) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      unsigned pairs[2][2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if constexpr (kFormat == DType::int8) {
          unpack_int8<T>(each[i + j], pairs[j]);
        } else {
          unpack_fp8<T>(each[i + j], pairs[j]);
        }
      }
      multiply_eight<false>(sums, rows, own + i * 4, {pairs[0][0], pairs[0][1], pairs[1][0], pairs[1][1]});
    }
  } else if constexpr (kFormat == DType::int4) {
    RowSums<kEighths> part{};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      unsigned pairs[4];
      unpack_int4<T>(each[i], pairs);
      multiply_eight<true>(part, rows, own + i * 8, pairs);
    }
    add_scaled(sums, part, scales.lower, scales.upper);
  } else {
    static_assert(kFormat == DType::nf4);
    const int row = tile * kTileRows + 2 * lane_of_row();
    const float2 lower = nf4_scales(p, scale_values, row, first, scales.lower);
    const float2 upper = nf4_scales(p, scale_values, row + 1, first, scales.upper);
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      RowSums<kEighths> part{};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        unsigned pairs[4];
        unpack_nf4<T>(each[2 * block + i], pairs);
        multiply_eight<false>(part, rows, own + block * 64 + i * 8, pairs);
      }
      add_scaled(sums, part, block == 0 ? lower.x : lower.y, block == 0 ? upper.x : upper.y);
    }
  }
}

/// What a lane stores of a tile: columns 2 (l % 4) and the next of rows l / 4, l / 4 + 8, .. of c.
template <class T, DType kFormat, int kEighths>
__device__ void store_tile(const Operands& p, int tile, const RowSums<kEighths>& sums) {
  const int column = tile * kTileRows + 2 * lane_of_row();
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    if (column + j >= p.n) return;
    float scale = 1, bias = 0;
    if constexpr (has_row_scales<kFormat>)
      scale = __ldg(reinterpret_cast<const float*>(p.scales) + column + j);
    if (p.bias != nullptr)
      bias = p.bias_is_float ? static_cast<const float*>(p.bias)[column + j]
                             : to_float(static_cast<const T*>(p.bias)[column + j]);
#pragma unroll
    for (int i = 0; i < kEighths; ++i) {
      const int row = 8 * i + lane_of_thread() / kLanesOfRow;
      if (row >= p.m) continue;
      const float sum = fmaf(sums.v[i / 2][i % 2 * 2 + j], scale, bias);
      const std::int64_t at = std::int64_t{row} * p.n + column + j;
      if (p.result_is_float) {
        static_cast<float*>(p.c)[at] = sum;
      } else {
        static_cast<T*>(p.c)[at] = from_float<T>(sum);
      }
    }
  }
}

/// a as rows of p.a_stride in shared memory, zeros behind them; by eights in the order of int4's pairs.
template <bool kApart, class T>
__device__ void copy_input(const Operands& p, const T* a, T* to) {
  const int eights = p.k / 8, stride = p.a_stride / 8;
  for (int i = static_cast<int>(threadIdx.x); i < p.m * stride; i += kThreads) {
    const int row = i / stride;
    const int eighth = i - row * stride;
    uint4 x{0, 0, 0, 0};
    if (eighth < eights) x = *reinterpret_cast<const uint4*>(a + std::int64_t{row} * p.k + eighth * 8);
    if constexpr (kApart)
      x = {low_halves(x.x, x.z), high_halves(x.x, x.z), low_halves(x.y, x.w), high_halves(x.y, x.w)};
    *reinterpret_cast<uint4*>(to + row * p.a_stride + eighth * 8) = x;
  }
}

/// Waits for the warps that share a tile: 1 + its index in the block names the barrier.
__device__ inline void wait_for_sharers(int sharers) {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + warp_of_thread() / sharers), "r"(32 * sharers) : "memory");
}

/// Adds up the sums of the warps that share a tile; the first of them gets the total.
template <int kEighths>
__device__ void add_shares(int sharers, float4* partial, RowSums<kEighths>& sums) {
  constexpr int kTiles = RowSums<kEighths>::kTiles;
  float4* own = partial + warp_of_thread() * kTiles * 32 + lane_of_thread();
  wait_for_sharers(sharers);  // the last tile's have been read
#pragma unroll
  for (int i = 0; i < kTiles; ++i) own[i * 32] = {sums.v[i][0], sums.v[i][1], sums.v[i][2], sums.v[i][3]};
  wait_for_sharers(sharers);
  if (warp_of_thread() % sharers != 0) return;
  for (int other = 1; other < sharers; ++other) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const float4 more = own[(other * kTiles + i) * 32];
      sums.v[i][0] += more.x;
      sums.v[i][1] += more.y;
      sums.v[i][2] += more.z;
      sums.v[i][3] += more.w;
    }
  }
}

template <class T, DType kFormat, int kEighths, bool kShared>
__global__ void __launch_bounds__(kThreads, 2) few_rows(Operands p) {
  constexpr int kCount = kAtOnce<kFormat>;
  extern __shared__ uint4 shared[];
  __shared__ float4 partial[kWarps * RowSums<kEighths>::kTiles * 32];
  __shared__ float scale_values[kFormat == DType::nf4 ? 256 : 1];
  let_next_start();
  Walk at = Walk::of<kCount>(p);
  Walk next = at;
  Batch<kFormat> even, odd;
  even.load(p, next.tile, next.batch * kCount);
  next.advance(p.sharers);
  odd.load(p, next.tile, next.batch * kCount);
  next.advance(p.sharers);
  if constexpr (kFormat == DType::nf4) scale_values[threadIdx.x] = p.scale_values[threadIdx.x];
  wait_for_previous();

  const auto* a = static_cast<const T*>(p.a);
  if constexpr (kShared) {
    copy_input<kFormat == DType::int4>(p, a, reinterpret_cast<T*>(shared));
    a = reinterpret_cast<const T*>(shared);
  }
  if (kShared || kFormat == DType::nf4) __syncthreads();
  const Rows<T, kEighths, kShared> rows(p, a);
  RowSums<kEighths> sums[2]{};
  const auto take = [&](Batch<kFormat>& loaded) {
    const int tile = at.tile, first = at.batch * kCount;
    const auto take_step = [&](int i) {
      multiply_step<T, kFormat>(sums[i % 2], p, rows, tile, first + i, loaded.words[i], loaded.scales[i],
                                scale_values);
    };
    if (first + kCount <= p.steps) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) take_step(i);
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        if (first + i < p.steps) take_step(i);
    }
    if (!at.advance(p.sharers)) {
#pragma unroll
      for (int i = 0; i < RowSums<kEighths>::kTiles; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[0].v[i][j] += sums[1].v[i][j];
      }
      if (p.sharers > 1) add_shares(p.sharers, partial, sums[0]);
      if (warp_of_thread() % p.sharers == 0) store_tile<T, kFormat>(p, tile, sums[0]);
      sums[0] = {};
      sums[1] = {};
    }
    loaded.load(p, next.tile, next.batch * kCount);
    next.advance(p.sharers);
  };
  while (at.tile < p.tiles) {
    take(even);
    if (at.tile >= p.tiles) break;
    take(odd);
  }
}

constexpr std::int64_t kMostElements = 1 << 30;

std::int64_t load_elements(DType format) {
  return format == DType::int4 || format == DType::nf4   ? 32
         : format == DType::bf16 || format == DType::f16 ? 8
                                                         : 16;
}

template <class T, DType kFormat, int kEighths>
void launch(Stream stream, const FewRowsGemm& g, int multiprocessors) {
  constexpr const char* kWhat = "few_rows_gemm";
  const auto* data = static_cast<const std::byte*>(g.weight.data);
  const std::int64_t count = g.n * g.k;
  const std::int64_t code_bytes = count * 16 / kPerLoad<kFormat>;
  // Rows in shared memory lie 64 bytes beyond multiples of 128 apart: two of them do not share banks.
  const std::int64_t stride = ceil_div(g.k, kStep<kFormat>) * kStep<kFormat> / 64 * 64 + 96;
  const bool is_shared = kEighths == 1 && g.m * stride * 2 <= kMostInputBytes;
  const std::int64_t tiles = ceil_div(g.n, kTileRows);
  const std::int64_t batches = ceil_div(ceil_div(g.k, kStep<kFormat>), kAtOnce<kFormat>);
  int sharers = 1;
  while (sharers < kWarps && 2 * sharers <= batches && tiles * sharers < kFewestWarps * multiprocessors)
    sharers *= 2;
  // Of blocks that multiprocessors have room for as many as have equal numbers of tiles.
  const std::int64_t at_once = kWarps / sharers;
  const std::int64_t rounds = ceil_div(tiles, at_once * kBlocks * multiprocessors);
  const auto blocks = static_cast<unsigned>(ceil_div(tiles, at_once * rounds));
  const Operands p{.m = static_cast<int>(g.m),
                   .n = static_cast<int>(g.n),
                   .k = static_cast<int>(g.k),
                   .tiles = static_cast<int>(tiles),
                   .steps = static_cast<int>(ceil_div(g.k, kStep<kFormat>)),
                   .sharers = sharers,
                   .w = data,
                   .scales = data + code_bytes,
                   .second_scales = reinterpret_cast<const float*>(data + code_bytes + count / 64),
                   .scale_values = g.weight.scale_values,
                   .a = g.a,
                   .a_stride = static_cast<int>(is_shared ? stride : g.k),
                   .bias = g.bias,
                   .bias_is_float = g.bias_dtype == DType::f32,
                   .result_is_float = g.result == DType::f32,
                   .c = g.c};
  const auto start = [&](auto* kernel, std::int64_t shared) {
    allow_shared(kernel, static_cast<int>(shared), kWhat);
    launch_chained(stream, kWhat, kernel, dim3(blocks), kThreads, static_cast<int>(shared), p);
  };
  if constexpr (kEighths == 1) {
    if (is_shared) return start(few_rows<T, kFormat, kEighths, true>, g.m * stride * 2);
  }
  start(few_rows<T, kFormat, kEighths, false>, 0);
}

template <class T, DType kFormat>
void launch_rows(Stream stream, const FewRowsGemm& g, int multiprocessors) {
  if (g.m <= kMostPlainRows) return launch<T, kFormat, 1>(stream, g, multiprocessors);
  if constexpr (kFormat != DType::bf16) {
    if (g.m <= 16) return launch<T, kFormat, 2>(stream, g, multiprocessors);
    launch<T, kFormat, 4>(stream, g, multiprocessors);
  }
}

template <class T>
void launch_format(Stream stream, const FewRowsGemm& g, int multiprocessors) {
  switch (g.weight.dtype) {
    case DType::int8:
      return launch_rows<T, DType::int8>(stream, g, multiprocessors);
    case DType::fp8_rows:
      return launch_rows<T, DType::fp8_rows>(stream, g, multiprocessors);
    case DType::int4:
      return launch_rows<T, DType::int4>(stream, g, multiprocessors);
    case DType::nf4:
      return launch_rows<T, DType::nf4>(stream, g, multiprocessors);
    default:
      return launch_rows<T, DType::bf16>(stream, g, multiprocessors);
  }
}

}  // namespace

bool has_few_rows_gemm(const FewRowsGemm& g) {
  const bool is_half = g.factors == DType::bf16 || g.factors == DType::f16;
  const DType w = g.weight.dtype;
  const bool is_packed = w == DType::int8 || w == DType::int4 || w == DType::nf4 || w == DType::fp8_rows;
  const bool has_dtypes =
      is_half && (w == g.factors || is_packed) && (g.result == g.factors || g.result == DType::f32);
  const bool has_rows = g.m >= 1 && g.m <= (is_packed ? kMostPackedRows : kMostPlainRows);
  const bool is_whole = g.k % (w == DType::nf4 ? 128 : load_elements(w)) == 0;  // no load crosses a row's end
  const bool is_counted = g.n <= kMostElements / kMostPackedRows && g.k <= kMostElements / kMostPackedRows;
  return has_dtypes && has_rows && is_whole && is_counted;
}

void launch_few_rows_gemm(Stream stream, const FewRowsGemm& gemm, int multiprocessors) {
  if (gemm.factors == DType::bf16) return launch_format<bf16>(stream, gemm, multiprocessors);
  launch_format<fp16>(stream, gemm, multiprocessors);
}

}  // namespace rooflm::backends::cuda
