// Packs rows of tensors into the layouts that tile_gemm reads, and unpacks results. For this folder only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "backends/cpu/fast/tile_gemm.h"

namespace rooflm::backends::cpu {
namespace {

// Exchanges the off-diagonal blocks of 2 x 2 blocks of kHalf elements in two rows.
template <int kHalf, int... kLane>
ROOFLM_INLINE void exchange(Floats& low, Floats& high, std::integer_sequence<int, kLane...>) {
  const Floats new_low =
      __builtin_shufflevector(low, high, ((kLane & kHalf) == 0 ? kLane : int{kLanes} + kLane - kHalf)...);
  high = __builtin_shufflevector(low, high, ((kLane & kHalf) == 0 ? kLane + kHalf : int{kLanes} + kLane)...);
  low = new_low;
}

template <int kHalf>
ROOFLM_INLINE void exchange_all(Floats (&rows)[kLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if ((i & kHalf) == 0)
      exchange<kHalf>(rows[i], rows[i + kHalf], std::make_integer_sequence<int, kLanes>{});
  }
}

// A single function for all types: inlined, the exchanges would become many moves.
[[gnu::noinline]] inline void transpose(Floats (&rows)[kLanes]) {
  if constexpr (kLanes > 8) exchange_all<8>(rows);
  exchange_all<4>(rows);
  exchange_all<2>(rows);
  exchange_all<1>(rows);
}

/// to[j * to_stride + i] = factor * from[i * from_stride + j] for i < rows, j < cols. Columns of `to` from
/// rows up to the next multiple of kLanes become zero. Without kScaled the bits are moved unchanged.
template <bool kScaled, Storage S>
void transpose_into(std::int64_t rows, std::int64_t cols, const S* from, std::int64_t from_stride,
                    float factor, float* to, std::int64_t to_stride) {
  for (std::int64_t i = 0; i < rows; i += kLanes) {
    const std::int64_t some_rows = std::min(kLanes, rows - i);
    for (std::int64_t j = 0; j < cols; j += kLanes) {
      const std::int64_t some_cols = std::min(kLanes, cols - j);
      Floats block[kLanes];
#pragma GCC unroll 16
      for (int r = 0; r < kLanes; ++r) {
        block[r] = r < some_rows ? load_n(from + (i + r) * from_stride + j, some_cols) : Floats{};
        if (kScaled) block[r] *= factor;
      }
      transpose(block);
#pragma GCC unroll 16
      for (int r = 0; r < kLanes; ++r) {
        if (r < some_cols) store(to + (j + r) * to_stride + i, block[r]);
      }
    }
  }
}

/// Rows become lanes, for the right operand of a sum over columns: element (j, i) of `to` holds the j-th
/// terms of row i. fp32 is multiplied by `factor`; pairs are not, and need an even number of columns.
template <Storage S>
ROOFLM_INLINE void pack_lanes(std::int64_t rows, std::int64_t cols, const S* from, std::int64_t stride,
                              float factor, float* to, std::int64_t to_stride) {
  transpose_into<true>(rows, cols, from, stride, factor, to, to_stride);
}
ROOFLM_INLINE void pack_lanes(std::int64_t rows, std::int64_t cols, const core::Bf16* from,
                              std::int64_t stride, float, Bf16Pair* to, std::int64_t to_stride) {
  // Moves a pair as if it were one float.
  transpose_into<false>(rows, cols / 2, reinterpret_cast<const float*>(from), stride / 2, 1.0F,
                        reinterpret_cast<float*>(to), to_stride);
}

/// Rows unchanged, for the left operand of a sum over columns; fp32 is zero-padded to whole vectors.
template <Storage S>
void pack_rows(std::int64_t rows, std::int64_t cols, const S* from, std::int64_t stride, float* to,
               std::int64_t to_stride) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const S* source = from + i * stride;
    float* target = to + i * to_stride;
    std::int64_t j = 0;
    for (; j + kLanes <= cols; j += kLanes) store(target + j, load(source + j));
    if (j < cols) store(target + j, load_n(source + j, cols - j));
  }
}
inline void pack_rows(std::int64_t rows, std::int64_t cols, const core::Bf16* from, std::int64_t stride,
                      Bf16Pair* to, std::int64_t to_stride) {
  for (std::int64_t i = 0; i < rows; ++i) {
    std::memcpy(static_cast<void*>(to + i * to_stride), from + i * stride,
                static_cast<std::size_t>(cols) * sizeof(core::Bf16));
  }
}

/// Stores two vectors of fp32 as bf16 pairs.
ROOFLM_INLINE void store_pairs(Bf16Pair* to, Floats low, Floats high) {
  const Words pairs = pair_bits(low, high);
  std::memcpy(static_cast<void*>(to), &pairs, sizeof pairs);
}

/// Rows for a sum over rows: element (i, j) of `to` holds the i-th terms of column j. Columns are zero-padded
/// to whole vectors, an odd last row of pairs with a row of zeros.
template <Storage S>
ROOFLM_INLINE void pack_terms(std::int64_t rows, std::int64_t cols, const S* from, std::int64_t stride,
                              float* to, std::int64_t to_stride) {
  pack_rows(rows, cols, from, stride, to, to_stride);
}
inline void pack_terms(std::int64_t rows, std::int64_t cols, const core::Bf16* from, std::int64_t stride,
                       Bf16Pair* to, std::int64_t to_stride) {
  for (std::int64_t i = 0; i < rows; i += 2) {
    const core::Bf16* source = from + i * stride;
    Bf16Pair* target = to + i / 2 * to_stride;
    for_lanes(0, cols, [&](auto j, auto count) {
      const Floats low = load_at(source + j, count);
      const Floats high = i + 1 < rows ? load_at(source + stride + j, count) : Floats{};
      const Words pairs = (std::bit_cast<Words>(low) >> 16U) | std::bit_cast<Words>(high);
      std::memcpy(static_cast<void*>(target + j), &pairs, sizeof pairs);
    });
  }
}

/// to[i * to_stride + j] = factors[i] * from[j * from_stride + i] for i < rows, j < cols.
template <Storage S>
void unpack_lanes(std::int64_t rows, std::int64_t cols, const float* from, std::int64_t from_stride,
                  const float* factors, S* to, std::int64_t to_stride) {
  for (std::int64_t i = 0; i < rows; i += kLanes) {
    const std::int64_t some_rows = std::min(kLanes, rows - i);
    const Floats factor = load(factors + i);
    for (std::int64_t j = 0; j < cols; j += kLanes) {
      const std::int64_t some_cols = std::min(kLanes, cols - j);
      Floats block[kLanes];
#pragma GCC unroll 16
      for (int r = 0; r < kLanes; ++r) {
        block[r] = r < some_cols ? load(from + (j + r) * from_stride + i) * factor : Floats{};
      }
      transpose(block);
#pragma GCC unroll 16
      for (int r = 0; r < kLanes; ++r) {
        if (r < some_rows) store_n(to + (i + r) * to_stride + j, block[r], some_cols);
      }
    }
  }
}

/// to[i * to_stride + j] (+)= factor * from[i * from_stride + j] for i < rows, j < cols.
template <Storage S>
void unpack_rows(std::int64_t rows, std::int64_t cols, const float* from, std::int64_t from_stride,
                 float factor, S* to, std::int64_t to_stride, bool accumulate) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* source = from + i * from_stride;
    S* target = to + i * to_stride;
    for_lanes(0, cols, [=](auto j, auto count) {
      const Floats x = load_at(source + j, count) * factor;
      store_at(target + j, accumulate ? load_at(target + j, count) + x : x, count);
    });
  }
}

}  // namespace
}  // namespace rooflm::backends::cpu
