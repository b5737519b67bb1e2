// GEMMs through cuBLASLt, planned once per shape.
#include "backends/cuda/gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/cuda/check.h"
#include "backends/cuda/gemm_algorithm.h"
#include "backends/op_view.h"
#include "core/elements.h"
#include "core/error.h"
#include "core/rng.h"
#include "devices/cuda_workspaces.h"

namespace rooflm::backends::cuda {
namespace {

using core::DType;

/// Operands with this alignment in bytes can be read by any algorithm.
constexpr std::int64_t kAnyTile = 16;

cudaDataType_t type_of(DType dtype) {
  if (dtype == DType::f32) return CUDA_R_32F;
  if (dtype == DType::f8) return CUDA_R_8F_E4M3;
  if (dtype == DType::f8_e5m2) return CUDA_R_8F_E5M2;
  return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_16F;
}

bool is_scaled(const GemmProblem& p) { return core::is_fp8(p.factors); }
DType a_type(const GemmProblem& p) { return p.e5m2_a ? DType::f8_e5m2 : p.factors; }
DType b_type(const GemmProblem& p) { return p.e5m2_b ? DType::f8_e5m2 : p.factors; }

cublasComputeType_t compute_type(const GemmProblem& p) {
  return p.factors == DType::f32 && p.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

cublasLtEpilogue_t epilogue_of(const GemmProblem& p) {
  if (p.epilogue == GemmEpilogue::gelu_gradient) return CUBLASLT_EPILOGUE_DGELU;
  if (p.epilogue == GemmEpilogue::gelu) {
    return p.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  }
  return p.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/// cuBLASLt's name of the epilogue, without the prefix.
std::string_view name_of(cublasLtEpilogue_t epilogue) {
  switch (epilogue) {
    case CUBLASLT_EPILOGUE_BIAS:
      return "BIAS";
    case CUBLASLT_EPILOGUE_GELU_AUX:
      return "GELU_AUX";
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
      return "GELU_AUX_BIAS";
    case CUBLASLT_EPILOGUE_DGELU:
      return "DGELU";
    default:
      return "DEFAULT";
  }
}

std::string describe(const GemmProblem& p) {
  return fmt::format("matmul of {} x [{}, {}] by [{}, {}] in {}{}", p.batch, p.m, p.k, p.k, p.n,
                     core::name_of(p.factors), p.epilogue == GemmEpilogue::none ? "" : " with GELU");
}

/// A key with everything that the choice of an algorithm depends on.
std::string key_of(const GemmProblem& p, std::size_t workspace_bytes) {
  return fmt::format("{}x {}x{}x{} {}{} {}->{}{}{}{} epilogue {} {} align {},{},{} workspace {}", p.batch,
                     p.m, p.n, p.k, p.trans_a ? "T" : "N", p.trans_b ? "T" : "N", core::name_of(p.factors),
                     core::name_of(p.result), p.tf32 ? " tf32" : "", p.accumulate ? " adds" : "",
                     p.bias ? " bias" : "", static_cast<int>(p.epilogue), p.beside ? "beside" : "alone",
                     p.align_a, p.align_b, p.align_c, workspace_bytes) +
         (is_scaled(p) ? fmt::format(" {}x{}{}", core::name_of(a_type(p)), core::name_of(b_type(p)),
                                     p.fast_sums ? " fast" : "")
                       : "") +
         (p.a_stride > 0 || p.c_stride > 0 ? fmt::format(" strides {},{}", p.a_stride, p.c_stride) : "");
}

template <class T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, T value) {
  check(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value), "describing a matmul");
}

LtDesc make_desc(const GemmProblem& p) {
  cublasLtMatmulDesc_t desc = nullptr;
  check(cublasLtMatmulDescCreate(&desc, compute_type(p), CUDA_R_32F), "describing a matmul");
  LtDesc handle(desc);
  // Row-major [n, k] is column-major [k, n]: the operands are swapped, and the result needs no transpose.
  set(desc, CUBLASLT_MATMUL_DESC_TRANSA, p.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(desc, CUBLASLT_MATMUL_DESC_TRANSB, p.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p));
  if (p.bias) set(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.result));
  if (is_scaled(p)) set(desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(p.fast_sums));
  if (p.epilogue != GemmEpilogue::none) {
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.n);
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, type_of(p.result));
  }
  return handle;
}

/// The layout of a row-major [rows, cols], which is column-major [cols, rows]; dense, or with row stride
/// `padded`.
LtLayout make_layout(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t batch,
                     std::int64_t padded = 0) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, type_of(dtype), static_cast<std::uint64_t>(cols),
                                   static_cast<std::uint64_t>(rows), padded > 0 ? padded : cols),
        "describing a matrix");
  LtLayout handle(layout);
  const auto count = static_cast<std::int32_t>(batch);
  const std::int64_t stride = rows * cols;
  check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
        "describing a batch of matrices");
  check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                         sizeof stride),
        "describing a batch of matrices");
  return handle;
}

LtPreference make_preference(const GemmProblem& p, std::size_t workspace_bytes) {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "looking for algorithms");
  LtPreference handle(preference);
  const auto put = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
          "looking for algorithms");
  };
  put(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace_bytes));
  put(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<std::uint32_t>(p.align_b));
  put(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<std::uint32_t>(p.align_a));
  put(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<std::uint32_t>(p.align_c));
  put(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<std::uint32_t>(p.align_c));
  return handle;
}

/// Random numbers in [-0.5, 0.5). Constant operands draw less power, which makes other algorithms look fast.
template <class T>
void draw(std::vector<std::byte>& bytes) {
  auto* values = reinterpret_cast<T*>(bytes.data());
  for (std::size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
    values[i] = T(core::uniform(core::philox(0, 0, i)[0]) - 0.5F);
  }
}

/// Fills the memory with repetitions of a random tile.
void fill(const Context& context, const DeviceMemory& memory, DType dtype) {
  constexpr std::size_t kTileBytes = std::size_t{1} << 20U;
  std::vector<std::byte> tile(std::min(kTileBytes, memory.bytes()));
  core::with_float_type(dtype, [&]<class T>(T) { draw<T>(tile); });
  auto* data = static_cast<std::byte*>(memory.data());
  context.copy_in(data, tile.data(), tile.size());
  for (std::size_t filled = tile.size(); filled < memory.bytes();) {
    const std::size_t more = std::min(filled, memory.bytes() - filled);
    check(cudaMemcpyAsync(data + filled, data, more, cudaMemcpyDeviceToDevice, context.stream()),
          "filling operands");
    filled += more;
  }
}

/// Random operands for autotuning.
class RandomOperands {
 public:
  RandomOperands(const Context& context, const GemmProblem& p) {
    const auto make = [&](std::int64_t count, DType dtype) {
      DeviceMemory memory = context.allocate(static_cast<std::size_t>(count) * core::size_of(dtype));
      fill(context, memory, dtype);
      return memory;
    };
    a_ = make(p.a_stride > 0 ? (p.trans_a ? p.k : p.m) * p.a_stride : p.batch * p.m * p.k, a_type(p));
    b_ = make(p.batch * p.k * p.n, b_type(p));
    c_ = make(p.c_stride > 0 ? p.m * p.c_stride : p.batch * p.m * p.n, p.result);
    if (p.bias) bias_ = make(p.n, p.result);
    if (p.epilogue != GemmEpilogue::none) aux_ = make(p.m * p.n, p.result);
    if (is_scaled(p)) inverse_ = make(1, DType::f32);
  }
  [[nodiscard]] GemmOperands get() const {
    return {.a = a_.data(),
            .b = b_.data(),
            .c = c_.data(),
            .bias = bias_.data(),
            .aux = aux_.data(),
            .a_inverse = inverse_.data(),
            .b_inverse = inverse_.data()};
  }

 private:
  DeviceMemory a_, b_, c_, bias_, aux_, inverse_;
};

/// nullopt if the device has no room for them.
std::optional<RandomOperands> make_operands(const Context& context, const GemmProblem& problem) {
  try {
    return RandomOperands(context, problem);
  } catch (const core::OutOfMemory&) {
    return std::nullopt;
  }
}

/// Seconds per submission over `runs` submissions; infinity if the first one, which also loads the kernel,
/// fails.
template <class Submit>
double time_s(cudaStream_t stream, int runs, const Submit& submit) {
  constexpr double kMs = 1e-3;
  if (!submit()) {
    static_cast<void>(cudaGetLastError());
    return std::numeric_limits<double>::infinity();
  }
  const EventHandle begin = make_event();
  const EventHandle end = make_event();
  check(cudaEventRecord(begin.get(), stream), "timing a matmul");
  for (int run = 0; run < runs; ++run) submit();
  check(cudaEventRecord(end.get(), stream), "timing a matmul");
  check(cudaEventSynchronize(end.get()), "timing a matmul");
  float ms = 0;
  check(cudaEventElapsedTime(&ms, begin.get(), end.get()), "timing a matmul");
  return kMs * static_cast<double>(ms) / runs;
}

}  // namespace

Gemm::Gemm(const Context& context, const GemmProblem& p)
    : problem_(p),
      context_(&context),
      desc_(make_desc(p)),
      first_(p.trans_b ? make_layout(b_type(p), p.n, p.k, p.batch)
                       : make_layout(b_type(p), p.k, p.n, p.batch)),
      second_(p.trans_a ? make_layout(a_type(p), p.k, p.m, p.batch, p.a_stride)
                        : make_layout(a_type(p), p.m, p.k, p.batch, p.a_stride)),
      result_(make_layout(p.result, p.m, p.n, p.batch, p.c_stride)) {
  choose();
  workspace_bytes_ = workspace_of({.handle = context.gemm_plans().handle(),
                                   .desc = desc_.get(),
                                   .a = first_.get(),
                                   .b = second_.get(),
                                   .c = result_.get()},
                                  algorithm_)
                         .value_or(lane().workspace_bytes);
}

backends::KernelInfo Gemm::info() const {
  const AlgorithmConfig config = config_of(algorithm_);
  const GemmProblem& p = problem_;
  const auto version = static_cast<int>(cublasLtGetVersion());
  constexpr int kMajorUnit = 10000;
  constexpr int kMinorUnit = 100;
  // cuBLASLt does not tell which further kernels an algorithm launches, such as the reduction of split-k.
  const auto launches = config.split_k <= 1 ? std::optional<std::int64_t>(1) : std::nullopt;
  return {.name = fmt::format("cublasLt algo {} tile {} stages {} split-k {} epilogue {}", config.id,
                              config.tile, config.stages, config.split_k, name_of(epilogue_of(p))),
          .library = fmt::format("cuBLASLt {}.{}.{}", version / kMajorUnit, version / kMinorUnit % kMinorUnit,
                                 version % kMinorUnit),
          .variant = matmul_variant(p.batch, p.m, p.n, p.k, p.factors, p.result) + (p.tf32 ? " tf32" : "") +
                     (p.fast_sums ? " fast sums" : ""),
          .workspace_bytes = static_cast<std::int64_t>(workspace_bytes_),
          .launches = launches};
}

void Gemm::choose() {
  const Context& context = *context_;
  const Lane own = lane();
  const LtPreference preference = make_preference(problem_, own.workspace_bytes);
  const LtMatmul matmul{.handle = context.gemm_plans().handle(),
                        .desc = desc_.get(),
                        .a = first_.get(),
                        .b = second_.get(),
                        .c = result_.get(),
                        .preference = preference.get(),
                        .workspace_bytes = own.workspace_bytes};
  if (problem_.epilogue != GemmEpilogue::none) {  // proposals depend on the epilogue's alignment
    set(desc_.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, own.workspace);
  }
  set_scales(own.workspace, own.workspace);
  const auto proposals = propose(matmul);
  if (proposals.empty()) {
    throw core::Unavailable(fmt::format("cuBLASLt has no algorithm for the {}", describe(problem_)));
  }
  const std::string key = key_of(problem_, own.workspace_bytes);
  GemmPlans& plans = context.gemm_plans();
  algorithm_ = choose_among(matmul, proposals, key);
  plans.cache().use(key, algorithm_);
}

cublasLtMatmulAlgo_t Gemm::choose_among(const LtMatmul& matmul,
                                        const std::vector<cublasLtMatmulAlgo_t>& proposals,
                                        const std::string& key) {
  const Context& context = *context_;
  GemmPlans& plans = context.gemm_plans();
  const GemmSearch search = context.options().gemm_search;
  if (const auto kept = plans.cache().find(key, search != GemmSearch::none);
      kept && is_possible(matmul, *kept)) {
    ++plans.choices().kept;
    return *kept;
  }
  const auto random =
      search == GemmSearch::full ? make_operands(context, problem_) : std::optional<RandomOperands>();
  if (!random) {
    ++plans.choices().first;
    return proposals.front();
  }
  const Lane own = this->lane();
  // Nothing else runs during autotuning.
  const Lane lane{context.stream(), own.workspace, own.workspace_bytes};
  const auto submit_with = [&, operands = random->get()](const cublasLtMatmulAlgo_t& algorithm) {
    return submit_to(lane, algorithm, operands) == CUBLAS_STATUS_SUCCESS;
  };
  const bool any_tile = std::min({problem_.align_a, problem_.align_b, problem_.align_c}) >= kAnyTile;
  const auto begin = std::chrono::steady_clock::now();
  const cublasLtMatmulAlgo_t fastest =
      find_fastest(matmul, proposals, any_tile, [&](const cublasLtMatmulAlgo_t& algorithm, int runs) {
        return time_s(lane.stream, runs, [&] { return submit_with(algorithm); });
      });
  ++plans.choices().searched;
  plans.choices().search_s += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const cublasLtMatmulAlgo_t kept = plans.cache().add(key, fastest);
  return is_possible(matmul, kept) ? kept : fastest;
}

Gemm::Lane Gemm::lane() const {
  GemmPlans& plans = context_->gemm_plans();
  const DeviceMemory& workspace = problem_.beside ? plans.side_workspace() : plans.workspace();
  return {context_->stream_of(problem_.beside ? program::Lane::background : program::Lane::compute),
          workspace.data(), workspace.bytes()};
}

/// cuBLASLt's A is b.
void Gemm::set_scales(const void* a_inverse, const void* b_inverse) const {
  if (!is_scaled(problem_)) return;
  set(desc_.get(), CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, b_inverse);
  set(desc_.get(), CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, a_inverse);
}

cublasStatus_t Gemm::submit_to(const Lane& lane, const cublasLtMatmulAlgo_t& algorithm,
                               const GemmOperands& o) const {
  const float alpha = 1;
  const float beta = problem_.accumulate ? 1.0F : 0.0F;
  if (problem_.bias) set(desc_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.bias);
  if (problem_.epilogue != GemmEpilogue::none) {
    set(desc_.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, o.aux);
  }
  set_scales(o.a_inverse, o.b_inverse);
  if (const int count = context_->matmul_multiprocessors(); count != multiprocessors_) {
    set(desc_.get(), CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, static_cast<std::int32_t>(count));
    multiprocessors_ = count;
  }
  return cublasLtMatmul(context_->gemm_plans().handle(), desc_.get(), &alpha, o.b, first_.get(), o.a,
                        second_.get(), &beta, o.c, result_.get(), o.c, result_.get(), &algorithm,
                        lane.workspace, lane.workspace_bytes, lane.stream);
}

void Gemm::submit(const GemmOperands& operands) const {
  const cublasStatus_t status = submit_to(lane(), algorithm_, operands);
  if (status != CUBLAS_STATUS_SUCCESS) check(status, describe(problem_));
}

GemmPlans::GemmPlans(Context& context)
    : context_(&context),
      cache_(context.options().gemm_cache, context.name(), context.options().gemm_choices),
      workspace_(context.allocate(devices::kGemmWorkspaceBytes)) {
  cublasLtHandle_t handle = nullptr;
  check(cublasLtCreate(&handle), "creating a handle");
  handle_ = LtHandle(handle);
}

const DeviceMemory& GemmPlans::side_workspace() {
  if (side_workspace_.bytes() == 0) side_workspace_ = context_->allocate(devices::kSideGemmWorkspaceBytes);
  return side_workspace_;
}

std::shared_ptr<const Gemm> GemmPlans::find(const GemmProblem& problem) {
  auto& plan = plans_[problem];
  if (plan == nullptr) plan = std::make_shared<const Gemm>(*context_, problem);
  return plan;
}

}  // namespace rooflm::backends::cuda
