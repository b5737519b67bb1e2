// Tensor elements as C++ types, and arrays of them converted to the compute type.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "core/dtype.h"
#include "core/f16.h"
#include "core/f8.h"

namespace rooflm::core {

/// Calls body(T{}) with the C++ element type of a floating-point dtype and returns its result. Throws
/// std::logic_error for integers.
template <class Body>
decltype(auto) with_float_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f64:
      return body(double{});
    case DType::f32:
      return body(float{});
    case DType::bf16:
      return body(Bf16{});
    case DType::f16:
      return body(F16{});
    case DType::f8:
      return body(F8E4M3{});
    case DType::f8_e5m2:
      return body(F8E5M2{});
    default:
      break;
  }
  throw std::logic_error("integers and packed weights have no floating type");
}

/// to[i] = element `offset` + i of `from`, an array of `dtype`, for i < count. C: float or double.
template <class C>
void load_elements(DType dtype, const void* from, std::int64_t offset, C* to, std::int64_t count);

/// Element `offset` + i of `to`, an array of `dtype`, = from[i], rounded to nearest even, for i < count.
template <class C>
void store_elements(const C* from, DType dtype, void* to, std::int64_t offset, std::int64_t count);

}  // namespace rooflm::core
