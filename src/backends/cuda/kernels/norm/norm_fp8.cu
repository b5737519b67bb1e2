// layernorm and rmsnorm whose results are cast to fp8 without being stored in 16 bits.
//
// A block processes 16 rows, four at a time, distributed over its threads as in norm_forward and summed in
// the same order, so the bits equal those of the norm followed by the cast. The bytes of one column of four
// rows form a word, which stays in shared memory until a thread writes 16 bytes of a row of the transpose.
// The next block writes the other 16 bytes of that sector at about the same time, so they merge in L2.
#include <algorithm>

#include "backends/cuda/kernels/fp8.cuh"
#include "backends/cuda/kernels/norm/norm_fp8.h"
#include "backends/cuda/kernels/norm/norm_shape.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kRowsOfBlock = 16;
constexpr int kBatches = kRowsOfBlock / kWordRows;

/// Four sums over the block, returned to every thread, each as by block_sum.
__device__ void block_sums(float (&x)[kWordRows]) {
  __shared__ float sums[kWordRows][kMostWarps];
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (float& each : x) each = warp_sum(each);
  if (warps == 1) return;
  __syncthreads();  // earlier sums have been read
#pragma unroll
  for (int r = 0; r < kWordRows; ++r) {
    if (lane == 0) sums[r][threadIdx.x / kWarp] = x[r];
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kWordRows; ++r) x[r] = warp_sum(lane < warps ? sums[r][lane] : 0.0F);
}

/// Four rows, of which a thread has kPacks packs each.
template <int kPacks>
struct Batch {
  using Part = RowPart<kPacks>;
  Part rows[kWordRows];

  /// Loads the rows from `row` on. With an addend: their sums, rounded, which are stored unless `measures`.
  __device__ void load(const NormForward& a, std::int64_t row, bool measures) {
#pragma unroll
    for (int r = 0; r < kWordRows; ++r) rows[r].template load<bf16>(a.dtype, a.x, (row + r) * a.cols, a.cols);
    if (a.addend == nullptr) return;
    Part addends[kWordRows];
#pragma unroll
    for (int r = 0; r < kWordRows; ++r) {
      addends[r].template load<bf16>(a.dtype, a.addend, (row + r) * a.cols, a.cols);
    }
#pragma unroll
    for (int r = 0; r < kWordRows; ++r) {
      Part::for_each(a.cols, [&](int k, int i) {
        rows[r].pack[k][i] = rounded<bf16>(rows[r].pack[k][i] + addends[r].pack[k][i]);
      });
      if (!measures) rows[r].template store<bf16>(a.dtype, a.sum, (row + r) * a.cols, a.cols);
    }
  }

  template <Norm kNorm>
  __device__ void normalise(const NormForward& a, std::int64_t row, bool measures) {
    const float n = static_cast<float>(a.cols);
    float mean[kWordRows]{};
    if constexpr (kNorm == Norm::layer) {
#pragma unroll
      for (int r = 0; r < kWordRows; ++r) {
        Part::for_each(a.cols, [&](int k, int i) { mean[r] += rows[r].pack[k][i]; });
      }
      block_sums(mean);
#pragma unroll
      for (float& each : mean) each /= n;
    }
    float rstd[kWordRows]{};
#pragma unroll
    for (int r = 0; r < kWordRows; ++r) {
      Part::for_each(a.cols, [&](int k, int i) {
        const float centred = rows[r].pack[k][i] - mean[r];
        rstd[r] += centred * centred;
      });
    }
    block_sums(rstd);
#pragma unroll
    for (int r = 0; r < kWordRows; ++r) {
      rstd[r] = inverse_root(rstd[r] / n + a.eps);
      if (threadIdx.x != 0 || measures) continue;
      if constexpr (kNorm == Norm::layer) a.mean[row + r] = mean[r];
      a.rstd[row + r] = rstd[r];
    }
    apply_weights<kNorm>(a, mean, rstd);
  }

 private:
  template <Norm kNorm>
  __device__ void apply_weights(const NormForward& a, const float (&mean)[kWordRows],
                                const float (&rstd)[kWordRows]) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const std::int64_t col = Part::first(k);
      if (col >= a.cols) continue;
      const Pack weight = load_whole(a.weight + col);
      Pack bias{};
      if constexpr (kNorm == Norm::layer) bias = load_whole(a.bias + col);
#pragma unroll
      for (int r = 0; r < kWordRows; ++r) {
        Pack& y = rows[r].pack[k];
#pragma unroll
        for (int i = 0; i < kPack; ++i) {
          y[i] = (y[i] - mean[r]) * rstd[r] * weight[i];
          if constexpr (kNorm == Norm::layer) y[i] += bias[i];
          y[i] = rounded<bf16>(y[i]);
        }
      }
    }
  }
};

/// Stores the copies as laid out, and the words of columns in `words` [cols].
template <int kPacks>
__device__ void cast_batch(const Batch<kPacks>& batch, const NormFp8& a, std::int64_t row, float scale,
                           unsigned* words) {
  const std::int64_t cols = a.norm.cols;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const std::int64_t col = RowPart<kPacks>::first(k);
    if (col >= cols) continue;
    unsigned left[kWordRows], right[kWordRows];
#pragma unroll
    for (int r = 0; r < kWordRows; ++r) {
      const uint2 bytes = to_fp8<false>(batch.rows[r].pack[k], scale);
      if (a.as_stored != nullptr) {
        *reinterpret_cast<uint2*>(static_cast<std::uint8_t*>(a.as_stored) + (row + r) * cols + col) = bytes;
      }
      left[r] = bytes.x;
      right[r] = bytes.y;
    }
    auto* to = reinterpret_cast<uint4*>(words + col);
    to[0] = make_uint4(column_of(left, 0), column_of(left, 1), column_of(left, 2), column_of(left, 3));
    to[1] = make_uint4(column_of(right, 0), column_of(right, 1), column_of(right, 2), column_of(right, 3));
  }
}

/// Writes the 16 rows from `first_row` on of every column, from the words of four rows each.
__device__ void write_columns(const NormFp8& a, std::int64_t first_row, const unsigned* words) {
  if (a.transposed == nullptr) return;
  const std::int64_t cols = a.norm.cols;
  auto* to = static_cast<std::uint8_t*>(a.transposed) + first_row;
  for (std::int64_t col = threadIdx.x; col < cols; col += blockDim.x) {
    *reinterpret_cast<uint4*>(to + col * a.norm.rows) =
        make_uint4(words[col], words[cols + col], words[2 * cols + col], words[3 * cols + col]);
  }
}

/// kMeasures: only updates slot.amax, if the slot has no scale.
template <Norm kNorm, int kPacks, bool kMeasures>
__global__ void __launch_bounds__(kMostNormThreads) norm_fp8(NormFp8 a) {
  extern __shared__ uint4 shared[];
  auto* words = reinterpret_cast<unsigned*>(shared);  // [kBatches, cols]
  if (kMeasures && a.slot[program::kFp8Scale] != 0) return;
  const float scale = kMeasures ? 0.0F : scale_of(a.slot, kLargestE4M3);
  const std::int64_t cols = a.norm.cols;
  const std::int64_t first_row = std::int64_t{blockIdx.x} * kRowsOfBlock;
  unsigned largest = 0;
  for (int b = 0; b < kBatches; ++b) {
    const std::int64_t row = first_row + b * kWordRows;
    Batch<kPacks> batch;
    batch.load(a.norm, row, kMeasures);
    batch.template normalise<kNorm>(a.norm, row, kMeasures);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (RowPart<kPacks>::first(k) >= cols) continue;
#pragma unroll
      for (int r = 0; r < kWordRows; ++r) largest = magnitude(largest, batch.rows[r].pack[k]);
    }
    if constexpr (!kMeasures) cast_batch(batch, a, row, scale, words + b * cols);
  }
  add_magnitude(largest, a.slot);  // contains a barrier
  if constexpr (!kMeasures) write_columns(a, first_row, words);
}

template <Norm kNorm, bool kMeasures>
void launch(Stream stream, const NormFp8& a, const char* what) {
  if (a.norm.cols > program::kFp8NormCols) {
    throw core::Unavailable(std::string(what) + " on cuda: rows of " + std::to_string(a.norm.cols) +
                            " elements, the most is " + std::to_string(program::kFp8NormCols));
  }
  const NormShape shape(a.norm.cols);
  auto* kernel = shape.packs == 1 ? norm_fp8<kNorm, 1, kMeasures> : norm_fp8<kNorm, 2, kMeasures>;
  const int bytes = kMeasures ? 0 : static_cast<int>(a.norm.cols) * kRowsOfBlock;
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string("shared memory of ") + what + ": " + cudaGetErrorString(error));
  }
  const unsigned blocks = grid_size(a.norm.rows / kRowsOfBlock, what);
  kernel<<<blocks, static_cast<unsigned>(shape.threads), bytes, stream>>>(a);
  check_launch(what);
}

}  // namespace

void launch_norm_fp8(Stream stream, const NormFp8& args) {
  constexpr const char* kWhat = "norm_fp8";
  args.norm.bias != nullptr ? launch<Norm::layer, false>(stream, args, kWhat)
                            : launch<Norm::rms, false>(stream, args, kWhat);
}

void launch_norm_fp8_amax(Stream stream, const NormFp8& args) {
  constexpr const char* kWhat = "norm_fp8_amax";
  args.norm.bias != nullptr ? launch<Norm::layer, true>(stream, args, kWhat)
                            : launch<Norm::rms, true>(stream, args, kWhat);
}

}  // namespace rooflm::backends::cuda
