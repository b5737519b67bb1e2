// Parts of rows: what adapters add to them, and what gradients take out of them.
#include "backends/cuda/kernels/columns.h"
#include "backends/cuda/kernels/elementwise.cuh"

namespace rooflm::backends::cuda {
namespace {

/// Columns [begin, begin + cols) of z. `aligned`: a pack is inside of [at, at + n) or outside of it.
template <class T>
__global__ void __launch_bounds__(kElementThreads)
    add_columns(Columns c, std::int64_t begin, std::int64_t cols, bool aligned, const T* x, const T* y,
                T* z) {
  const Place place(own_pack(), cols);
  if (place.row >= c.rows) return;
  const std::int64_t first = begin + place.col;
  const std::int64_t end = begin + cols;
  Pack sum = load_pack(x + place.row * c.width, first, end, aligned);
  const T* more = y + place.row * c.n;
  const std::int64_t from = first - c.at;
  if (aligned) {
    if (from >= 0 && from < c.n) {
      const Pack values = load_pack(more, from, c.n, true);
#pragma unroll
      for (int i = 0; i < kPack; ++i) sum[i] += c.factor * values[i];
    }
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      if (from + i >= 0 && from + i < c.n) sum[i] += c.factor * to_float(more[from + i]);
    }
  }
  store_pack(z + place.row * c.width, first, end, aligned, sum);
}

template <class T>
__global__ void __launch_bounds__(kElementThreads) take_columns(Columns c, bool aligned, const T* x, T* y) {
  const Place place(own_pack(), c.n);
  if (place.row >= c.rows) return;
  Pack values = load_pack(x + place.row * c.width + c.at, place.col, c.n, aligned);
#pragma unroll
  for (int i = 0; i < kPack; ++i) values[i] *= c.factor;
  store_pack(y + place.row * c.n, place.col, c.n, aligned, values);
}

/// Whether packs of eight columns neither cross a border nor an alignment.
bool are_whole_packs(const Columns& c) {
  return c.width % kPack == 0 && c.at % kPack == 0 && c.n % kPack == 0;
}

}  // namespace

void launch_add_columns(Stream stream, core::DType dtype, const Columns& c, const void* x, const void* y,
                        void* z) {
  if (c.rows == 0) return;
  const std::int64_t begin = x == z ? c.at : 0;
  const std::int64_t cols = x == z ? c.n : c.width;
  const bool aligned = are_whole_packs(c) && are_aligned({x, y, z});
  with_element(dtype, "add_columns", [&]<class T>(T) {
    add_columns<<<row_blocks(c.rows, cols, "add_columns"), kElementThreads, 0, stream>>>(
        c, begin, cols, aligned, static_cast<const T*>(x), static_cast<const T*>(y), static_cast<T*>(z));
  });
  check_launch("add_columns");
}

void launch_take_columns(Stream stream, core::DType dtype, const Columns& c, const void* x, void* y) {
  if (c.rows == 0) return;
  const bool aligned = are_whole_packs(c) && are_aligned({x, y});
  with_element(dtype, "take_columns", [&]<class T>(T) {
    take_columns<<<row_blocks(c.rows, c.n, "take_columns"), kElementThreads, 0, stream>>>(
        c, aligned, static_cast<const T*>(x), static_cast<T*>(y));
  });
  check_launch("take_columns");
}

}  // namespace rooflm::backends::cuda
