// Element types of tensors, and the 16-bit brain float.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rooflm::core {

/// Element type of a tensor. `i32` holds token ids.
enum class DType : std::uint8_t { f64, f32, bf16, f16, i32 };

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
  }
  return 0;
}

/// The name in tables, JSON and messages: "fp64", "fp32", "bf16", "fp16", "int32".
constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "fp64";
    case DType::f32:
      return "fp32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "fp16";
    case DType::i32:
      return "int32";
  }
  return "?";
}

/// bfloat16: the upper half of an IEEE binary32. Conversion rounds to nearest, ties to even; NaN stays NaN.
struct Bf16 {
  std::uint16_t bits = 0;

  Bf16() = default;
  explicit Bf16(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (u & 0x7fffffffU) > 0x7f800000U;
    const std::uint32_t rounded = u + 0x7fffU + ((u >> 16U) & 1U);
    bits = static_cast<std::uint16_t>(is_nan ? ((u >> 16U) | 0x40U) : (rounded >> 16U));
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U); }
};
static_assert(sizeof(Bf16) == 2);

}  // namespace rooflm::core
