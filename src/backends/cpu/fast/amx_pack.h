// Packs bf16 operands into the tiles that AmxGemm reads. For this folder only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "backends/cpu/fast/amx_tiles.h"
#include "backends/cpu/fast/vec.h"

namespace rooflm::backends::cpu {
namespace {

/// How an operand is stored, seen from its panels of 32 rows of op(a) or 32 columns of op(b).
enum class Stored : std::uint8_t {
  rows_of_terms,  ///< a [m, k] or transposed b [n, k]: terms are neighbours
  terms_of_rows   ///< transposed a [k, m] or b [k, n]: rows or columns are neighbours
};

/// A transposition of 16 x 16 words of 4 bytes; rows of `from` are `stride` bytes apart, those of `to` 64.
inline void transpose_words(const std::byte* from, std::int64_t stride, std::byte* to) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  const auto quarter = [&](std::int64_t row, std::int64_t part) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + row * stride + 16 * part));
  };
#pragma GCC unroll 4
  for (std::int64_t part = 0; part < 4; ++part) {
    __m512i x[4];
    // Quarters of rows i, i + 4, i + 8 and i + 12, so that 4 x 4 transpositions inside of quarters finish it.
#pragma GCC unroll 4
    for (std::int64_t i = 0; i < 4; ++i) {
      x[i] = _mm512_zextsi128_si512(quarter(4 * 0 + i, part));
      x[i] = _mm512_maskz_inserti32x4(kAll, x[i], quarter(4 * 1 + i, part), 1);
      x[i] = _mm512_maskz_inserti32x4(kAll, x[i], quarter(4 * 2 + i, part), 2);
      x[i] = _mm512_maskz_inserti32x4(kAll, x[i], quarter(4 * 3 + i, part), 3);
    }
    constexpr __mmask8 kEight = 0xff;
    const __m512i low01 = _mm512_maskz_unpacklo_epi32(kAll, x[0], x[1]);
    const __m512i high01 = _mm512_maskz_unpackhi_epi32(kAll, x[0], x[1]);
    const __m512i low23 = _mm512_maskz_unpacklo_epi32(kAll, x[2], x[3]);
    const __m512i high23 = _mm512_maskz_unpackhi_epi32(kAll, x[2], x[3]);
    std::byte* rows = to + 4 * part * kLineBytes;
    _mm512_storeu_si512(rows, _mm512_maskz_unpacklo_epi64(kEight, low01, low23));
    _mm512_storeu_si512(rows + kLineBytes, _mm512_maskz_unpackhi_epi64(kEight, low01, low23));
    _mm512_storeu_si512(rows + 2 * kLineBytes, _mm512_maskz_unpacklo_epi64(kEight, high01, high23));
    _mm512_storeu_si512(rows + 3 * kLineBytes, _mm512_maskz_unpackhi_epi64(kEight, high01, high23));
  }
#else
  for (std::int64_t row = 0; row < kTileSide; ++row) {
    for (std::int64_t column = 0; column < kTileSide; ++column)
      std::memcpy(to + column * kLineBytes + 4 * row, from + row * stride + 4 * column, 4);
  }
#endif
}

/// Two rows of 16 elements as 16 pairs.
ROOFLM_INLINE void interleave(const core::Bf16* even, const core::Bf16* odd, core::Bf16* to) {
  for (std::int64_t i = 0; i < kTileSide; i += kLanes) {
    const Words pairs =
        to_32_bits(load_bits_n(even + i, kLanes)) | (to_32_bits(load_bits_n(odd + i, kLanes)) << 16U);
    std::memcpy(static_cast<void*>(to + 2 * i), &pairs, sizeof pairs);
  }
}

/// One step of a panel, kStepFactors elements: for a left operand two tiles of 16 rows of 32 terms, for a
/// right one two tiles of 16 pairs of terms of 16 columns. `stride`: elements between stored rows.
template <Stored kStored, bool kRight>
void pack_step(const core::Bf16* from, std::int64_t stride, core::Bf16* to) {
  constexpr std::int64_t kBytes = sizeof(core::Bf16);
  const auto bytes = [](auto* p) { return reinterpret_cast<std::byte*>(p); };
  const auto const_bytes = [](const auto* p) { return reinterpret_cast<const std::byte*>(p); };
  for (std::int64_t half = 0; half < 2; ++half, to += kTileFactors) {
    if constexpr (kStored == Stored::rows_of_terms) {
      const core::Bf16* rows = from + half * kTileSide * stride;
      if constexpr (kRight) {
        transpose_words(const_bytes(rows), stride * kBytes, bytes(to));
      } else {
#pragma GCC unroll 16
        for (std::int64_t row = 0; row < kTileSide; ++row)
          std::memcpy(bytes(to + row * kTileTerms), const_bytes(rows + row * stride), kLineBytes);
      }
    } else {
      alignas(64) core::Bf16 pairs[kTileFactors];
      core::Bf16* line = kRight ? to : pairs;
      for (std::int64_t term = 0; term < kTileTerms; term += 2, line += kTileTerms) {
        const core::Bf16* even = from + term * stride + half * kTileSide;
        interleave(even, even + stride, line);
      }
      if constexpr (!kRight) transpose_words(const_bytes(pairs), kLineBytes, bytes(to));
    }
  }
}

/// Packs `panels` panels of `steps` steps from an operand whose part from here on has `rows` rows of op(a) or
/// columns of op(b) and `terms` terms; what lies beyond is zero. Panels of `to` are panel_stride elements
/// apart.
template <Stored kStored, bool kRight>
void pack_panels(std::int64_t panels, std::int64_t steps, std::int64_t rows, std::int64_t terms,
                 const core::Bf16* from, std::int64_t stride, core::Bf16* to, std::int64_t panel_stride) {
  constexpr bool kByRows = kStored == Stored::rows_of_terms;
  const auto pack = [&](std::int64_t panel, std::int64_t step) {
    const std::int64_t row = panel * kBlockSide;
    const std::int64_t term = step * kTileTerms;
    const std::int64_t some_rows = std::clamp<std::int64_t>(rows - row, 0, kBlockSide);
    const std::int64_t some_terms = std::clamp<std::int64_t>(terms - term, 0, kTileTerms);
    core::Bf16* target = to + panel * panel_stride + step * kStepFactors;
    const core::Bf16* source = from + (kByRows ? row * stride + term : term * stride + row);
    if (some_rows == kBlockSide && some_terms == kTileTerms) {
      pack_step<kStored, kRight>(source, stride, target);
      return;
    }
    alignas(64) core::Bf16 padded[kBlockSide * kTileTerms] = {};
    const std::int64_t lines = kByRows ? some_rows : some_terms;
    const auto bytes = static_cast<std::size_t>(kByRows ? some_terms : some_rows) * sizeof(core::Bf16);
    for (std::int64_t i = 0; i < lines; ++i)
      std::memcpy(static_cast<void*>(padded + i * kTileTerms), source + i * stride, bytes);
    pack_step<kStored, kRight>(padded, kTileTerms, target);
  };
  // Along the lines of the operand.
  if constexpr (kByRows) {
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      for (std::int64_t step = 0; step < steps; ++step) pack(panel, step);
    }
  } else {
    for (std::int64_t step = 0; step < steps; ++step) {
      for (std::int64_t panel = 0; panel < panels; ++panel) pack(panel, step);
    }
  }
}

}  // namespace
}  // namespace rooflm::backends::cpu
