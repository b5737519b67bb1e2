// Whole numbers that refuse to overflow: extents, FLOPs and bytes.
#pragma once

#include <concepts>
#include <cstdint>

namespace rooflm::core {

/// Throw core::UsageError that names both operands and says that the result does not fit 64 bits.
[[noreturn]] void throw_product_too_large(std::int64_t a, std::int64_t b);
[[noreturn]] void throw_sum_too_large(std::int64_t a, std::int64_t b);

/// An integer whose sums and products throw core::UsageError if they overflow 64 bits. It converts from and
/// to std::int64_t, so a formula is checked if one of its factors is a Count: `2 * Count(m) * n * k`.
/// Differences, quotients and comparisons are those of std::int64_t.
class Count {
 public:
  constexpr Count(std::int64_t value = 0) : value_(value) {}  // NOLINT(google-explicit-constructor)
  constexpr operator std::int64_t() const { return value_; }  // NOLINT(google-explicit-constructor)

  friend constexpr Count operator*(Count a, Count b) {
    std::int64_t result = 0;
    if (__builtin_mul_overflow(a.value_, b.value_, &result)) throw_product_too_large(a.value_, b.value_);
    return result;
  }
  friend constexpr Count operator+(Count a, Count b) {
    std::int64_t result = 0;
    if (__builtin_add_overflow(a.value_, b.value_, &result)) throw_sum_too_large(a.value_, b.value_);
    return result;
  }
  template <std::integral Number>
  friend constexpr Count operator*(Count a, Number b) {
    return a * Count(static_cast<std::int64_t>(b));
  }
  template <std::integral Number>
  friend constexpr Count operator*(Number a, Count b) {
    return Count(static_cast<std::int64_t>(a)) * b;
  }
  template <std::integral Number>
  friend constexpr Count operator+(Count a, Number b) {
    return a + Count(static_cast<std::int64_t>(b));
  }
  template <std::integral Number>
  friend constexpr Count operator+(Number a, Count b) {
    return Count(static_cast<std::int64_t>(a)) + b;
  }
  constexpr Count& operator*=(Count other) { return *this = *this * other; }
  constexpr Count& operator+=(Count other) { return *this = *this + other; }

 private:
  std::int64_t value_;
};

}  // namespace rooflm::core
