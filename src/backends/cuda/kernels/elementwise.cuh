// What elementwise kernels share: eight elements per thread, of an array or of rows.
#pragma once

#include "backends/cuda/kernels/chain.cuh"
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/pack.cuh"

namespace rooflm::backends::cuda {

constexpr int kElementThreads = 256;

/// out[i] = f(in[i] ...)
template <class F, class Out, class... In>
__global__ void __launch_bounds__(kElementThreads)
    map(std::int64_t count, bool aligned, F f, Out* out, const In*... in) {
  follow_previous();
  const std::int64_t first = (std::int64_t{blockIdx.x} * kElementThreads + threadIdx.x) * kPack;
  if (first >= count) return;
  const auto apply = [&](const auto&... packs) {
    Pack result;
#pragma unroll
    for (int i = 0; i < kPack; ++i) result[i] = f(packs[i]...);
    return result;
  };
  store_pack(out, first, count, aligned, apply(load_pack(in, first, count, aligned)...));
}

template <class F, class Out, class... In>
void launch_map(Stream stream, const char* what, std::int64_t count, F f, Out* out, const In*... in) {
  if (count == 0) return;
  const unsigned blocks = grid_size(ceil_div(count, std::int64_t{kElementThreads} * kPack), what);
  launch_chained(stream, what, map<F, Out, In...>, dim3(blocks), kElementThreads, 0, count,
                 are_aligned({out, in...}), f, out, in...);
}

/// Row and column of pack number i, with rows of `cols` elements.
struct Place {
  std::int64_t row, col;
  __device__ Place(std::int64_t pack, std::int64_t cols) {
    const std::int64_t per_row = (cols + kPack - 1) / kPack;
    constexpr std::int64_t kNarrow = 0xffffffff;
    row = pack <= kNarrow && per_row <= kNarrow  // 64-bit division is several times slower
              ? static_cast<unsigned>(pack) / static_cast<unsigned>(per_row)
              : pack / per_row;
    col = (pack - row * per_row) * kPack;
  }
};

__device__ inline std::int64_t own_pack() { return std::int64_t{blockIdx.x} * kElementThreads + threadIdx.x; }

/// Blocks for all packs of the rows.
inline unsigned row_blocks(std::int64_t rows, std::int64_t cols, const char* what) {
  return grid_size(ceil_div(rows * ceil_div(cols, kPack), kElementThreads), what);
}

}  // namespace rooflm::backends::cuda
