// GEMMs through cuBLASLt, planned once per shape.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/cuda/context.h"
#include "backends/cuda/gemm_cache.h"
#include "backends/cuda/gemm_search.h"
#include "core/dtype.h"

namespace rooflm::backends::cuda {

/// What is applied to the fp32 sum before it is rounded and stored as c; GELU is the tanh form.
enum class GemmEpilogue : std::uint8_t {
  none,
  gelu,           ///< aux = sum (+ bias), c = gelu(sum (+ bias))
  gelu_gradient,  ///< c = sum * gelu'(aux)
};

///   c[i] (+)= op(a[i]) op(b[i]) (+ bias)   for i < batch
/// Row-major and dense: a is [m, k], stored [k, m] with trans_a; b is [k, n], stored [n, k] with trans_b; c
/// is [m, n]; bias [n] is added to every row. With an epilogue batch is 1, and aux has the shape and dtype of
/// c. With batch 1, rows of a (as stored) and of c may be padded.
///
/// fp8: both operands are contiguous along k (trans_b only), and the sums are multiplied by the inverse
/// scales of both before anything else.
struct GemmProblem {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  std::int64_t a_stride = 0, c_stride = 0;  ///< row strides in elements; 0: dense
  core::DType factors = core::DType::f32;   ///< dtype of a and b: f32, bf16, f16 or f8 (e4m3)
  core::DType result = core::DType::f32;    ///< dtype of c: f32 or that of a and b; for fp8 any but f8
  bool e5m2_a = false, e5m2_b = false;      ///< fp8: that operand is e5m2; at most one of them
  /// fp8: may accumulate in fewer bits than fp32 (fast accumulation).
  bool fast_sums = false;
  bool tf32 = false;  ///< f32 operands may be rounded to 10 bits of mantissa
  bool accumulate = false;
  bool bias = false;  ///< in the dtype of c
  GemmEpilogue epilogue = GemmEpilogue::none;
  bool beside = false;  ///< may overlap other GEMMs (Context::stream_of), so it needs its own workspace
  /// Alignment of a, b and c in bytes: powers of two that divide every address. aux is 16-byte aligned.
  std::int64_t align_a = 1, align_b = 1, align_c = 1;
  // clang-tidy 14 takes the comparison with zero that a defaulted <=> makes for a pointer.
  auto operator<=>(const GemmProblem&) const = default;  // NOLINT(modernize-use-nullptr)
};

struct GemmOperands {
  const void *a = nullptr, *b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;
  void* aux = nullptr;
  const void *a_inverse = nullptr, *b_inverse = nullptr;  ///< fp8: address of fp32 1 / scale
};

/// One GEMM, ready to be submitted. Accumulates in fp32, unless GemmProblem::fast_sums.
class Gemm {
 public:
  /// Queries cuBLASLt for algorithms and chooses one by CudaOptions::gemm_search. Throws core::Unavailable if
  /// there is none.
  Gemm(const Context& context, const GemmProblem& problem);

  void submit(const GemmOperands& operands) const;
  /// The chosen algorithm: "cublasLt algo 66 tile 128x256 stages 4 split-k 1 epilogue BIAS".
  [[nodiscard]] backends::KernelInfo info() const;

 private:
  /// Stream and workspace of a submission.
  struct Lane {
    cudaStream_t stream;
    void* workspace;
    std::size_t workspace_bytes;
  };
  void choose();
  [[nodiscard]] cublasLtMatmulAlgo_t choose_among(const LtMatmul& matmul,
                                                  const std::vector<cublasLtMatmulAlgo_t>& proposals,
                                                  const std::string& key);
  [[nodiscard]] Lane lane() const;
  void set_scales(const void* a_inverse, const void* b_inverse) const;
  cublasStatus_t submit_to(const Lane& lane, const cublasLtMatmulAlgo_t& algorithm,
                           const GemmOperands& operands) const;

  GemmProblem problem_;
  const Context* context_;
  LtDesc desc_;
  LtLayout first_, second_, result_;  ///< column-major, as cuBLASLt needs them: b, a, c
  cublasLtMatmulAlgo_t algorithm_{};
  std::size_t workspace_bytes_ = 0;  ///< bytes of the workspace that the algorithm uses
  mutable int multiprocessors_ = 0;  ///< the limit set in desc_; 0: all
};

/// The cuBLASLt handle, its workspace and the GEMM plans of one context.
class GemmPlans {
 public:
  /// `context` must outlive this.
  explicit GemmPlans(Context& context);
  /// Made on first use.
  std::shared_ptr<const Gemm> find(const GemmProblem& problem);
  [[nodiscard]] cublasLtHandle_t handle() const { return handle_.get(); }
  [[nodiscard]] GemmCache& cache() { return cache_; }
  /// Where the algorithms came from so far; without their text.
  [[nodiscard]] GemmChoices& choices() { return choices_; }
  [[nodiscard]] const DeviceMemory& workspace() const { return workspace_; }
  /// Workspace of GEMMs that overlap others; allocated on first use.
  [[nodiscard]] const DeviceMemory& side_workspace();

 private:
  Context* context_;
  LtHandle handle_;
  GemmCache cache_;
  GemmChoices choices_;
  DeviceMemory workspace_, side_workspace_;
  std::map<GemmProblem, std::shared_ptr<const Gemm>> plans_;
};

}  // namespace rooflm::backends::cuda
