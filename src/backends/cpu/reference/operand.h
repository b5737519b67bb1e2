// How the reference kernels access tensors of any floating-point type: converted row by row to the compute
// type, or in place if it is the same.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>

#include "backends/cpu/fast/parallel.h"
#include "backends/cpu/resources.h"
#include "core/elements.h"

namespace rooflm::backends::cpu::reference {

using core::DType;

/// The dtype of the compute type C: double for fp64 programs, float otherwise.
template <class C>
constexpr DType kComputed = std::is_same_v<C, double> ? DType::f64 : DType::f32;

/// Elements per piece of an elementwise op.
constexpr std::int64_t kPiece = 2048;

/// Memory for `count` elements at a 64-byte boundary. Eigen processes elements before the first such boundary
/// with scalar code, whose exp differs in the last bit: results are reproducible only for equal alignment.
template <class C>
std::shared_ptr<C[]> aligned_array(std::int64_t count) {
  constexpr std::align_val_t kBorder{64};
  return {new (kBorder) C[static_cast<std::size_t>(count)],
          [](C* data) { operator delete[](data, kBorder); }};
}

/// to[i] = from[i]
template <class From, class To>
void convert(const From* from, To* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(from[i]);
}

/// One operand. If the stored type is not C, each thread has a buffer of `width` elements.
template <class C>
class Operand {
 public:
  Operand() = default;
  Operand(DType dtype, std::int64_t width, int threads) : dtype_(dtype), stride_((width + 15) / 16 * 16) {
    if (dtype != kComputed<C>) buffer_ = aligned_array<C>(threads * stride_);
  }

  /// Elements [offset, offset + count), count <= width. Valid until this thread's next read.
  const C* read(const void* base, std::int64_t offset, std::int64_t count) const {
    if (buffer_ == nullptr) return static_cast<const C*>(base) + offset;
    C* to = own_buffer();
    core::load_elements(dtype_, base, offset, to, count);
    return to;
  }

  /// Calls `fill(C*)`, which must write all `count` elements, and stores them at `offset`.
  template <class Fill>
  void write(void* base, std::int64_t offset, std::int64_t count, Fill&& fill) const {
    C* to = buffer_ == nullptr ? static_cast<C*>(base) + offset : own_buffer();
    fill(to);
    if (buffer_ != nullptr) core::store_elements(to, dtype_, base, offset, count);
  }

 private:
  [[nodiscard]] C* own_buffer() const { return buffer_.get() + omp_get_thread_num() * stride_; }

  DType dtype_ = kComputed<C>;
  std::int64_t stride_ = 0;      ///< elements of one thread's buffer
  std::shared_ptr<C[]> buffer_;  ///< none when the stored type is C
};

/// Input or output `i` of an op, accessed in rows of `width`.
template <class C>
Operand<C> in_operand(const OpView& v, std::size_t i, std::int64_t width) {
  return {v.in(i).dtype, width, v.context->threads()};
}
template <class C>
Operand<C> out_operand(const OpView& v, std::size_t i, std::int64_t width) {
  return {v.out(i).dtype, width, v.context->threads()};
}

/// Calls body(offset, count) for all pieces of [0, n), in parallel.
template <class Body>
void for_pieces(std::int64_t n, Body&& body) {
  parallel_for(n, kPiece, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; i += kPiece) body(i, std::min(kPiece, end - i));
  });
}

/// Calls body(row) for all rows, in parallel.
template <class Body>
void for_rows(std::int64_t rows, Body&& body) {
  parallel_for(rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) body(r);
  });
}

/// Columns that one thread sums at a time; body(first, count) runs for all of them in parallel. Sums over
/// rows are split by columns, so their order does not depend on the thread count.
constexpr std::int64_t kColumns = 64;
template <class Body>
void for_columns(std::int64_t columns, Body&& body) {
  parallel_for(columns, kColumns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; c += kColumns) body(c, std::min(kColumns, end - c));
  });
}

/// Sums in double: of x_i, and of x_i y_i.
template <class C>
double sum(const C* x, std::int64_t count) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < count; ++i) total += static_cast<double>(x[i]);
  return total;
}
template <class C>
double dot(const C* x, const C* y, std::int64_t count) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < count; ++i) total += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return total;
}

/// Calls make(C{}) with the compute type.
template <class Make>
Kernel with_compute_type(const OpView& v, Make&& make) {
  const auto is_double = [&](program::TensorId id) {
    return id != program::kNone && v.program.tensor(id).dtype == DType::f64;
  };
  const bool any_double = std::any_of(v.op.inputs.begin(), v.op.inputs.end(), is_double) ||
                          std::any_of(v.op.outputs.begin(), v.op.outputs.end(), is_double);
  return any_double ? make(double{}) : make(float{});
}

}  // namespace rooflm::backends::cpu::reference
