// GEMMs through oneDNN's matmul primitive.
#include "backends/cpu/fast/gemm.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <concepts>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <vector>

#include "backends/cpu/fast/amx/gemm.h"
#include "backends/cpu/fast/converted_gemm.h"
#include "backends/cpu/fast/few_rows_gemm.h"
#include "backends/cpu/fast/maker.h"
#include "core/error.h"
#include "program/ops.h"

namespace rooflm::backends::cpu {
namespace {

using core::DType;
using Dim = dnnl::memory::dim;

dnnl::memory::data_type dnnl_type(DType type) {
  switch (type) {
    case DType::f32:
      return dnnl::memory::data_type::f32;
    case DType::bf16:
      return dnnl::memory::data_type::bf16;
    default:
      throw core::UsageError(fmt::format("GEMM of {}: only fp32 and bf16", name_of(type)));
  }
}

std::string describe(const GemmProblem& p) {
  return fmt::format("GEMM [{}x] {} x {} x {} of {} and {} to {}", p.batch, p.m, p.n, p.k, name_of(p.a_type),
                     name_of(p.b_type), name_of(p.c_type));
}

void check_problem(const GemmProblem& p) {
  const auto refuse = [&](const char* why) { throw core::UsageError(describe(p) + ": " + why); };
  if (p.batch < 1 || p.m < 1 || p.n < 1 || p.k < 1) refuse("every extent must be at least 1");
  if (p.a_type != p.b_type) refuse("both factors must have the same type");
  if (p.c_type != DType::f32 && p.c_type != p.a_type) refuse("the result must be fp32 or as the factors");
  if (p.accumulate && p.c_type != DType::f32) refuse("only an fp32 result can be accumulated into");
  if (p.bias && p.alpha != 1.0F) refuse("a bias cannot be combined with alpha");
  if (p.bias && p.accumulate) refuse("a bias cannot be combined with accumulation");
  if (p.bias && p.bias_type != DType::f32 && p.bias_type != p.a_type) {
    refuse("the bias must be fp32 or as the factors");
  }
  const auto short_row = [](Dim stride, Dim row) { return stride != 0 && stride < row; };
  if (short_row(p.lda, p.trans_a ? p.m : p.k) || short_row(p.ldb, p.trans_b ? p.k : p.n) ||
      short_row(p.ldc, p.n)) {
    refuse("a leading dimension is shorter than its row");
  }
}

// Fills in strides that are 0 (dense).
GemmProblem with_strides(GemmProblem p) {
  if (p.lda == 0) p.lda = p.trans_a ? p.m : p.k;
  if (p.ldb == 0) p.ldb = p.trans_b ? p.k : p.n;
  if (p.ldc == 0) p.ldc = p.n;
  if (p.batch_stride_a == 0) p.batch_stride_a = p.lda * (p.trans_a ? p.k : p.m);
  if (p.batch_stride_b == 0) p.batch_stride_b = p.ldb * (p.trans_b ? p.n : p.k);
  if (p.batch_stride_c == 0) p.batch_stride_c = p.ldc * p.m;
  return p;
}

dnnl::memory::desc matrix(DType type, Dim batch, Dim batch_stride, Dim rows, Dim cols, Dim row_stride,
                          Dim col_stride) {
  if (batch == 1) return {{rows, cols}, dnnl_type(type), {row_stride, col_stride}};
  return {{batch, rows, cols}, dnnl_type(type), {batch_stride, row_stride, col_stride}};
}

// Longest inner extent of one primitive. Beyond it, oneDNN 2.6 streams both operands of an fp32 GEMM past the
// caches (185 instead of 220 GFLOP/s at 256 x 768 x 50304 on two Zen 4 cores).
constexpr Dim kLongestInner = 4608;
// Most parts. Each is a primitive of its own, and an inner extent of billions must not become millions of
// them.
constexpr Dim kMostParts = 1024;

bool has_isa(dnnl::cpu_isa isa) {
  const auto wanted = static_cast<unsigned>(isa);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}

// Whether an fp32 right operand is packed into oneDNN's own layout first, which pays off if it has enough
// rows. oneDNN 2.6 reads an untransposed one in place, across pages (4096^3 on two Zen 5 cores: 391 instead
// of 443 GFLOP/s, packing included). With a transposed left operand more columns are needed. The rule is
// fixed, not measured, so results are reproducible bit for bit.
bool packs_right_factor(const GemmProblem& p, Dim k_size) {
  constexpr Dim kFewestRows = 1024;
  constexpr Dim kFewestTerms = 512;
  constexpr Dim kMostElements = Dim{1} << 24U;
  const bool pays = p.m >= kFewestRows && k_size >= kFewestTerms && (!p.trans_a || p.n >= kFewestRows);
  return pays && p.a_type == DType::f32 && p.batch == 1 && p.n * k_size <= kMostElements &&
         has_isa(dnnl::cpu_isa::avx512_core);
}

// Whether an untransposed fp32 right operand is copied to padded rows first. Without AVX-512, oneDNN 2.6
// reads it in place for few rows, and rows that are multiples of 2 KiB apart share few lines of the L1 cache
// (256 x 3072 x 768 on two Zen 3 cores: 80 instead of 154 GFLOP/s, the copy not included). A fixed rule, as
// above.
bool pads_right_factor(const GemmProblem& p, Dim k_size) {
  constexpr Dim kMostRows = 512;
  constexpr Dim kFewestRows = 32;
  constexpr Dim kMostElements = Dim{1} << 24U;
  return p.a_type == DType::f32 && p.batch == 1 && !p.trans_b && p.ldb % kPaddedEvery == 0 &&
         p.m >= kFewestRows && p.m <= kMostRows && p.n * k_size <= kMostElements &&
         !has_isa(dnnl::cpu_isa::avx512_core);
}

// An operand in the layout that a primitive prefers, packed at every call.
class Packing {
 public:
  Packing(const dnnl::engine& engine, const dnnl::memory::desc& from, const dnnl::memory::desc& to)
      : from_(from, engine, nullptr), to_(to, engine, nullptr), reorder_(from_, to_) {}
  [[nodiscard]] std::size_t bytes() const { return to_.get_desc().get_size(); }
  void run(const dnnl::stream& stream, void* from, void* to) {
    from_.set_data_handle(from);
    to_.set_data_handle(to);
    const std::array<dnnl_exec_arg_t, 2> arguments = {
        {{DNNL_ARG_FROM, from_.get()}, {DNNL_ARG_TO, to_.get()}}};
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(reorder_.get(), stream.get(), arguments.size(), arguments.data()),
        "could not pack an operand of a GEMM");
  }

 private:
  dnnl::memory from_, to_;
  dnnl::reorder reorder_;
};

constexpr std::size_t kCodeBytes = std::size_t{4} << 20U;
/// Of all GEMMs, which oneDNN makes when the first of them runs, without AVX-512.
constexpr std::size_t kAllCodeBytes = std::size_t{32} << 20U;

/// oneDNN crashes if it gets no memory for its JIT code. Allocates more than that needs, and frees it.
void require_room(const GemmProblem& p, std::size_t bytes) {
  void* room = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED)
    throw core::OutOfMemory(describe(p) + ": out of memory for its code", static_cast<double>(bytes));
  ::munmap(room, bytes);
}

// One primitive over a part of the inner extent, with memory objects whose pointers are set at every call.
class Step {
 public:
  Step(const dnnl::engine& engine, const GemmProblem& p, Dim k_begin, Dim k_size) {
    using dnnl::memory;
    const bool first = k_begin == 0;
    const auto a = matrix(p.a_type, p.batch, p.batch_stride_a, p.m, k_size, p.trans_a ? 1 : p.lda,
                          p.trans_a ? p.lda : 1);
    const auto b = matrix(p.b_type, p.batch, p.batch_stride_b, k_size, p.n, p.trans_b ? 1 : p.ldb,
                          p.trans_b ? p.ldb : 1);
    const auto c = matrix(p.c_type, p.batch, p.batch_stride_c, p.m, p.n, p.ldc, 1);
    has_bias_ = p.bias && first;
    const memory::dims bias_dims = p.batch == 1 ? memory::dims{1, p.n} : memory::dims{1, 1, p.n};
    const memory::dims bias_strides = p.batch == 1 ? memory::dims{p.n, 1} : memory::dims{p.n, p.n, 1};
    const memory::desc bias(bias_dims, dnnl_type(p.bias_type), bias_strides);
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (p.alpha != 1.0F) attr.set_output_scales(0, {p.alpha});
    if (p.accumulate || !first) {
      dnnl::post_ops sum;
      sum.append_sum(1.0F);
      attr.set_post_ops(sum);
    }
    const auto right = packs_right_factor(p, k_size)
                           ? memory::desc({k_size, p.n}, dnnl_type(p.b_type), memory::format_tag::any)
                       : pads_right_factor(p, k_size)
                           ? matrix(p.b_type, 1, 0, k_size, p.n, p.n + kRowPadding, 1)
                           : b;
    const dnnl::matmul::desc desc =
        has_bias_ ? dnnl::matmul::desc(a, right, bias, c) : dnnl::matmul::desc(a, right, c);
    const dnnl::matmul::primitive_desc plan(desc, attr, engine);
    primitive_ = dnnl::matmul(plan);
    const std::size_t own_bytes = plan.scratchpad_desc().get_size();
    packed_at_ = (own_bytes + 63) / 64 * 64;
    scratch_bytes_ = own_bytes;
    if (plan.weights_desc() != b) {
      packing_.emplace(engine, b, plan.weights_desc());
      scratch_bytes_ = packed_at_ + packing_->bytes();
    }
    implementation_ = plan.impl_info_str();
    a_offset_bytes_ = k_begin * (p.trans_a ? p.lda : 1) * static_cast<Dim>(size_of(p.a_type));
    b_offset_bytes_ = k_begin * (p.trans_b ? 1 : p.ldb) * static_cast<Dim>(size_of(p.b_type));
    memories_ = {memory(a, engine, nullptr), memory(plan.weights_desc(), engine, nullptr),
                 memory(c, engine, nullptr), memory(plan.scratchpad_desc(), engine, nullptr),
                 memory(bias, engine, nullptr)};
    constexpr std::array<int, kArguments> kNames = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                                    DNNL_ARG_SCRATCHPAD, DNNL_ARG_BIAS};
    for (std::size_t i = 0; i < kArguments; ++i) arguments_.at(i) = {kNames.at(i), memories_.at(i).get()};
  }

  [[nodiscard]] std::size_t scratch_bytes() const { return scratch_bytes_; }
  [[nodiscard]] const std::string& implementation() const { return implementation_; }

  void run(const dnnl::stream& stream, const void* a, const void* b, void* c, const void* bias,
           void* scratch) {
    // oneDNN's pointers are all mutable; it writes only the destination and the scratchpad.
    memories_[0].set_data_handle(static_cast<char*>(const_cast<void*>(a)) + a_offset_bytes_);
    void* right = static_cast<char*>(const_cast<void*>(b)) + b_offset_bytes_;
    if (packing_) {
      void* packed = static_cast<char*>(scratch) + packed_at_;
      packing_->run(stream, right, packed);
      right = packed;
    }
    memories_[1].set_data_handle(right);
    memories_[2].set_data_handle(c);
    memories_[3].set_data_handle(scratch);
    if (has_bias_) memories_[4].set_data_handle(const_cast<void*>(bias));
    const int count = static_cast<int>(kArguments) - (has_bias_ ? 0 : 1);
    dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), stream.get(), count, arguments_.data()),
                            "could not run a GEMM");
  }

 private:
  static constexpr std::size_t kArguments = 5;  // the bias is last and omitted if there is none
  dnnl::primitive primitive_;
  std::size_t scratch_bytes_ = 0;
  std::optional<Packing> packing_;
  std::size_t packed_at_ = 0;  // offset in the scratch memory
  std::string implementation_;
  Dim a_offset_bytes_ = 0;
  Dim b_offset_bytes_ = 0;
  bool has_bias_ = false;
  std::array<dnnl::memory, kArguments> memories_;
  std::array<dnnl_exec_arg_t, kArguments> arguments_{};
};

}  // namespace

bool has_bf16_gemms() { return has_isa(dnnl::cpu_isa::avx512_core_bf16); }

struct Gemm::Plan {
  GemmProblem problem;
  dnnl::engine engine;
  dnnl::stream stream;
  std::vector<Step> steps;
  std::size_t scratch_bytes = 0;
  std::atomic<bool> has_run = false;

  explicit Plan(const GemmProblem& given)
      : problem(with_strides(given)), engine(dnnl::engine::kind::cpu, 0), stream(engine) {
    // The result accumulates the parts, without rounding in between only if it is fp32.
    const bool split = problem.c_type == DType::f32 && problem.k > kLongestInner;
    const Dim parts = split ? std::min((problem.k + kLongestInner - 1) / kLongestInner, kMostParts) : 1;
    const Dim part = ((problem.k + parts - 1) / parts + 31) / 32 * 32;
    for (Dim begin = 0; begin < problem.k; begin += part) {
      steps.emplace_back(engine, problem, begin, std::min(part, problem.k - begin));
      scratch_bytes = std::max(scratch_bytes, steps.back().scratch_bytes());
    }
  }
};

Gemm::Gemm(const GemmProblem& problem) {
  check_problem(problem);
  require_room(problem, kCodeBytes);
  try {
    plan_ = std::make_unique<Plan>(problem);
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory) throw core::OutOfMemory(describe(problem) + ": out of memory", 0);
    throw core::Unavailable(describe(problem) + ": oneDNN has no kernel here (" + error.what() + ")");
  }
}
Gemm::Gemm(Gemm&&) noexcept = default;
Gemm& Gemm::operator=(Gemm&&) noexcept = default;
Gemm::~Gemm() = default;

const GemmProblem& Gemm::problem() const { return plan_->problem; }
std::size_t Gemm::scratch_bytes() const { return plan_->scratch_bytes; }
const std::string& Gemm::implementation() const { return plan_->steps.front().implementation(); }
std::size_t Gemm::primitives() const { return plan_->steps.size(); }

void Gemm::operator()(const void* a, const void* b, void* c, const void* bias, void* scratch) const {
  if (!plan_->has_run.exchange(true, std::memory_order_relaxed)) require_room(plan_->problem, kAllCodeBytes);
  try {
    for (Step& step : plan_->steps) step.run(plan_->stream, a, b, c, bias, scratch);
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory)
      throw core::OutOfMemory(describe(plan_->problem) + ": out of memory", 0);
    throw core::Unavailable(describe(plan_->problem) + ": oneDNN cannot run it (" + error.what() + ")");
  }
}

}  // namespace rooflm::backends::cpu

namespace rooflm::backends::cpu::fast {
namespace {

/// Dtype combinations that Gemm supports, and ConvertedGemm, whose operands are fp16 or bf16.
bool is_supported(const OpView& v, const GemmProblem& p) {
  const bool result = p.c_type == DType::f32 || p.c_type == p.a_type;
  const bool sum = !p.accumulate || (p.c_type == DType::f32 && !p.bias);
  const bool bias = !p.bias || p.bias_type == DType::f32 || p.bias_type == p.a_type;
  // Padded rows are a rewrite for GPUs.
  const bool dense = !v.op.attrs.has("a_stride") && !v.op.attrs.has("c_stride");
  return dense && p.a_type == p.b_type && result && sum && bias;
}

GemmProblem problem_of(const OpView& v) {
  return {.batch = v.op.attrs.flag("looped") ? 1 : v.integer("batch"),
          .m = v.integer("m"),
          .n = v.integer("n"),
          .k = v.integer("k"),
          .trans_a = v.op.attrs.flag("trans_a"),
          .trans_b = v.op.attrs.flag("trans_b"),
          .a_type = v.in(0).dtype,
          .b_type = v.in(1).dtype,
          .c_type = v.out(0).dtype,
          .bias = v.has_in(2),
          .bias_type = v.has_in(2) ? v.in(2).dtype : DType::f32,
          .accumulate = v.accumulates()};
}

template <class AnyGemm>
concept IsOurs = std::same_as<AnyGemm, AmxGemm> || std::same_as<AnyGemm, FewRowsGemm<float>> ||
    std::same_as<AnyGemm, FewRowsGemm<core::Bf16>> || std::same_as<AnyGemm, FewRowsGemm<core::F16>>;

template <class AnyGemm>
KernelInfo info_of(const AnyGemm& gemm, std::int64_t count) {
  const dnnl_version_t& version = *dnnl_version();
  const GemmProblem& p = gemm.problem();
  return {.name = gemm.implementation(),
          .library = IsOurs<AnyGemm>
                         ? std::string("rooflm")
                         : fmt::format("oneDNN {}.{}.{}", version.major, version.minor, version.patch),
          .variant = matmul_variant(p.batch, p.m, p.n, p.k, p.a_type, p.c_type),
          .workspace_bytes = static_cast<std::int64_t>(gemm.scratch_bytes()),
          .launches = count * static_cast<std::int64_t>(gemm.primitives())};
}

/// Looped: one GEMM after the other, each on all threads. Empty if AnyGemm (AmxGemm, FewRowsGemm, Gemm,
/// ConvertedGemm) has no kernel for the dtypes on this CPU.
template <class AnyGemm>
Kernel make_kernel(const OpView& v, const GemmProblem& p) {
  std::shared_ptr<const AnyGemm> gemm;
  try {
    gemm = std::make_shared<const AnyGemm>(p);
  } catch (const core::Unavailable&) {
    return {};
  }
  v.context->scratch().reserve(gemm->scratch_bytes());
  const std::int64_t count = v.integer("batch") / p.batch;
  const auto stride = [&](std::int64_t elements, DType dtype) {
    return elements * static_cast<std::int64_t>(core::size_of(dtype));
  };
  const std::int64_t a_bytes = stride(p.m * p.k, p.a_type);
  const std::int64_t b_bytes = stride(p.k * p.n, p.b_type);
  const std::int64_t c_bytes = stride(p.m * p.n, p.c_type);
  const bool has_bias = p.bias;
  const auto run = [=, resources = v.context](const KernelArgs& args) {
    const auto* a = static_cast<const std::byte*>(args.in[0]);
    const auto* b = static_cast<const std::byte*>(args.in[1]);
    auto* c = static_cast<std::byte*>(args.out[0]);
    const void* bias = has_bias ? args.in[2] : nullptr;
    void* scratch = resources->scratch().data();
    for (std::int64_t i = 0; i < count; ++i) {
      (*gemm)(a + i * a_bytes, b + i * b_bytes, c + i * c_bytes, bias, scratch);
    }
  };
  return {run, info_of(*gemm, count)};
}

}  // namespace

/// Decoding a few texts. The rule is fixed, as that below.
template <class S>
Kernel make_few_rows(const OpView& v, const GemmProblem& p) {
  return FewRowsGemm<S>::takes(p) && is_supported(v, p) ? make_kernel<FewRowsGemm<S>>(v, p) : Kernel{};
}
Kernel make_few_rows_matmul(const OpView& v) {
  const GemmProblem p = problem_of(v);
  if (p.a_type == DType::f32) return make_few_rows<float>(v, p);
  if (p.a_type == DType::bf16) return make_few_rows<core::Bf16>(v, p);
  if (p.a_type == DType::f16) return make_few_rows<core::F16>(v, p);
  return {};
}

/// bf16 on a processor with AMX, from some size on. The rule is fixed, so results are reproducible bit for
/// bit.
Kernel make_amx_matmul(const OpView& v) {
  const GemmProblem p = problem_of(v);
  return AmxGemm::takes(p) && is_supported(v, p) && has_amx() ? make_kernel<AmxGemm>(v, p) : Kernel{};
}

/// oneDNN also has bf16 GEMMs for AVX-512 without bf16 instructions, which emulate them: tiny at T=1024 takes
/// 2.4 times as long with them as with converted panels.
Kernel make_matmul(const OpView& v) {
  const GemmProblem p = problem_of(v);
  const bool is_multiplied = p.a_type == DType::f32 || (p.a_type == DType::bf16 && has_bf16_gemms());
  return is_multiplied && is_supported(v, p) ? make_kernel<Gemm>(v, p) : Kernel{};
}

/// Tried after make_matmul: oneDNN has no fp16 GEMMs on any CPU, and native bf16 GEMMs only with AVX512-BF16.
Kernel make_converted_matmul(const OpView& v) {
  const GemmProblem p = problem_of(v);
  if (!is_supported(v, p)) return {};
  if (p.a_type == DType::bf16) return make_kernel<ConvertedGemm<core::Bf16>>(v, p);
  if (p.a_type == DType::f16) return make_kernel<ConvertedGemm<core::F16>>(v, p);
  return {};
}

MakerRows gemm_rows() {
  namespace ops = program::ops;
  return {{&ops::kMatmul, make_few_rows_matmul, "matmul of few rows"},
          {&ops::kMatmul, make_amx_matmul, "matmul by tiles"},
          {&ops::kMatmul, make_matmul, "matmul"},
          {&ops::kMatmul, make_converted_matmul, "matmul converted"}};
}

}  // namespace rooflm::backends::cpu::fast
