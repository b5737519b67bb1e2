// Packs bf16 operands into the tiles that AmxGemm reads. For this folder only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "backends/cpu/fast/amx/tiles.h"
#include "backends/cpu/fast/parallel.h"
#include "backends/cpu/fast/vec.h"

namespace rooflm::backends::cpu {
namespace {

/// How an operand is stored. Its lines are the rows of op(a) or the columns of op(b), and a panel is 32
/// lines.
enum class Stored : std::uint8_t {
  lines_of_terms,  ///< a [m, k] or transposed b [n, k]: terms are neighbours
  terms_of_lines   ///< transposed a [k, m] or b [k, n]: lines are neighbours
};

/// An operand as a call gets it: each of `lines` lines has `terms` terms. `stride`: elements between stored
/// rows.
struct Operand {
  const core::Bf16* data;
  std::int64_t stride;
  Stored stored;
  std::int64_t lines;
  std::int64_t terms;

  [[nodiscard]] const core::Bf16* at(std::int64_t line, std::int64_t term) const {
    return data + (stored == Stored::lines_of_terms ? line * stride + term : term * stride + line);
  }
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
      x[i] = _mm512_zextsi128_si512(quarter(i, part));
      x[i] = _mm512_maskz_inserti32x4(kAll, x[i], quarter(4 + i, part), 1);
      x[i] = _mm512_maskz_inserti32x4(kAll, x[i], quarter(8 + i, part), 2);
      x[i] = _mm512_maskz_inserti32x4(kAll, x[i], quarter(12 + i, part), 3);
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
    if constexpr (kStored == Stored::lines_of_terms) {
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

/// Packs the step of `x` that begins at (line, term). What lies beyond the operand is zero.
template <Stored kStored, bool kRight>
void pack_step_at(const Operand& x, std::int64_t line, std::int64_t term, core::Bf16* to) {
  const std::int64_t lines = std::clamp<std::int64_t>(x.lines - line, 0, kBlockSide);
  const std::int64_t terms = std::clamp<std::int64_t>(x.terms - term, 0, kTileTerms);
  const core::Bf16* from = x.at(line, term);
  if (lines == kBlockSide && terms == kTileTerms) {
    pack_step<kStored, kRight>(from, x.stride, to);
    return;
  }
  constexpr bool kByLines = kStored == Stored::lines_of_terms;
  alignas(64) core::Bf16 padded[kBlockSide * kTileTerms] = {};
  const std::int64_t rows = kByLines ? lines : terms;
  const auto bytes = static_cast<std::size_t>(kByLines ? terms : lines) * sizeof(core::Bf16);
  for (std::int64_t i = 0; i < rows; ++i)
    std::memcpy(static_cast<void*>(padded + i * kTileTerms), from + i * x.stride, bytes);
  pack_step<kStored, kRight>(padded, kTileTerms, to);
}

/// Packs `panels` panels of `steps` steps of `x` from (line, term) on. Panels of `to` are panel_stride
/// elements apart.
template <bool kRight>
void pack_panels(const Operand& x, std::int64_t line, std::int64_t term, std::int64_t panels,
                 std::int64_t steps, core::Bf16* to, std::int64_t panel_stride) {
  const auto pack = [&]<Stored kStored>(std::int64_t panel, std::int64_t step) {
    pack_step_at<kStored, kRight>(x, line + panel * kBlockSide, term + step * kTileTerms,
                                  to + panel * panel_stride + step * kStepFactors);
  };
  // Along the stored rows.
  if (x.stored == Stored::lines_of_terms) {
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      for (std::int64_t step = 0; step < steps; ++step)
        pack.template operator()<Stored::lines_of_terms>(panel, step);
    }
  } else {
    for (std::int64_t step = 0; step < steps; ++step) {
      for (std::int64_t panel = 0; panel < panels; ++panel)
        pack.template operator()<Stored::terms_of_lines>(panel, step);
    }
  }
}

/// Packs `lines` lines with all of their terms, on all threads.
template <bool kRight>
void pack_shared(const Operand& x, std::int64_t first_line, std::int64_t lines, core::Bf16* to) {
  const std::int64_t steps = (x.terms + kTileTerms - 1) / kTileTerms;
  const std::int64_t panel_stride = steps * kStepFactors;
  parallel_for((lines + kBlockSide - 1) / kBlockSide, 1, [&](std::int64_t begin, std::int64_t end) {
    pack_panels<kRight>(x, first_line + begin * kBlockSide, 0, end - begin, steps, to + begin * panel_stride,
                        panel_stride);
  });
}

}  // namespace
}  // namespace rooflm::backends::cpu
