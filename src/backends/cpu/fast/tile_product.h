// Products of small fp32 matrices that sit in cache, as attention makes them: the innermost kernels.
// For the kernels of this folder only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu/fast/vec.h"

namespace rooflm::backends::cpu {
namespace {

/// The left factor [m, k]. Element (i, j) is at data[i * stride + j], or transposed at data[i + j * stride].
template <bool kTransposed>
struct LeftFactor {
  const float* data;
  std::int64_t stride;
  [[nodiscard]] ROOFLM_INLINE float at(std::int64_t i, std::int64_t j) const {
    return kTransposed ? data[i + j * stride] : data[i * stride + j];
  }
  [[nodiscard]] ROOFLM_INLINE LeftFactor from(std::int64_t i, std::int64_t j) const {
    return {kTransposed ? data + i + j * stride : data + i * stride + j, stride};
  }
};

/// What becomes of the elements that the result held.
enum class Result { overwrite, accumulate, scale_and_accumulate };

// c[0:kRows, 0:16*kVectors] from k terms, all sums in registers.
template <int kRows, int kVectors, Result kResult, bool kTransposed>
ROOFLM_INLINE void micro_product(std::int64_t k, LeftFactor<kTransposed> a, const float* b, std::int64_t ldb,
                                 float* c, std::int64_t ldc, const float* scale) {
  F32x16 sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sums[i][v] = kResult == Result::overwrite ? F32x16{} : load(c + i * ldc + v * kLanes);
      if (kResult == Result::scale_and_accumulate) sums[i][v] *= load(scale + v * kLanes);
    }
  }
  for (std::int64_t j = 0; j < k; ++j) {
    F32x16 right[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) right[v] = load(b + j * ldb + v * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const F32x16 left = splat(a.at(i, j));
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[i][v] += left * right[v];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store(c + i * ldc + v * kLanes, sums[i][v]);
  }
}

// One block of at most 6 rows: 6 x 4 sums, 4 right vectors and a broadcast fill the 32 registers.
constexpr std::int64_t kMicroRows = 6;

template <int kVectors, Result kResult, bool kTransposed>
void product_panel(std::int64_t m, std::int64_t k, LeftFactor<kTransposed> a, const float* b,
                   std::int64_t ldb, float* c, std::int64_t ldc, const float* scale) {
  std::int64_t i = 0;
  for (; i + kMicroRows <= m; i += kMicroRows) {
    micro_product<kMicroRows, kVectors, kResult>(k, a.from(i, 0), b, ldb, c + i * ldc, ldc, scale);
  }
  const auto rest = [&]<int kRows>() {
    micro_product<kRows, kVectors, kResult>(k, a.from(i, 0), b, ldb, c + i * ldc, ldc, scale);
  };
  switch (m - i) {
    case 1:
      return rest.template operator()<1>();
    case 2:
      return rest.template operator()<2>();
    case 3:
      return rest.template operator()<3>();
    case 4:
      return rest.template operator()<4>();
    case 5:
      return rest.template operator()<5>();
    default:
      return;
  }
}

/// c = a · b, c += a · b or c = c * scale + a · b with a [m, k], b [k, 16*vectors] (row stride ldb), c
/// [m, 16*vectors] (row stride ldc), scale [16*vectors] one factor per column.
template <Result kResult, bool kTransposed>
ROOFLM_INLINE void tile_product(std::int64_t m, std::int64_t vectors, std::int64_t k,
                                LeftFactor<kTransposed> a, const float* b, std::int64_t ldb, float* c,
                                std::int64_t ldc, const float* scale = nullptr) {
  while (vectors > 0) {
    const std::int64_t panel = vectors <= 4 ? vectors : std::min<std::int64_t>(4, (vectors + 1) / 2);
    const auto run = [&]<int kVectors>() {
      product_panel<kVectors, kResult>(m, k, a, b, ldb, c, ldc, scale);
    };
    switch (panel) {
      case 1:
        run.template operator()<1>();
        break;
      case 2:
        run.template operator()<2>();
        break;
      case 3:
        run.template operator()<3>();
        break;
      default:
        run.template operator()<4>();
        break;
    }
    b += panel * kLanes;
    c += panel * kLanes;
    if (kResult == Result::scale_and_accumulate) scale += panel * kLanes;
    vectors -= panel;
  }
}

// Exchanges the off-diagonal blocks of 2 x 2 blocks of kHalf elements in two rows.
template <int kHalf>
ROOFLM_INLINE void exchange(F32x16& low, F32x16& high) {
  I32x16 to_low{};
  I32x16 to_high{};
  for (int i = 0; i < kLanes; ++i) {
    to_low[i] = (i & kHalf) == 0 ? i : 16 + i - kHalf;
    to_high[i] = (i & kHalf) == 0 ? i + kHalf : 16 + i;
  }
  const F32x16 new_low = __builtin_shuffle(low, high, to_low);
  high = __builtin_shuffle(low, high, to_high);
  low = new_low;
}

template <int kHalf>
ROOFLM_INLINE void exchange_all(F32x16 (&rows)[16]) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    if ((i & kHalf) == 0) exchange<kHalf>(rows[i], rows[i + kHalf]);
  }
}

ROOFLM_INLINE void transpose(F32x16 (&rows)[16]) {
  exchange_all<8>(rows);
  exchange_all<4>(rows);
  exchange_all<2>(rows);
  exchange_all<1>(rows);
}

/// to[j * to_stride + i] = factor * from[i * from_stride + j] for i < rows, j < cols; columns of `to` from
/// rows up to the next multiple of 16 become zero.
template <Storage S>
void transpose_into(std::int64_t rows, std::int64_t cols, const S* from, std::int64_t from_stride,
                    float factor, float* to, std::int64_t to_stride) {
  for (std::int64_t i = 0; i < rows; i += kLanes) {
    const std::int64_t some_rows = std::min(kLanes, rows - i);
    for (std::int64_t j = 0; j < cols; j += kLanes) {
      const std::int64_t some_cols = std::min(kLanes, cols - j);
      F32x16 block[16];
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) {
        block[r] = r < some_rows ? load_n(from + (i + r) * from_stride + j, some_cols) * factor : F32x16{};
      }
      transpose(block);
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) {
        if (r < some_cols) store(to + (j + r) * to_stride + i, block[r]);
      }
    }
  }
}

/// to[i * to_stride + j] = factors[i] * from[j * from_stride + i] for i < rows, j < cols.
template <Storage S>
void transpose_out(std::int64_t rows, std::int64_t cols, const float* from, std::int64_t from_stride,
                   const float* factors, S* to, std::int64_t to_stride) {
  for (std::int64_t i = 0; i < rows; i += kLanes) {
    const std::int64_t some_rows = std::min(kLanes, rows - i);
    const F32x16 factor = load(factors + i);
    for (std::int64_t j = 0; j < cols; j += kLanes) {
      const std::int64_t some_cols = std::min(kLanes, cols - j);
      F32x16 block[16];
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) {
        block[r] = r < some_cols ? load(from + (j + r) * from_stride + i) * factor : F32x16{};
      }
      transpose(block);
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) {
        if (r < some_rows) store_n(to + (i + r) * to_stride + j, block[r], some_cols);
      }
    }
  }
}

/// to[i * to_stride + j] = factor * from[i * from_stride + j] as fp32 for i < rows, j < cols; zero up to the
/// next multiple of 16 columns.
template <Storage S>
void copy_rows(std::int64_t rows, std::int64_t cols, const S* from, std::int64_t from_stride, float* to,
               std::int64_t to_stride) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const S* source = from + i * from_stride;
    float* target = to + i * to_stride;
    std::int64_t j = 0;
    for (; j + kLanes <= cols; j += kLanes) store(target + j, load(source + j));
    if (j < cols) store(target + j, load_n(source + j, cols - j));
  }
}

}  // namespace
}  // namespace rooflm::backends::cpu
