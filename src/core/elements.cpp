// Converts between stored element types and compute types, with one loop per pair of types.
#include "core/elements.h"

#include <type_traits>

namespace rooflm::core {
namespace {

/// Types narrower than float convert only from and to float.
template <class From, class To>
To converted(From value) {
  if constexpr (std::is_arithmetic_v<From> && std::is_arithmetic_v<To>) {
    return static_cast<To>(value);
  } else if constexpr (std::is_arithmetic_v<From>) {
    return To(static_cast<float>(value));
  } else {
    return static_cast<To>(static_cast<float>(value));
  }
}

}  // namespace

template <class C>
void load_elements(DType dtype, const void* from, std::int64_t offset, C* to, std::int64_t count) {
  with_float_type(dtype, [&]<class S>(S) {
    const S* elements = static_cast<const S*>(from) + offset;
    for (std::int64_t i = 0; i < count; ++i) to[i] = converted<S, C>(elements[i]);
  });
}

template <class C>
void store_elements(const C* from, DType dtype, void* to, std::int64_t offset, std::int64_t count) {
  with_float_type(dtype, [&]<class S>(S) {
    S* elements = static_cast<S*>(to) + offset;
    for (std::int64_t i = 0; i < count; ++i) elements[i] = converted<C, S>(from[i]);
  });
}

template void load_elements(DType, const void*, std::int64_t, float*, std::int64_t);
template void load_elements(DType, const void*, std::int64_t, double*, std::int64_t);
template void store_elements(const float*, DType, void*, std::int64_t, std::int64_t);
template void store_elements(const double*, DType, void*, std::int64_t, std::int64_t);

}  // namespace rooflm::core
