// Gradients of layernorm and rmsnorm in one pass over dy and x. A warp, or a block if rows are long,
// processes every n-th row, prefetches the next one, and keeps its partial sums of the weight gradients in
// registers. A second kernel sums over blocks.
#include <algorithm>
#include <string>
#include <type_traits>

#include "backends/cuda/kernels/column_sums.h"
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/norm.h"
#include "backends/cuda/kernels/norm_shape.cuh"
#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/reduce.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kMostThreads = 512;     // threads of a block with one row, at 128 registers
constexpr int kRowsOfBlock = 4;       // if a row is one warp's
constexpr int kBlocksOfWarpRows = 3;  // blocks per multiprocessor in that case
constexpr int kMostWarpPacks = 3;     // packs per lane in that case
constexpr int kLongPacks = 4;

/// How rows are distributed: packs per lane, warps per row, rows per block at once.
struct BackwardShape {
  int packs = 1, warps = 1, rows = 1;
  BackwardShape(core::DType dtype, std::int64_t cols, bool aligned) {
    const auto all = static_cast<int>(ceil_div(cols, kPack));
    const auto needed = [&](int per_lane) { return static_cast<int>(ceil_div(all, per_lane * kWarp)); };
    // Prefetched data takes twice the registers in fp32.
    const bool narrow = dtype != core::DType::f32;
    const int warp_packs = narrow ? kMostWarpPacks : 1;
    if (aligned && needed(warp_packs) == 1) {
      while (needed(packs) > 1) ++packs;
      rows = kRowsOfBlock;
      return;
    }
    packs = narrow ? 2 : 1;
    while (!aligned || needed(packs) * kWarp > kMostThreads) {
      if (packs == kLongPacks) break;
      packs *= 2;
    }
    warps = needed(packs);
  }
  [[nodiscard]] int threads() const { return warps * rows * kWarp; }
  [[nodiscard]] std::int64_t blocks(std::int64_t all_rows) const {
    const int each = rows > 1 ? kBlocksOfWarpRows : std::max(1, kMostThreads / threads());
    return std::clamp<std::int64_t>(ceil_div(all_rows, rows), 1, std::int64_t{each} * multiprocessors());
  }
};

/// One pack of a row, aligned, as stored.
template <class T>
struct Fetched {
  RawPack<T> v{};

  __device__ void load(const NormBackward& a, const void* rows, std::int64_t row, std::int64_t col) {
    if (col < a.cols) v = load_raw(static_cast<const T*>(rows) + row * a.cols + col);
  }
  __device__ Pack get() const { return unpack(v); }
};

template <>
struct Fetched<Unaligned> {
  Pack v{};

  __device__ void load(const NormBackward& a, const void* rows, std::int64_t row, std::int64_t col) {
    v = load_any(a.dtype, rows, row * a.cols, col, a.cols);
  }
  __device__ Pack get() const { return v; }
};

template <class T, int kPacks>
struct RowInput {
  Fetched<T> dy[kPacks], x[kPacks], rest[kPacks];
  float mean = 0, rstd = 0;
};

/// A thread's position in its row.
template <int kPacks>
struct RowPlace {
  int thread, threads;  // number of threads that share the row

  __device__ std::int64_t col(int k) const { return std::int64_t{thread + k * threads} * kPack; }

  template <Norm kNorm, class T>
  __device__ void load(RowInput<T, kPacks>& to, const NormBackward& a, std::int64_t row) const {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      to.dy[k].load(a, a.dy, row, col(k));
      to.x[k].load(a, a.x, row, col(k));
      if (a.d_residual != nullptr) to.rest[k].load(a, a.d_residual, row, col(k));
    }
    if constexpr (kNorm == Norm::layer) to.mean = a.mean[row];
    to.rstd = a.rstd[row];
  }
};

/// Two sums over the threads of a row. Warps that share a row need a single barrier: the next row uses the
/// other half of the shared array.
template <bool kOneWarp>
__device__ float2 row_sum(float2 x, bool odd) {
  x = {warp_sum(x.x), warp_sum(x.y)};
  if constexpr (!kOneWarp) {
    __shared__ float2 sums[2][kMostThreads / kWarp];
    const auto warps = static_cast<int>(blockDim.x) / kWarp;
    if (threadIdx.x % kWarp == 0) sums[odd][threadIdx.x / kWarp] = x;
    __syncthreads();
    x = {0, 0};
    for (int warp = 0; warp < warps; ++warp) {
      x.x += sums[odd][warp].x;
      x.y += sums[odd][warp].y;
    }
  }
  return x;
}

/// Sums over a block's warps, which have different rows, in warp order; the first warp gets the result.
template <int kPacks>
__device__ void add_warps(Pack (&sums)[kPacks]) {
  __shared__ float shared[kPacks * kPack][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  for (int w = kRowsOfBlock - 1; w >= 0; --w) {
    __syncthreads();
    if (warp != w) continue;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        if (w < kRowsOfBlock - 1) sums[k][i] += shared[k * kPack + i][lane];
        shared[k * kPack + i][lane] = sums[k][i];
      }
    }
  }
}

template <Norm kNorm, class T, int kPacks, bool kOneWarp>
__global__ void __launch_bounds__(kOneWarp ? kRowsOfBlock* kWarp : kMostThreads,
                                  kOneWarp ? kBlocksOfWarpRows : 1)
    norm_backward(NormBackward a, float* partials) {
  constexpr bool kAligned = !std::is_same_v<T, Unaligned>;
  const auto thread = static_cast<int>(threadIdx.x);
  const RowPlace<kPacks> place{kOneWarp ? thread % kWarp : thread,
                               kOneWarp ? kWarp : static_cast<int>(blockDim.x)};
  const int rows = kOneWarp ? kRowsOfBlock : 1;
  const std::int64_t first = std::int64_t{blockIdx.x} * rows + (kOneWarp ? thread / kWarp : 0);
  const std::int64_t step = std::int64_t{gridDim.x} * rows;
  const float inverse_n = 1.0F / static_cast<float>(a.cols);
  const auto load = [&](const float* from, int k) {
    if constexpr (kAligned) return load_pack(from, place.col(k), a.cols, true);
    return load_any(core::DType::f32, from, 0, place.col(k), a.cols);
  };
  const auto store = [&](void* to, std::int64_t row, int k, const Pack& pack) {
    if constexpr (kAligned) {
      store_pack(static_cast<T*>(to) + row * a.cols, place.col(k), a.cols, true, pack);
    } else {
      store_any(a.dtype, to, row * a.cols, place.col(k), a.cols, pack);
    }
  };
  Pack dweight[kPacks]{};
  Pack dbias[kPacks]{};
  RowInput<T, kPacks> next;
  if (first < a.rows) place.template load<kNorm>(next, a, first);
  bool odd = false;
  for (std::int64_t row = first; row < a.rows; row += step, odd = !odd) {
    const RowInput<T, kPacks> now = next;
    if (row + step < a.rows) place.template load<kNorm>(next, a, row + step);
    Pack g[kPacks];  // dy * weight
    Pack xhat[kPacks];
    float2 sums{0, 0};  // sums of g and of g * xhat
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const Pack weight = load(a.weight, k);
      g[k] = now.dy[k].get();
      xhat[k] = now.x[k].get();
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        // Beyond the end of the row dy and weight are zero, so these elements do not contribute.
        xhat[k][i] = normalised(xhat[k][i], now.mean, now.rstd);
        dweight[k][i] += g[k][i] * xhat[k][i];
        if constexpr (kNorm == Norm::layer) dbias[k][i] += g[k][i];
        g[k][i] *= weight[i];
        sums.x += g[k][i];
        sums.y += g[k][i] * xhat[k][i];
      }
      if (a.y != nullptr) {
        Pack y{};
        if constexpr (kNorm == Norm::layer) y = load(a.bias, k);
#pragma unroll
        for (int i = 0; i < kPack; ++i) y[i] = scaled(xhat[k][i], weight[i], y[i]);
        store(a.y, row, k, y);
      }
    }
    sums = row_sum<kOneWarp>(sums, odd);
    const float mean_g = kNorm == Norm::layer ? sums.x * inverse_n : 0.0F;
    const float mean_g_xhat = sums.y * inverse_n;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) g[k][i] = now.rstd * (g[k][i] - mean_g - xhat[k][i] * mean_g_xhat);
      if (a.d_residual != nullptr) {
        const Pack rest = now.rest[k].get();
#pragma unroll
        for (int i = 0; i < kPack; ++i) g[k][i] += rest[i];
      }
      store(a.dx, row, k, g[k]);
    }
  }
  if constexpr (kOneWarp) {
    add_warps(dweight);
    if constexpr (kNorm == Norm::layer) add_warps(dbias);
    if (thread >= kWarp) return;
  }
  constexpr int kArrays = kNorm == Norm::layer ? 2 : 1;
  const std::int64_t own = std::int64_t{blockIdx.x} * kArrays * a.cols;
  const auto store_sums = [&](std::int64_t at, int k, const Pack& sums) {
    if constexpr (kAligned) {
      store_pack(partials + at, place.col(k), a.cols, true, sums);
    } else {
      store_any(core::DType::f32, partials, at, place.col(k), a.cols, sums);
    }
  };
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    store_sums(own, k, dweight[k]);
    if constexpr (kNorm == Norm::layer) store_sums(own + a.cols, k, dbias[k]);
  }
}

/// Calls body(packs per lane, whether a row is one warp's), both as types, for the supported shapes.
template <class T, class Body>
void with_shape(const BackwardShape& shape, Body&& body) {
  using std::integral_constant;
  using Yes = std::true_type;
  using No = std::false_type;
  if (shape.rows > 1) {
    if constexpr (sizeof(T) == sizeof(bf16)) {
      if (shape.packs == 2) return body(integral_constant<int, 2>{}, Yes{});
      if (shape.packs == kMostWarpPacks) return body(integral_constant<int, kMostWarpPacks>{}, Yes{});
    }
    return body(integral_constant<int, 1>{}, Yes{});
  }
  if constexpr (sizeof(T) == sizeof(float)) {
    if (shape.packs == 1) return body(integral_constant<int, 1>{}, No{});
  }
  if (shape.packs == 2) return body(integral_constant<int, 2>{}, No{});
  return body(integral_constant<int, kLongPacks>{}, No{});
}

template <Norm kNorm>
void launch_backward(Stream stream, const NormBackward& a, const char* what) {
  check_norm_cols(a.cols, what);
  const bool aligned =
      a.cols % kPack == 0 && are_aligned({a.dy, a.x, a.weight, a.bias, a.d_residual, a.dx, a.y, a.workspace});
  const BackwardShape shape(a.dtype, a.cols, aligned);
  const std::int64_t blocks = shape.blocks(a.rows);
  auto* partials = static_cast<float*>(a.workspace);
  const auto launch = [&](auto* kernel) {
    kernel<<<grid_size(blocks, what), shape.threads(), 0, stream>>>(a, partials);
  };
  with_element(a.dtype, what, [&]<class T>(T) {
    if (!aligned) return launch(norm_backward<kNorm, Unaligned, kLongPacks, false>);
    with_shape<T>(shape, [&]<class Packs, class OneWarp>(Packs, OneWarp) {
      launch(norm_backward<kNorm, T, Packs::value, OneWarp::value>);
    });
  });
  check_launch(what);
  constexpr int kArrays = kNorm == Norm::layer ? 2 : 1;
  launch_sum_partials(stream, blocks, kArrays * a.cols, partials, a.cols, a.dweight, a.dbias, a.accumulate);
}

}  // namespace

void launch_layernorm_backward(Stream stream, const NormBackward& args) {
  launch_backward<Norm::layer>(stream, args, "layernorm_backward");
}

void launch_rmsnorm_backward(Stream stream, const NormBackward& args) {
  launch_backward<Norm::rms>(stream, args, "rmsnorm_backward");
}

std::size_t norm_backward_workspace_bytes(std::int64_t rows, std::int64_t cols) {
  constexpr int kMostArrays = 2;
  std::int64_t blocks = 0;
  for (const core::DType dtype : {core::DType::f32, core::DType::bf16}) {
    for (const bool aligned : {false, true}) {
      blocks = std::max(blocks, BackwardShape(dtype, cols, aligned).blocks(rows));
    }
  }
  return static_cast<std::size_t>(blocks * kMostArrays * cols) * sizeof(float);
}

}  // namespace rooflm::backends::cuda
