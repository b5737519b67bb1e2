// The extents of a tensor, row-major, last dimension contiguous.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace rooflm::core {

/// Extents of a dense row-major tensor. A scalar has no dimensions and one element. Every tensor of a program
/// has a shape, so the extents are stored in the object and not on the heap.
class Shape {
 public:
  static constexpr std::size_t kMostDims = 8;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  /// Throws std::logic_error when there are more than kMostDims.
  explicit Shape(std::span<const std::int64_t> dims) : rank_(dims.size()) {
    if (rank_ > kMostDims) refuse_rank(rank_);
    for (std::size_t i = 0; i < rank_; ++i) dims_[i] = dims[i];
  }

  [[nodiscard]] std::size_t rank() const { return rank_; }
  /// Extent of dimension `i`; negative `i` counts from the end (-1 is the contiguous one).
  [[nodiscard]] std::int64_t operator[](int i) const { return dims()[index_of(i)]; }
  /// The same shape with another extent of dimension `i`.
  [[nodiscard]] Shape with(int i, std::int64_t extent) const {
    Shape other = *this;
    other.dims_[index_of(i)] = extent;
    return other;
  }
  [[nodiscard]] std::span<const std::int64_t> dims() const { return {dims_.data(), rank_}; }
  /// Number of elements. Throws core::UsageError that names the shape if it exceeds 2^50, so that bytes and a
  /// few FLOP per element always fit 64 bits.
  [[nodiscard]] std::int64_t numel() const {
    std::int64_t n = 1;
    bool fits = true;
    for (const auto d : dims()) fits = fits && !__builtin_mul_overflow(n, d, &n);
    return fits && n <= kMostElements ? n : numel_of_extremes();
  }
  /// "[4, 64, 768]"
  [[nodiscard]] std::string str() const {
    std::string text = "[";
    for (std::size_t i = 0; i < rank_; ++i) text += (i ? ", " : "") + std::to_string(dims_[i]);
    return text + "]";
  }
  bool operator==(const Shape&) const = default;

 private:
  static constexpr std::int64_t kMostElements = std::int64_t{1} << 50;
  /// Handles extremes: 0 if an extent is 0; otherwise throws.
  [[nodiscard]] std::int64_t numel_of_extremes() const;
  [[noreturn]] static void refuse_rank(std::size_t rank);
  /// Index of dimension `i`; throws std::logic_error if there is none.
  [[nodiscard]] std::size_t index_of(int i) const {
    const auto index = static_cast<std::size_t>(i < 0 ? i + static_cast<int>(rank_) : i);
    if (index >= rank_) refuse_dimension(i);
    return index;
  }
  [[noreturn]] void refuse_dimension(int i) const;

  std::array<std::int64_t, kMostDims> dims_{};  // zero beyond the rank, so shapes compare by value
  std::size_t rank_ = 0;
};

}  // namespace rooflm::core
