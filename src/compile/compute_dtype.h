// What a step computes in: one of the names of --dtype.
#pragma once

#include <string_view>

#include "core/dtype.h"
#include "core/named.h"
#include "program/fp32_products.h"

namespace rooflm::compile {

/// bf16x6 and TF32 are fp32 with other matmuls (program/fp32_products.h). fp8 (f8) is bf16 whose matmuls of
/// layers read scaled copies.
struct ComputeDtype {
  core::DType dtype = core::DType::f32;
  program::Fp32Products fp32_products = program::Fp32Products::plain;
  bool operator==(const ComputeDtype&) const = default;
};

/// Those of --dtype.
constexpr auto names_of(const ComputeDtype&) {
  using core::DType;
  using program::Fp32Products;
  return core::named<ComputeDtype>("dtype", {{{DType::f32}, "fp32"},
                                             {{DType::f32, Fp32Products::bf16x6}, "bf16x6"},
                                             {{DType::f32, Fp32Products::tf32}, "tf32"},
                                             {{DType::bf16}, "bf16"},
                                             {{DType::f16}, "fp16"},
                                             {{DType::f8}, "fp8"}});
}

/// Of fp64, too, which peaks are measured in.
constexpr std::string_view name_of(const ComputeDtype& compute) {
  return program::rate_name(compute.dtype, compute.fp32_products);
}

}  // namespace rooflm::compile
