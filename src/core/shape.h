// The extents of a tensor, row-major, last dimension contiguous.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace rooflm::core {

/// Extents of a dense row-major tensor. A scalar has no dimensions and one element.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) : dims_(dims) {}
  explicit Shape(std::vector<std::int64_t> dims) : dims_(std::move(dims)) {}

  [[nodiscard]] std::size_t rank() const { return dims_.size(); }
  /// Extent of dimension `i`; negative `i` counts from the end (-1 is the contiguous one).
  [[nodiscard]] std::int64_t operator[](int i) const {
    return dims_.at(static_cast<std::size_t>(i < 0 ? i + static_cast<int>(dims_.size()) : i));
  }
  [[nodiscard]] const std::vector<std::int64_t>& dims() const { return dims_; }
  /// Number of elements. Throws core::UsageError that names the shape when there are more than 2^50, so that
  /// bytes and a few FLOPs per element always fit 64 bits.
  [[nodiscard]] std::int64_t numel() const {
    std::int64_t n = 1;
    bool fits = true;
    for (const auto d : dims_) fits = fits && !__builtin_mul_overflow(n, d, &n);
    return fits && n <= kMostElements ? n : numel_of_extremes();
  }
  /// "[4, 64, 768]"
  [[nodiscard]] std::string str() const {
    std::string text = "[";
    for (std::size_t i = 0; i < dims_.size(); ++i) text += (i ? ", " : "") + std::to_string(dims_[i]);
    return text + "]";
  }
  bool operator==(const Shape&) const = default;

 private:
  static constexpr std::int64_t kMostElements = std::int64_t{1} << 50;
  /// 0 when an extent is; otherwise throws.
  [[nodiscard]] std::int64_t numel_of_extremes() const;

  std::vector<std::int64_t> dims_;
};

}  // namespace rooflm::core
