// GEMMs of fixed shape through oneDNN, prepared once and run many times without allocating.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/dtype.h"

namespace rooflm::backends::cpu {

/// c[i] (+)= op(a[i]) · op(b[i]) (+ bias) for i < batch; all matrices row-major.
/// op(a) is m x k and stored as [m, k], or as [k, m] with trans_a; op(b) is k x n and stored as [k, n], or as
/// [n, k] with trans_b; c is [m, n]; bias is [n] and is added to every row.
/// A linear layer: y = x·Wᵀ is {m tokens, n out, k in, trans_b}; dx = dy·W is {m tokens, n in, k out};
/// dW = dyᵀ·x is {m out, n in, k tokens, trans_a}.
struct GemmProblem {
  std::int64_t batch = 1;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool trans_a = false;
  bool trans_b = false;
  core::DType a_type = core::DType::f32;  ///< f32 or bf16
  core::DType b_type = core::DType::f32;  ///< equal to a_type
  core::DType c_type = core::DType::f32;  ///< f32, or bf16 if a and b are
  bool bias = false;
  core::DType bias_type = core::DType::f32;  ///< f32 or a_type
  bool accumulate = false;                   ///< c += instead of c =; needs an f32 c
  /// Elements from one stored row to the next; 0: dense.
  std::int64_t lda = 0;
  std::int64_t ldb = 0;
  std::int64_t ldc = 0;
  /// Elements from one matrix of the batch to the next; 0: dense.
  std::int64_t batch_stride_a = 0;
  std::int64_t batch_stride_b = 0;
  std::int64_t batch_stride_c = 0;
  /// Multiplies op(a) · op(b), before the bias and the old c are added.
  float alpha = 1.0F;
};

/// Rows of fp32 operands that a multiple of so many elements apart share few lines of an L1 cache; with so
/// much padding they do not.
constexpr std::int64_t kPaddedEvery = 512;
constexpr std::int64_t kRowPadding = 16;

/// Whether oneDNN multiplies bf16 here with instructions of its own.
bool has_bf16_gemms();

/// A prepared GEMM. Calls of one object may overlap if their scratch differs. Uses all OpenMP threads and
/// returns when c is written. The result does not depend on earlier calls. bf16 operands accumulate in fp32.
class Gemm {
 public:
  /// Throws core::UsageError for an invalid problem (extents < 1, mixed dtypes) and core::Unavailable if this
  /// machine has no kernel for the dtypes.
  explicit Gemm(const GemmProblem& problem);
  Gemm(Gemm&&) noexcept;
  Gemm& operator=(Gemm&&) noexcept;
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;
  ~Gemm();

  [[nodiscard]] const GemmProblem& problem() const;
  /// Bytes of scratch memory per call (64-byte aligned); may be 0.
  [[nodiscard]] std::size_t scratch_bytes() const;
  /// oneDNN's name of the chosen implementation: "brg:avx512_core_bf16".
  [[nodiscard]] const std::string& implementation() const;
  /// oneDNN primitives per call: long inner extents are split.
  [[nodiscard]] std::size_t primitives() const;
  /// Runs the GEMM. c must not alias anything. bias is ignored (may be null) unless the problem has one.
  /// scratch has scratch_bytes() bytes and is free for other use after the call. Allocates nothing.
  void operator()(const void* a, const void* b, void* c, const void* bias, void* scratch) const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace rooflm::backends::cpu
