// Weights in fewer bits: codes, and scales by which they are multiplied. docs/quantization.md has the
// formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/dtype.h"
#include "core/weight_format.h"

namespace rooflm::core {

/// Numbers that share a scale, of a row of `width`: int4 128, nf4 64, the whole row of int8 and fp8. 2:4 has
/// no scales; its unit are 16 numbers.
std::int64_t packed_group(DType dtype, std::int64_t width);
/// Why a matrix [rows, width] cannot be packed, for a message: "" if it can.
std::string why_not_packed(DType dtype, std::int64_t rows, std::int64_t width);

/// nf4: numbers whose block scales share a second scale and an offset, in memory and in files.
inline constexpr std::int64_t kScaleGroup = 4096, kFileScaleGroup = 16384;
/// The 16 values of nf4 (Dettmers et al., "QLoRA", 2023, appendix E), ascending.
inline constexpr float kNf4Values[16] = {-1.0F,
                                         -0.6961928009986877F,
                                         -0.5250730514526367F,
                                         -0.39491748809814453F,
                                         -0.28444138169288635F,
                                         -0.18477343022823334F,
                                         -0.09105003625154495F,
                                         0.0F,
                                         0.07958029955625534F,
                                         0.16093020141124725F,
                                         0.24611230194568634F,
                                         0.33791524171829224F,
                                         0.44070982933044434F,
                                         0.5626170039176941F,
                                         0.7229568362236023F,
                                         1.0F};
/// What the 8-bit scales of nf4 mean (core/dynamic_8bit.h), by code.
extern const float* const kScaleCodes;

/// A packed matrix in memory, all planes after each other and without gaps:
/// int8: codes + 128, a byte each; a scale fp32 per row.
/// fp8: e4m3; a scale fp32 per row.
/// int4: codes + 8, two a byte, the first in the lower half; scales fp32 [rows, width / 128].
/// nf4: indices of kNf4Values, two a byte, the first in the lower half; scales as 8-bit codes
///   (core/dynamic_8bit.h) per block of 64; {second scale, offset} fp32 per kScaleGroup numbers. A block's
///   scale is code value * second scale + offset.
/// 2:4: of each 4 numbers the 2 that are kept, in bf16; 4 bits that say which, two sets a byte.
struct PackedMatrix {
  DType dtype = DType::int8;
  std::int64_t rows = 0, width = 0;
  const std::byte* data = nullptr;

  [[nodiscard]] std::int64_t count() const { return rows * width; }
  [[nodiscard]] const std::uint8_t* codes() const { return reinterpret_cast<const std::uint8_t*>(data); }
  /// The plane after the codes: fp32 scales, 8-bit scales of nf4, or the bits of 2:4.
  [[nodiscard]] const std::byte* scales() const { return data + code_bytes(); }
  [[nodiscard]] std::int64_t code_bytes() const;
  /// The scale of group `index`, counted through the matrix.
  [[nodiscard]] float scale(std::int64_t index) const;
  /// nf4: {second scale, offset} by kScaleGroup.
  [[nodiscard]] const float* second_scales() const;
  /// to[i] = element first + i of row `row`, i < count. `first` and `count` are even.
  void unpack(std::int64_t row, std::int64_t first, std::int64_t count, float* to) const;
};

/// Rounds a matrix to nearest into `to` (packed_bytes). Scales are the largest magnitude of a group over
/// 127.5 (int8), 7.5 (int4), 448 (fp8) or 1 (nf4); a group of zeros has the scale 1.
void pack(DType dtype, std::int64_t rows, std::int64_t width, std::span<const float> values, std::byte* to);
/// int8 and int4: the scale of a group by its largest magnitude, the code of a number, and what it stands
/// for.
float integer_scale(DType dtype, float largest);
int integer_code(DType dtype, float value, float scale);

/// 2:4: sets to zero the 2 of each 4 numbers with the least magnitudes, of equal ones the later.
void prune_2_of_4(std::span<float> values);

}  // namespace rooflm::core
