// Element types of tensors: one table of all facts about them; and bfloat16.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace rooflm::core {

/// Element type of a tensor. `i32` holds token ids; `f8` (e4m3) and `f8_e5m2` are the operand types of fp8
/// matmuls (program/fp8.h). From `int8` on: weights as codes and scales in one buffer, whose shape is that of
/// the numbers they stand for (core/packed_weights.h).
enum class DType : std::uint8_t { f64, f32, bf16, f16, f8, f8_e5m2, i32, int8, int4, nf4, fp8_rows, sparse };

/// Facts about a dtype, except its C++ type, which core/elements.h knows.
struct DTypeFacts {
  DType dtype;
  std::string_view name;         ///< in options, tables, JSON and messages
  std::size_t bytes;             ///< of one element
  bool is_float;                 ///< floating-point, with a C++ type (core/elements.h)
  std::string_view stored_name;  ///< in the header of a safetensors file
  std::string_view torch_name;   ///< in the config.json of a Hugging Face directory
};

/// All dtypes in the order of DType: widest first, then integers, then packed weights, whose bytes are those
/// of packed_bytes and which no file has under a name of its own.
constexpr auto kDTypes = std::to_array<DTypeFacts>({
    {DType::f64, "fp64", 8, true, "F64", "float64"},
    {DType::f32, "fp32", 4, true, "F32", "float32"},
    {DType::bf16, "bf16", 2, true, "BF16", "bfloat16"},
    {DType::f16, "fp16", 2, true, "F16", "float16"},
    {DType::f8, "fp8", 1, true, "F8_E4M3", "float8_e4m3fn"},
    {DType::f8_e5m2, "fp8_e5m2", 1, true, "F8_E5M2", "float8_e5m2"},
    {DType::i32, "int32", 4, false, "I32", "int32"},
    {DType::int8, "int8", 1, false, "(int8)", "(int8)"},
    {DType::int4, "int4", 1, false, "(int4)", "(int4)"},
    {DType::nf4, "nf4", 1, false, "(nf4)", "(nf4)"},
    {DType::fp8_rows, "fp8 rows", 1, false, "(fp8)", "(fp8)"},
    {DType::sparse, "2:4", 1, false, "(2:4)", "(2:4)"},
});

constexpr const DTypeFacts& facts_of(DType dtype) { return kDTypes.at(static_cast<std::size_t>(dtype)); }
/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) { return facts_of(dtype).bytes; }
/// The name in tables, JSON and messages: "fp64", "fp32", "bf16", "fp16", "fp8", "fp8_e5m2", "int32".
constexpr std::string_view name_of(DType dtype) { return facts_of(dtype).name; }

/// Whether it is one of the two 8-bit floats.
constexpr bool is_fp8(DType dtype) { return dtype == DType::f8 || dtype == DType::f8_e5m2; }

/// Whether it is codes and scales of weights.
constexpr bool is_packed(DType dtype) { return dtype > DType::i32; }

/// Bytes of `count` numbers in rows of `width`, scales included (core/packed_weights.h).
std::int64_t packed_bytes(DType dtype, std::int64_t count, std::int64_t width);

/// The dtype whose `name` (&DTypeFacts::name, ..) is `text`, if there is one.
constexpr std::optional<DType> find_dtype(std::string_view DTypeFacts::*name, std::string_view text) {
  for (const DTypeFacts& facts : kDTypes) {
    if (facts.*name == text) return facts.dtype;
  }
  return std::nullopt;
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
