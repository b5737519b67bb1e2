// Bringing rows of tensors into the layouts that tile products read, and results back.
// For the kernels of this folder only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "backends/cpu/fast/tile_product.h"

namespace rooflm::backends::cpu {
namespace {

// Exchanges the off-diagonal blocks of 2 x 2 blocks of kHalf elements in two rows.
template <int kHalf, int... kLane>
ROOFLM_INLINE void exchange(F32x16& low, F32x16& high, std::integer_sequence<int, kLane...>) {
  const F32x16 new_low =
      __builtin_shufflevector(low, high, ((kLane & kHalf) == 0 ? kLane : 16 + kLane - kHalf)...);
  high = __builtin_shufflevector(low, high, ((kLane & kHalf) == 0 ? kLane + kHalf : 16 + kLane)...);
  low = new_low;
}

template <int kHalf>
ROOFLM_INLINE void exchange_all(F32x16 (&rows)[16]) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    if ((i & kHalf) == 0) exchange<kHalf>(rows[i], rows[i + kHalf], std::make_integer_sequence<int, 16>{});
  }
}

// One function for all types and places: without AVX-512 the exchanges become a thousand moves.
[[gnu::noinline]] inline void transpose(F32x16 (&rows)[16]) {
  exchange_all<8>(rows);
  exchange_all<4>(rows);
  exchange_all<2>(rows);
  exchange_all<1>(rows);
}

/// to[j * to_stride + i] = factor * from[i * from_stride + j] for i < rows, j < cols; columns of `to` from
/// rows up to the next multiple of 16 become zero. Without kScaled the bits are moved as they are.
template <bool kScaled, Storage S>
void transpose_into(std::int64_t rows, std::int64_t cols, const S* from, std::int64_t from_stride,
                    float factor, float* to, std::int64_t to_stride) {
  for (std::int64_t i = 0; i < rows; i += kLanes) {
    const std::int64_t some_rows = std::min(kLanes, rows - i);
    for (std::int64_t j = 0; j < cols; j += kLanes) {
      const std::int64_t some_cols = std::min(kLanes, cols - j);
      F32x16 block[16];
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) {
        block[r] = r < some_rows ? load_n(from + (i + r) * from_stride + j, some_cols) : F32x16{};
        if (kScaled) block[r] *= factor;
      }
      transpose(block);
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) {
        if (r < some_cols) store(to + (j + r) * to_stride + i, block[r]);
      }
    }
  }
}

/// The rows as lanes, for the right factor of a sum over columns: element (j, i) of `to` holds the j-th terms
/// of row i. fp32 is multiplied by `factor`; pairs are not, and need an even number of columns.
template <Storage S>
ROOFLM_INLINE void pack_lanes(std::int64_t rows, std::int64_t cols, const S* from, std::int64_t stride,
                              float factor, float* to, std::int64_t to_stride) {
  transpose_into<true>(rows, cols, from, stride, factor, to, to_stride);
}
ROOFLM_INLINE void pack_lanes(std::int64_t rows, std::int64_t cols, const core::Bf16* from,
                              std::int64_t stride, float, Bf16Pair* to, std::int64_t to_stride) {
  // A pair is moved as if it were one float.
  transpose_into<false>(rows, cols / 2, reinterpret_cast<const float*>(from), stride / 2, 1.0F,
                        reinterpret_cast<float*>(to), to_stride);
}

/// The rows as they are, for the left factor of a sum over columns; fp32 is padded with zeros to whole
/// vectors.
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

/// Two vectors of fp32, rounded to bf16, as pairs.
ROOFLM_INLINE void store_pairs(Bf16Pair* to, F32x16 low, F32x16 high) {
#if defined(__AVX512BF16__)
  using U16x32 = std::uint16_t __attribute__((vector_size(64)));
  const auto both = std::bit_cast<U16x32>(_mm512_cvtne2ps_pbh(high, low));  // all of low, then all of high
  const U16x32 pairs = [both]<int... kLane>(std::integer_sequence<int, kLane...>) {
    return __builtin_shufflevector(both, both, (kLane / 2 + kLane % 2 * 16)...);
  }
  (std::make_integer_sequence<int, 32>{});
#else
  const U32x16 pairs =
      __builtin_convertvector(narrow(low), U32x16) | (__builtin_convertvector(narrow(high), U32x16) << 16U);
#endif
  std::memcpy(static_cast<void*>(to), &pairs, sizeof pairs);
}

/// The rows for a sum over rows: element (i, j) of `to` holds the i-th terms of column j. Columns are padded
/// with zeros to whole vectors, an odd last row of pairs with a row of zeros.
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
      const F32x16 low = load_at(source + j, count);
      const F32x16 high = i + 1 < rows ? load_at(source + stride + j, count) : F32x16{};
      const U32x16 pairs = (std::bit_cast<U32x16>(low) >> 16U) | std::bit_cast<U32x16>(high);
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

/// to[i * to_stride + j] (+)= factor * from[i * from_stride + j] for i < rows, j < cols.
template <Storage S>
void unpack_rows(std::int64_t rows, std::int64_t cols, const float* from, std::int64_t from_stride,
                 float factor, S* to, std::int64_t to_stride, bool accumulate) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* source = from + i * from_stride;
    S* target = to + i * to_stride;
    for_lanes(0, cols, [=](auto j, auto count) {
      const F32x16 x = load_at(source + j, count) * factor;
      store_at(target + j, accumulate ? load_at(target + j, count) + x : x, count);
    });
  }
}

}  // namespace
}  // namespace rooflm::backends::cpu
