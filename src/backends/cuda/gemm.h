// Matrix products through cuBLASLt, planned once per shape.
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

/// What happens to a sum in fp32 before it is rounded and stored as c; GELU is the tanh form.
enum class GemmEpilogue : std::uint8_t {
  none,
  gelu,           ///< aux = sum (+ bias), c = gelu(sum (+ bias))
  gelu_gradient,  ///< c = sum * gelu'(aux)
};

/// c[i] (+)= op(a[i]) op(b[i]) (+ bias) for i < batch, row-major and dense: a is [m, k], stored [k, m] when
/// trans_a; b is [k, n], stored [n, k] when trans_b; c is [m, n]; bias [n] is added to every row. With an
/// epilogue batch is 1, and aux is as c. Rows of a as it is stored, and of c, may be padded in single
/// products. Scaled products have fp8 factors, both along k (trans_b alone), and their sums are multiplied by
/// the inverses of the factors' scales first.
struct GemmProblem {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  std::int64_t a_stride = 0, c_stride = 0;  ///< elements from one row to the next; 0: rows are not padded
  core::DType factors = core::DType::f32;   ///< of a and b: f32, bf16, f16 or f8 (e4m3)
  core::DType result = core::DType::f32;    ///< of c: f32, or that of the factors; of scaled ones any but f8
  bool e5m2_a = false, e5m2_b = false;      ///< of scaled products: that factor is e5m2, at most one of them
  bool fast_sums = false;                   ///< of scaled products: sums may have fewer bits than fp32
  bool tf32 = false;                        ///< f32 factors may be rounded to 10 bits of mantissa
  bool accumulate = false;
  bool bias = false;  ///< in the dtype of c
  GemmEpilogue epilogue = GemmEpilogue::none;
  bool beside = false;  ///< runs beside other products (Context::fork), with a workspace of its own
  /// Powers of two that divide every address of a, b and c. That of aux is a multiple of 16.
  std::int64_t align_a = 1, align_b = 1, align_c = 1;
  // clang-tidy 14 takes the comparison with zero that a defaulted <=> makes for a pointer.
  auto operator<=>(const GemmProblem&) const = default;  // NOLINT(modernize-use-nullptr)
};

struct GemmOperands {
  const void *a = nullptr, *b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;
  void* aux = nullptr;
  const void *a_inverse = nullptr, *b_inverse = nullptr;  ///< of scaled products: fp32, 1 / scale
};

/// One product, ready to be submitted: sums in fp32, unless GemmProblem::fast_sums.
class Gemm {
 public:
  /// Asks cuBLASLt for algorithms and takes the one that CudaOptions::gemm_search says. Throws
  /// core::Unavailable when there is none.
  Gemm(const Context& context, const GemmProblem& problem);

  void submit(const GemmOperands& operands) const;
  /// The chosen algorithm: "cublasLt algo 66 tile 128x256 stages 4 split-k 1 epilogue BIAS".
  [[nodiscard]] backends::KernelInfo info() const;

 private:
  /// Where a product is submitted.
  struct Lane {
    cudaStream_t stream;
    void* workspace;
    std::size_t workspace_bytes;
  };
  void choose();
  [[nodiscard]] cublasLtMatmulAlgo_t choose_among(const LtProduct& product,
                                                  const std::vector<cublasLtMatmulAlgo_t>& proposals,
                                                  const std::string& key);
  [[nodiscard]] Lane lane() const;
  void set_scales(const void* a_inverse, const void* b_inverse) const;
  cublasStatus_t submit_to(const Lane& lane, const cublasLtMatmulAlgo_t& algorithm,
                           const GemmOperands& operands) const;

  GemmProblem problem_;
  const Context* context_;
  LtDesc desc_;
  LtLayout first_, second_, result_;  ///< column-major, as cuBLASLt wants them: b, a, c
  cublasLtMatmulAlgo_t algorithm_{};
  std::size_t workspace_bytes_ = 0;  ///< of the lane's, what the algorithm uses
  mutable int multiprocessors_ = 0;  ///< that desc_ says it is to take; 0: all
};

/// The cuBLASLt handle, its workspace and the plans of one context.
class GemmPlans {
 public:
  /// `context` must outlive this.
  explicit GemmPlans(Context& context);
  /// Made on first use.
  std::shared_ptr<const Gemm> find(const GemmProblem& problem);
  [[nodiscard]] cublasLtHandle_t handle() const { return handle_.get(); }
  [[nodiscard]] GemmCache& cache() { return cache_; }
  /// How algorithms were found so far; without their text.
  [[nodiscard]] GemmChoices& choices() { return choices_; }
  [[nodiscard]] const DeviceMemory& workspace() const { return workspace_; }
  /// Of products that run beside others; made on first use.
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
