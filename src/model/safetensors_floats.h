// Element types of safetensors files: their sizes, and conversion between them and fp32.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/dtype.h"

namespace rooflm::model {

/// Bytes of one element of a safetensors dtype, 0 for a name that the format does not know.
constexpr std::size_t stored_size(std::string_view dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "BF16" || dtype == "F16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "BOOL" || dtype == "U8" || dtype == "I8" || dtype == "F8_E5M2" || dtype == "F8_E4M3") return 1;
  return 0;
}

/// The name of a dtype in a safetensors header.
constexpr std::string_view stored_name(core::DType dtype) {
  switch (dtype) {
    case core::DType::f64:
      return "F64";
    case core::DType::f32:
      return "F32";
    case core::DType::bf16:
      return "BF16";
    case core::DType::f16:
      return "F16";
    case core::DType::i32:
      return "I32";
  }
  return "?";
}

/// IEEE binary16 as stored.
struct Half {
  std::uint16_t bits = 0;

  Half() = default;
  /// Rounds to nearest, ties to even; beyond 65504 becomes infinite, NaN stays NaN.
  explicit Half(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (u >> 16U) & 0x8000U;
    const std::uint32_t magnitude = u & 0x7fffffffU;
    if (magnitude > 0x7f800000U) {
      bits = static_cast<std::uint16_t>(sign | 0x7e00U);
    } else if (magnitude >= 0x47800000U) {  // 2^16 and above
      bits = static_cast<std::uint16_t>(sign | 0x7c00U);
    } else if (magnitude < 0x38800000U) {  // below 2^-14: add 0.5, whose last place is 2^-24, a half's own
      const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
      bits = static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U));
    } else {
      const std::uint32_t rebased = magnitude - (112U << 23U);
      const std::uint32_t rounded = rebased + 0xfffU + ((rebased >> 13U) & 1U);
      bits = static_cast<std::uint16_t>(sign | (rounded >> 13U));
    }
  }
  explicit operator float() const {
    const std::uint32_t sign = (bits & 0x8000U) << 16U;
    const std::uint32_t magnitude = bits & 0x7fffU;
    if (magnitude >= 0x7c00U) {
      return std::bit_cast<float>(sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13U));
    }
    // A half's bits read as the upper bits of a float are 2^112 too small, denormals included.
    const float value = std::bit_cast<float>(magnitude << 13U) * 0x1p112F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }
};
static_assert(sizeof(Half) == 2);

}  // namespace rooflm::model
