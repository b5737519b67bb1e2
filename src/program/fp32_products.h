// How matmuls multiply fp32 factors: an attribute of their ops, and a name in options, tables and catalogs.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/dtype.h"
#include "program/program.h"

namespace rooflm::program {

enum class Fp32Products : std::uint8_t {
  plain,   ///< multiply-adds in fp32
  bf16x6,  ///< six products of bf16 parts, as close to the exact result (backends/cuda/kernels/gemm_bf16x6.h)
  tf32,    ///< factors may be rounded to TF32, 10 bits of mantissa
};

/// "fp32", "bf16x6", "tf32".
constexpr std::string_view name_of(Fp32Products products) {
  constexpr std::array<std::string_view, 3> kNames = {"fp32", "bf16x6", "tf32"};
  return kNames.at(static_cast<std::size_t>(products));
}

/// The name of a rate of matmuls: that of the dtype of their factors, of how they are multiplied in fp32, or
/// "fp8" for both of its formats.
constexpr std::string_view rate_name(core::DType factors, Fp32Products products) {
  if (core::is_fp8(factors)) return core::name_of(core::DType::f8);
  return factors == core::DType::f32 ? name_of(products) : core::name_of(factors);
}

inline Fp32Products fp32_products_of(const Op& op) {
  for (const auto products : {Fp32Products::bf16x6, Fp32Products::tf32}) {
    if (op.attrs.flag(name_of(products))) return products;
  }
  return Fp32Products::plain;
}

inline void set_fp32_products(Op& op, Fp32Products products) {
  if (products != Fp32Products::plain) op.attrs.set(name_of(products), true);
}

}  // namespace rooflm::program
