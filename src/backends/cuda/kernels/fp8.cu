// fp8 copies of tensors, as stored and transposed, in one pass over the tensor; and their scales.
//
// A block casts a tile of 128 x 128 elements, a warp 32 x 32 (8 x 4 lanes). A thread casts 4 rows of 8
// columns, so it holds the 4 bytes of one column of the transpose in one word. The words are transposed
// through shared memory with a pitch of 33 words, which avoids bank conflicts in both directions, and written
// 16 bytes at a time, 128 contiguous bytes per row of the transpose.
#include <algorithm>

#include "backends/cuda/kernels/fp8.cuh"
#include "backends/cuda/kernels/fp8.h"
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/swiglu.cuh"
#include "program/fp8.h"

namespace rooflm::backends::cuda {
namespace {

using program::kFp8Amax;
using program::kFp8FirstAmax;
using program::kFp8History;
using program::kFp8Scale;
using program::kFp8Slot;

constexpr int kTile = 128;
constexpr int kThreads = 256;
constexpr int kRows = kWordRows;           ///< rows per thread at a time
constexpr int kPitch = kTile / kRows + 1;  ///< words from one column of a tile to the next
constexpr int kPart = 32;                  ///< edge of a warp's square
constexpr int kChunk = sizeof(uint4);      ///< bytes of the transpose per store

__global__ void fp8_reset(float* slot) { slot[threadIdx.x] = 0; }

/// The source [.., cols]: the raw loads for eight elements, and their values.
struct Tensor {
  using Raw = RawPack<bf16>;
  const bf16* x;
  __device__ Raw fetch(std::int64_t row, std::int64_t col, std::int64_t cols) const {
    return load_raw(x + row * cols + col);
  }
  __device__ static Pack value(const Raw& raw) { return unpack(raw); }
};

struct SwiGlu {
  struct Raw {
    RawPack<bf16> gate, up;
  };
  const bf16* h;
  __device__ Raw fetch(std::int64_t row, std::int64_t col, std::int64_t cols) const {
    const bf16* gate = h + row * 2 * cols + col;
    return {load_raw(gate), load_raw(gate + cols)};
  }
  __device__ static Pack value(const Raw& raw) {
    return rounded_pack<bf16>(swiglu_of<bf16>(unpack(raw.gate), unpack(raw.up)));
  }
};

struct SwiGluBackward {
  struct Raw {
    RawPack<bf16> dy, gate, up;
    bool is_gate;  ///< whether the elements are the gradient of the gate
  };
  const bf16 *dy, *h;
  __device__ Raw fetch(std::int64_t row, std::int64_t col, std::int64_t cols) const {
    const std::int64_t width = cols / 2;
    const bool is_gate = col < width;
    if (!is_gate) col -= width;
    const bf16* gate = h + row * cols + col;
    return {load_raw(dy + row * width + col), load_raw(gate), load_raw(gate + width), is_gate};
  }
  __device__ static Pack value(const Raw& raw) {
    const Pack dy = unpack(raw.dy);
    const Pack gate = unpack(raw.gate);
    return rounded_pack<bf16>(raw.is_gate ? swiglu_d_gate<bf16>(dy, gate, unpack(raw.up))
                                          : swiglu_d_up<bf16>(dy, gate));
  }
};

template <class Source>
__global__ void __launch_bounds__(kThreads)
    fp8_amax(std::int64_t rows, std::int64_t cols, Source source, float* slot) {
  if (slot[kFp8Scale] != 0) return;
  unsigned largest = 0;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    for (std::int64_t col = std::int64_t{threadIdx.x} * kPack; col < cols; col += kThreads * kPack) {
      largest = magnitude(largest, Source::value(source.fetch(row, col, cols)));
    }
  }
  add_magnitude(largest, slot);
}

template <bool kIsE5M2, class Source>
__global__ void __launch_bounds__(kThreads)
    fp8_cast(std::int64_t rows, std::int64_t cols, std::int64_t tiles_across, Source source,
             std::uint8_t* as_stored, std::uint8_t* transposed, float* slot) {
  __shared__ unsigned tile[kTile * kPitch];
  const float scale = scale_of(slot, kIsE5M2 ? kLargestE5M2 : kLargestE4M3);
  const std::int64_t first_row = blockIdx.x / tiles_across * kTile;
  const std::int64_t first_col = blockIdx.x % tiles_across * kTile;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int kParts = kTile / kPart;
  constexpr int kPasses = kParts * kParts / (kThreads / 32);
  unsigned largest = 0;
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    const int part = pass * (kThreads / 32) + warp;
    const int row = part / kParts * kPart + lane / 4 * kRows;
    const int col = part % kParts * kPart + lane % 4 * kPack;
    if (first_row + row >= rows || first_col + col >= cols) continue;
    const std::int64_t at = (first_row + row) * cols + first_col + col;
    typename Source::Raw raw[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) raw[i] = source.fetch(first_row + row + i, first_col + col, cols);
    unsigned left[kRows], right[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const Pack pack = Source::value(raw[i]);
      largest = magnitude(largest, pack);
      const uint2 bytes = to_fp8<kIsE5M2>(pack, scale);
      if (as_stored != nullptr) *reinterpret_cast<uint2*>(as_stored + at + i * cols) = bytes;
      left[i] = bytes.x;
      right[i] = bytes.y;
    }
    if (transposed == nullptr) continue;
#pragma unroll
    for (int i = 0; i < kPack / 2; ++i) {
      tile[(col + i) * kPitch + row / kRows] = column_of(left, i);
      tile[(col + i + kPack / 2) * kPitch + row / kRows] = column_of(right, i);
    }
  }
  add_magnitude(largest, slot);  // contains a barrier
  if (transposed == nullptr) return;
  constexpr int kChunks = kTile / kChunk;  // chunks per column
#pragma unroll
  for (int pass = 0; pass < kTile * kChunks / kThreads; ++pass) {
    const int col = pass * (kThreads / kChunks) + static_cast<int>(threadIdx.x) / kChunks;
    const int row = static_cast<int>(threadIdx.x) % kChunks * kChunk;
    if (first_row + row >= rows || first_col + col >= cols) continue;
    const unsigned* words = tile + col * kPitch + row / kRows;
    *reinterpret_cast<uint4*>(transposed + (first_col + col) * rows + first_row + row) =
        make_uint4(words[0], words[1], words[2], words[3]);
  }
}

/// program::fp8_next_scale, one thread per slot.
__global__ void fp8_scales(std::int64_t slots, bool e5m2_gradients, float* state) {
  const std::int64_t index = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (index >= slots) return;
  float* slot = state + index * kFp8Slot;
  float* history = slot + kFp8FirstAmax;
  const bool is_gradient = index % program::kFp8Operands == static_cast<int>(program::Fp8Operand::gradient);
  const float amax = slot[kFp8Amax];
  if (isfinite(amax)) {
    for (int i = kFp8History - 1; i > 0; --i) history[i] = history[i - 1];
    history[0] = amax;
  }
  slot[kFp8Amax] = 0;
  float most = 0;
  for (int i = 0; i < kFp8History; ++i) most = fmaxf(most, history[i]);
  if (most > 0) {
    set_scale(slot, scale_for(most, is_gradient && e5m2_gradients ? kLargestE5M2 : kLargestE4M3));
  } else if (slot[kFp8Scale] == 0) {
    set_scale(slot, 1);
  }
}

}  // namespace

namespace {

/// Calls body(source) for the kind of source.
template <class Body>
void with_source(const Fp8Cast& cast, Body&& body) {
  const auto* h = static_cast<const bf16*>(cast.h);
  switch (cast.source) {
    case Fp8Source::tensor:
      return body(Tensor{static_cast<const bf16*>(cast.x)});
    case Fp8Source::swiglu:
      return body(SwiGlu{h});
    case Fp8Source::swiglu_backward:
      return body(SwiGluBackward{static_cast<const bf16*>(cast.dy), h});
  }
}

}  // namespace

void launch_fp8_reset(Stream stream, float* slot) {
  fp8_reset<<<1, kFp8Slot, 0, stream>>>(slot);
  check_launch("fp8_reset");
}

void launch_fp8_amax(Stream stream, const Fp8Cast& cast) {
  constexpr int kBlocksPerMultiprocessor = 4;
  with_source(cast, [&](auto source) {
    const std::int64_t most = std::int64_t{multiprocessors()} * kBlocksPerMultiprocessor;
    const auto blocks = static_cast<unsigned>(std::min(most, cast.rows));
    fp8_amax<<<blocks, kThreads, 0, stream>>>(cast.rows, cast.cols, source, cast.slot);
  });
  check_launch("fp8_amax");
}

void launch_fp8_cast(Stream stream, const Fp8Cast& cast, bool is_e5m2) {
  const std::int64_t across = ceil_div(cast.cols, kTile);
  const unsigned blocks = grid_size(across * ceil_div(cast.rows, kTile), "fp8_cast");
  auto* as_stored = static_cast<std::uint8_t*>(cast.as_stored);
  auto* transposed = static_cast<std::uint8_t*>(cast.transposed);
  with_source(cast, [&]<class Source>(Source source) {
    const auto kernel = is_e5m2 ? fp8_cast<true, Source> : fp8_cast<false, Source>;
    kernel<<<blocks, kThreads, 0, stream>>>(cast.rows, cast.cols, across, source, as_stored, transposed,
                                            cast.slot);
  });
  check_launch("fp8_cast");
}

void launch_fp8_scales(Stream stream, std::int64_t slots, bool e5m2_gradients, float* state) {
  constexpr int kBlock = 128;
  fp8_scales<<<grid_size(ceil_div(slots, kBlock), "fp8_scales"), kBlock, 0, stream>>>(slots, e5m2_gradients,
                                                                                      state);
  check_launch("fp8_scales");
}

}  // namespace rooflm::backends::cuda
