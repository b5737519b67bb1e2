// Gradients of layernorm and rmsnorm in one pass over dy and x. A warp, or a block if rows are long,
// processes every n-th row, copies the next ones to shared memory meanwhile, and keeps its partial sums of
// the weight gradients in registers. A second kernel sums over blocks.
#include <algorithm>
#include <cstddef>
#include <string>
#include <type_traits>

#include "backends/cuda/kernels/column_sums.h"
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/norm/norm.h"
#include "backends/cuda/kernels/norm/norm_backward_rows.cuh"
#include "backends/cuda/kernels/norm/norm_shape.cuh"
#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/reduce.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kMostThreads = 512;     // threads of a block with one row, at 128 registers
constexpr int kFewerThreads = 384;    // the same at 168 registers
constexpr int kRowsOfBlock = 4;       // if a row is one warp's
constexpr int kBlocksOfWarpRows = 3;  // blocks per multiprocessor in that case, at most
constexpr int kMostWarpPacks = 3;     // packs per lane in that case
constexpr int kLongPacks = 4;
constexpr int kMostStages = 4;         // rows that a thread has in shared memory
constexpr int kOtherShared = 5 << 10;  // bytes of a block, for its sums and the driver

/// Blocks per multiprocessor if a row is one warp's: layernorm of long ones takes 255 registers.
constexpr int blocks_of_warp_rows(Norm norm, int packs) {
  return norm == Norm::layer && packs == kMostWarpPacks ? 2 : kBlocksOfWarpRows;
}

/// Threads of a block with one row, at most.
constexpr int most_threads(Norm norm, int packs) {
  return norm == Norm::layer && packs == 2 ? kFewerThreads : kMostThreads;
}

/// How rows are distributed: packs per lane, warps per row, rows per block at once.
struct BackwardShape {
  Norm norm;
  int packs = 1, warps = 1, rows = 1;
  BackwardShape(Norm of, core::DType dtype, std::int64_t cols, bool aligned) : norm(of) {
    const auto all = static_cast<int>(ceil_div(cols, kPack));
    const auto needed = [&](int per_lane) { return static_cast<int>(ceil_div(all, per_lane * kWarp)); };
    // Twice the shared memory in fp32.
    const bool narrow = dtype != core::DType::f32;
    const int warp_packs = narrow ? kMostWarpPacks : 1;
    if (aligned && needed(warp_packs) == 1) {
      while (needed(packs) > 1) ++packs;
      rows = kRowsOfBlock;
      return;
    }
    packs = narrow ? 2 : 1;
    while (!aligned || needed(packs) * kWarp > most_threads(norm, packs)) {
      if (packs == kLongPacks) break;
      packs *= 2;
    }
    warps = needed(packs);
  }
  [[nodiscard]] int threads() const { return warps * rows * kWarp; }
  /// Blocks that registers let run on a multiprocessor at once.
  [[nodiscard]] int blocks_at_once() const {
    return rows > 1 ? blocks_of_warp_rows(norm, packs) : std::max(1, most_threads(norm, packs) / threads());
  }
  [[nodiscard]] std::int64_t blocks(std::int64_t all_rows) const {
    return std::clamp<std::int64_t>(ceil_div(all_rows, rows), 1,
                                    std::int64_t{blocks_at_once()} * multiprocessors());
  }
  /// Bytes of shared memory for the operands of one row of each warp or block.
  [[nodiscard]] int stage_bytes(core::DType dtype) const {
    return kOperands * packs * kPack * static_cast<int>(core::size_of(dtype)) * threads();
  }
  /// Bytes of shared memory for the sums of dx: one for each column of each warp or block.
  [[nodiscard]] int sum_bytes() const { return packs * kPack * static_cast<int>(sizeof(float)) * threads(); }
  /// The sums of dx are taken on the way if rows are still copied ahead beside them.
  [[nodiscard]] bool has_room_for_sums(core::DType dtype) const {
    return stages(stage_bytes(dtype), sum_bytes()) > 1;
  }
  /// Rows in shared memory, beside `others` bytes: as many as let all those blocks run at once, two if one
  /// block can have them.
  [[nodiscard]] int stages(int bytes, int others) const {
    const int most = most_shared_bytes();
    const int room = most / blocks_at_once() - kOtherShared - others;
    return std::clamp(room / bytes, std::min(2, (most - kOtherShared - others) / bytes), kMostStages);
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

/// `sums_of_dx`: where those sums begin in shared memory, in bytes; none if negative.
template <Norm kNorm, class T, int kPacks, bool kOneWarp>
__global__ void __launch_bounds__(kOneWarp ? kRowsOfBlock* kWarp : most_threads(kNorm, kPacks),
                                  kOneWarp ? blocks_of_warp_rows(kNorm, kPacks) : 1)
    norm_backward(NormBackward a, int stages, int sums_of_dx, float* partials) {
  constexpr bool kAligned = !std::is_same_v<T, Unaligned>;
  constexpr bool kSums = kNorm == Norm::layer && kAligned;  // whether it can have those
  const auto thread = static_cast<int>(threadIdx.x);
  // Weights that fit in registers stay there.
  constexpr bool kHolds = kAligned && (kOneWarp || kPacks < kLongPacks);
  const RowPlace<T> place{kOneWarp ? thread % kWarp : thread,
                          kOneWarp ? kWarp : static_cast<int>(blockDim.x)};
  const int rows = kOneWarp ? kRowsOfBlock : 1;
  const std::int64_t first = std::int64_t{blockIdx.x} * rows + (kOneWarp ? thread / kWarp : 0);
  const std::int64_t step = std::int64_t{gridDim.x} * rows;
  const float inverse_n = 1.0F / static_cast<float>(a.cols);
  const auto load = [&](const float* from, int k, float otherwise) {
    if (from == nullptr) {
      Pack pack;
#pragma unroll
      for (int i = 0; i < kPack; ++i) pack[i] = otherwise;
      return pack;
    }
    if constexpr (kAligned) return load_floats(from, place, k, a.cols);
    return load_any(core::DType::f32, from, 0, place.col(k), a.cols);
  };
  const auto store = [&](void* to, std::int64_t row, int k, const Pack& pack) {
    if constexpr (std::is_same_v<T, float>) {
      store_floats(static_cast<float*>(to) + row * a.cols, place, k, a.cols, pack);
    } else if constexpr (kAligned) {
      store_pack(static_cast<T*>(to) + row * a.cols, place.col(k), a.cols, true, pack);
    } else {
      store_any(a.dtype, to, row * a.cols, place.col(k), a.cols, pack);
    }
  };
  Pack dweight[kPacks]{};
  Pack dbias[kPacks]{};
  Pack weights[kHolds ? kPacks : 1];
  Pack biases[kHolds ? kPacks : 1]{};
  if constexpr (kHolds) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      weights[k] = load(a.weight, k, 1);
      if (kNorm == Norm::layer && a.y != nullptr) biases[k] = load(a.bias, k, 0);
    }
  }
  extern __shared__ uint4 shared[];
  const bool has_sums = kSums && sums_of_dx >= 0;
  ColumnSums<kPacks> dx_sums(reinterpret_cast<std::byte*>(shared) + sums_of_dx);
  if (has_sums) dx_sums.clear();
  Rows<T, kPacks> operands(a, place, stages);
  for (int stage = 0; stage + 1 < stages; ++stage) operands.fetch(first + stage * step);
  struct Statistics {
    float mean = 0, rstd = 0;
  };
  const auto statistics_of = [&](std::int64_t row) {
    Statistics of;
    if (row >= a.rows) return of;
    if constexpr (kNorm == Norm::layer) of.mean = a.mean[row];
    of.rstd = a.rstd[row];
    return of;
  };
  Statistics next = statistics_of(first);
  bool odd = false;
  for (std::int64_t row = first; row < a.rows; row += step, odd = !odd) {
    const Statistics now = next;
    next = statistics_of(row + step);
    operands.fetch(row + (stages - 1) * step);
    operands.wait();
    Pack g[kPacks];  // dy * weight
    Pack xhat[kPacks];
    float2 sums{0, 0};  // sums of g and of g * xhat
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const Pack weight = kHolds ? weights[kHolds ? k : 0] : load(a.weight, k, 1);
      g[k] = operands.get(kDy, k, row);
      xhat[k] = operands.get(kX, k, row);
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
        if constexpr (kNorm == Norm::layer) y = kHolds ? biases[kHolds ? k : 0] : load(a.bias, k, 0);
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
        const Pack rest = operands.get(kRest, k, row);
#pragma unroll
        for (int i = 0; i < kPack; ++i) g[k][i] += rest[i];
      }
      store(a.dx, row, k, g[k]);
      if constexpr (kSums) {
        if (has_sums) {
#pragma unroll
          for (int i = 0; i < kPack; ++i) g[k][i] = rounded<T>(g[k][i]);
          dx_sums.add(k, g[k]);
        }
      }
    }
    operands.pop();
  }
  if constexpr (kOneWarp) {
    add_warps(dweight);
    if constexpr (kNorm == Norm::layer) add_warps(dbias);
  }
  constexpr int kArrays = kNorm == Norm::layer ? 2 : 1;
  const std::int64_t own = std::int64_t{blockIdx.x} * (has_sums ? kArrays + 1 : kArrays) * a.cols;
  const auto store_sums = [&](std::int64_t at, int k, const Pack& sums) {
    if constexpr (kAligned) {
      store_floats(partials + at, place, k, a.cols, sums);
    } else {
      store_any(core::DType::f32, partials, at, place.col(k), a.cols, sums);
    }
  };
  const bool is_first = !kOneWarp || thread < kWarp;
  if (is_first) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      store_sums(own, k, dweight[k]);
      if constexpr (kNorm == Norm::layer) store_sums(own + a.cols, k, dbias[k]);
    }
  }
  if constexpr (kSums) {
    if (!has_sums) return;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) dweight[k] = dx_sums.get(k);
    if constexpr (kOneWarp) add_warps(dweight);
    if (!is_first) return;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) store_sums(own + kArrays * a.cols, k, dweight[k]);
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
  bool aligned =
      a.cols % kPack == 0 && are_aligned({a.dy, a.x, a.weight, a.bias, a.d_residual, a.dx, a.y, a.workspace});
  BackwardShape shape(kNorm, a.dtype, a.cols, aligned);
  const int bytes = shape.stage_bytes(a.dtype);
  if (aligned && bytes > most_shared_bytes() - kOtherShared) {  // long rows on GPUs of less shared memory
    aligned = false;
    shape = BackwardShape(kNorm, a.dtype, a.cols, aligned);
  }
  const std::int64_t blocks = shape.blocks(a.rows);
  auto* partials = static_cast<float*>(a.workspace);
  const int sum_bytes = a.dx_sums != nullptr ? shape.sum_bytes() : 0;
  const bool has_sums = a.dx_sums != nullptr && aligned && shape.has_room_for_sums(a.dtype);
  const auto launch = [&](auto* kernel) {
    const int stages = aligned ? shape.stages(bytes, has_sums ? sum_bytes : 0) : 1;
    const int rows_bytes = aligned ? stages * bytes : 0;
    const int shared = rows_bytes + (has_sums ? sum_bytes : 0);
    allow_shared(kernel, shared, what);
    kernel<<<grid_size(blocks, what), shape.threads(), static_cast<std::size_t>(shared), stream>>>(
        a, stages, has_sums ? rows_bytes : -1, partials);
  };
  with_element(a.dtype, what, [&]<class T>(T) {
    if (!aligned) return launch(norm_backward<kNorm, Unaligned, kLongPacks, false>);
    with_shape<T>(shape, [&]<class Packs, class OneWarp>(Packs, OneWarp) {
      launch(norm_backward<kNorm, T, Packs::value, OneWarp::value>);
    });
  });
  check_launch(what);
  const int arrays = (kNorm == Norm::layer ? 2 : 1) + (has_sums ? 1 : 0);
  const SumTargets targets{.cols = a.cols, .arrays = arrays, .out = {a.dweight, a.dbias, a.dx_sums}};
  launch_sum_partials(stream, blocks, partials, targets, a.accumulate);
  if (a.dx_sums != nullptr && !has_sums)
    launch_bias_backward(stream, a.dtype, a.rows, a.cols, a.dx, a.dx_sums, a.accumulate, a.workspace);
}

}  // namespace

void launch_layernorm_backward(Stream stream, const NormBackward& args) {
  launch_backward<Norm::layer>(stream, args, "layernorm_backward");
}

void launch_rmsnorm_backward(Stream stream, const NormBackward& args) {
  launch_backward<Norm::rms>(stream, args, "rmsnorm_backward");
}

int layernorm_backward_launches(core::DType dtype, std::int64_t cols, bool has_sums) {
  constexpr int kStages = 2;  // partial sums, and their sum
  const bool aligned = cols % kPack == 0;
  const bool on_the_way =
      aligned && BackwardShape(Norm::layer, dtype, cols, aligned).has_room_for_sums(dtype);
  return has_sums && !on_the_way ? 2 * kStages : kStages;
}

std::size_t norm_backward_workspace_bytes(std::int64_t rows, std::int64_t cols, int arrays) {
  constexpr int kWithSums = 3;
  std::int64_t blocks = 0;
  for (const Norm norm : {Norm::layer, Norm::rms}) {
    for (const core::DType dtype : {core::DType::f32, core::DType::bf16}) {
      for (const bool aligned : {false, true})
        blocks = std::max(blocks, BackwardShape(norm, dtype, cols, aligned).blocks(rows));
    }
  }
  const std::size_t bytes = static_cast<std::size_t>(blocks * arrays * cols) * sizeof(float);
  return arrays < kWithSums ? bytes : std::max(bytes, bias_backward_workspace_bytes(rows, cols));
}

}  // namespace rooflm::backends::cuda
