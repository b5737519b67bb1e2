// Binds matmuls and biases to their ops.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "backends/cuda/gemm.h"
#include "backends/cuda/kernels/activate.h"
#include "backends/cuda/kernels/column_sums.h"
#include "backends/cuda/kernels/elementwise.h"
#include "backends/cuda/kernels/gemm_bf16x6.h"
#include "backends/cuda/rows/few_rows.h"
#include "backends/cuda/rows/rows.h"
#include "core/error.h"
#include "devices/cuda_workspaces.h"
#include "program/fp32_products.h"
#include "program/fp8.h"
#include "program/ops.h"

namespace rooflm::backends::cuda {
namespace {

using core::DType;

/// Alignment in bytes of tensors as placed by engines, hence of every address without an offset.
constexpr std::int64_t kPlacement = 64;
/// Row lengths and addresses that are multiples of this many bytes suit any algorithm.
constexpr std::int64_t kAnyTile = 16;

std::int64_t bytes_of(std::int64_t elements, DType dtype) {
  return elements * static_cast<std::int64_t>(core::size_of(dtype));
}

/// The power of two that divides the address of a placed tensor at this offset and at every multiple of
/// `stride` from it.
std::int64_t alignment(const std::vector<std::int64_t>& offsets, std::size_t operand, DType dtype,
                       std::int64_t stride) {
  const std::int64_t offset = operand < offsets.size() ? offsets[operand] : 0;
  return std::gcd(kPlacement, std::gcd(bytes_of(offset, dtype), bytes_of(stride, dtype)));
}

GemmProblem problem_of(const OpView& v) {
  GemmProblem p{.batch = v.integer("batch"),
                .m = v.integer("m"),
                .n = v.integer("n"),
                .k = v.integer("k"),
                .trans_a = v.op.attrs.flag("trans_a"),
                .trans_b = v.op.attrs.flag("trans_b"),
                .factors = core::is_fp8(v.in(0).dtype) ? DType::f8 : v.in(0).dtype,
                .result = v.out(0).dtype,
                .e5m2_a = v.in(0).dtype == DType::f8_e5m2,
                .e5m2_b = v.in(1).dtype == DType::f8_e5m2,
                .fast_sums = v.op.attrs.flag("fast_sums"),
                .tf32 = v.op.attrs.flag("tf32"),
                .accumulate = v.accumulates(),
                .bias = v.has_in(2),
                .beside = v.op.lane == program::Lane::background};
  if (v.op.attrs.has("a_stride")) p.a_stride = v.integer("a_stride");
  if (v.op.attrs.has("c_stride")) p.c_stride = v.integer("c_stride");
  const bool single = p.batch == 1;
  p.align_a = alignment(v.op.input_offset, 0, p.factors, single ? 0 : p.m * p.k);
  p.align_b = alignment(v.op.input_offset, 1, p.factors, single ? 0 : p.k * p.n);
  p.align_c = alignment(v.op.output_offset, 0, p.result, single ? 0 : p.m * p.n);
  if (v.op.attrs.flag("looped")) p.batch = 1;
  return p;
}

/// Index of the slots of a and b among the inputs of an fp8 matmul; a slot begins with the inverse scale.
constexpr std::size_t kSlots = 3;
static_assert(program::kFp8Inverse == 0);

bool is_supported_scaled(const OpView& v, const GemmProblem& p) {
  const bool factors = core::is_fp8(v.in(1).dtype) && !(p.e5m2_a && p.e5m2_b);
  const bool is_along_k = !p.trans_a && p.trans_b;
  const bool bias = !v.has_in(2) || (is_half(p.result) && is_storage(v.in(2).dtype));
  return factors && is_along_k && p.batch == 1 && is_storage(p.result) && bias && v.has_in(kSlots + 1);
}

bool is_supported(const OpView& v, const GemmProblem& p) {
  if (core::is_fp8(p.factors)) return is_supported_scaled(v, p);
  const bool factors = v.inputs_are({0, 1}, p.factors) && is_storage(p.factors);
  const bool result = p.result == DType::f32 || p.result == p.factors;
  return factors && result && (!v.has_in(2) || is_storage(v.in(2).dtype));
}

/// The bias of a matmul in the dtype of the result, which cuBLASLt requires; weights are fp32.
class Bias {
 public:
  Bias(const OpView& v, const GemmProblem& p)
      : context_(v.context), n_(p.n), from_(p.bias ? v.in(2).dtype : p.result), to_(p.result) {
    if (from_ != to_) rounded_ = context_->scratch(static_cast<std::size_t>(bytes_of(n_, to_)));
  }
  /// `bias` itself, or a rounded copy; submits the rounding.
  [[nodiscard]] const void* get(const void* bias) const {
    if (rounded_ == nullptr) return bias;
    launch_cast(context_->stream(), n_, from_, bias, to_, rounded_);
    return rounded_;
  }
  [[nodiscard]] bool is_rounded() const { return rounded_ != nullptr; }
  [[nodiscard]] std::int64_t workspace_bytes() const { return is_rounded() ? bytes_of(n_, to_) : 0; }

 private:
  std::shared_ptr<Context> context_;
  std::int64_t n_;
  DType from_, to_;
  void* rounded_ = nullptr;
};

/// Part of a matmul, and the offsets of its operands in elements.
struct Part {
  GemmProblem problem;
  std::int64_t a = 0, b = 0, c = 0;
};

/// Splits a matmul with padded rows so that row lengths of the larger part are multiples of 16 bytes: for
/// other lengths cuBLASLt is slow even if all rows are aligned (docs/performance.md). The other part has a
/// few rows or columns. If the inner extent is split, the small part comes first, so the total is rounded
/// once.
std::vector<Part> parts_of(const GemmProblem& p) {
  const std::int64_t unit = kAnyTile / static_cast<std::int64_t>(core::size_of(p.factors));
  const std::int64_t length = p.c_stride > 0 ? p.n : p.trans_a ? p.m : p.k;
  const std::int64_t cut = length / unit * unit;
  const bool is_padded = p.c_stride > 0 ? p.trans_b : p.a_stride > 0 && !p.trans_b;
  if (p.batch != 1 || p.bias || !is_padded || cut == length || cut == 0) return {{p}};
  Part whole{p};
  Part rest{p};
  if (p.c_stride > 0) {
    whole.problem.n = cut;
    rest.problem.n = length - cut;
    rest.b = cut * p.k;
    rest.c = cut;
  } else if (p.trans_a) {
    whole.problem.m = cut;
    rest.problem.m = length - cut;
    rest.a = cut;
    rest.c = cut * p.n;
  } else {
    whole.problem.k = cut;
    whole.problem.accumulate = true;
    rest.problem.k = length - cut;
    rest.a = cut;
    rest.b = cut * p.n;
  }
  rest.problem.align_a = std::gcd(p.align_a, bytes_of(rest.a, p.factors));
  rest.problem.align_b = std::gcd(p.align_b, bytes_of(rest.b, p.factors));
  rest.problem.align_c = std::gcd(p.align_c, bytes_of(rest.c, p.result));
  return {rest, whole};
}

/// Addresses of the inverse scales of both operands; null if they have none.
struct Inverses {
  const void *a = nullptr, *b = nullptr;
};
Inverses inverses_of(const KernelArgs& args) {
  if (args.in.size() <= kSlots) return {};
  return {args.in[kSlots], args.in[kSlots + 1]};
}

/// The planned parts of a matmul.
class CutGemm {
 public:
  CutGemm(const OpView& v, const GemmProblem& p)
      : factors_(p.factors), result_(p.result), parts_(parts_of(p)) {
    for (const Part& part : parts_) gemms_.push_back(v.context->gemm_plans().find(part.problem));
  }
  void submit(const std::byte* a, const std::byte* b, std::byte* c, const void* bias,
              Inverses inverses) const {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const Part& part = parts_[i];
      gemms_[i]->submit({.a = a + bytes_of(part.a, factors_),
                         .b = b + bytes_of(part.b, factors_),
                         .c = c + bytes_of(part.c, result_),
                         .bias = bias,
                         .a_inverse = inverses.a,
                         .b_inverse = inverses.b});
    }
  }
  /// The info of the larger part, with the launches of all.
  [[nodiscard]] KernelInfo info() const {
    KernelInfo info = gemms_.back()->info();
    for (std::size_t i = 0; i + 1 < gemms_.size(); ++i) {
      const auto launches = gemms_[i]->info().launches;
      if (info.launches && launches) {
        *info.launches += *launches;
      } else {
        info.launches.reset();
      }
    }
    return info;
  }

 private:
  DType factors_, result_;
  std::vector<Part> parts_;
  std::vector<std::shared_ptr<const Gemm>> gemms_;
};

/// The info of `count` matmuls in sequence; a bias that must be rounded first adds a launch.
template <class AnyGemm>
KernelInfo info_of(const AnyGemm& gemm, std::int64_t count, const Bias& bias) {
  KernelInfo info = gemm.info();
  if (info.launches) *info.launches *= count;
  if (info.launches && bias.is_rounded()) *info.launches += 1;
  info.workspace_bytes += bias.workspace_bytes();
  return info;
}

/// Whether cuBLASLt can fuse GELU into the epilogue: in 16 bits, if all rows are aligned for any tile.
bool takes_gelu(const OpView& v, const GemmProblem& p) {
  constexpr std::int64_t kAligned = 8;
  const bool whole = v.op.input_offset.empty() && v.op.output_offset.empty();
  const bool is_scaled = core::is_fp8(p.factors);  // dense, except for its slots
  return is_half(p.result) && (is_scaled || (p.factors == p.result && whole)) && p.batch == 1 && !p.trans_a &&
         p.n % kAligned == 0 && p.k % kAligned == 0;
}

/// nullptr if cuBLASLt has no algorithm.
std::shared_ptr<const Gemm> find_gemm(const OpView& v, const GemmProblem& p) {
  try {
    return v.context->gemm_plans().find(p);
  } catch (const core::Unavailable&) {
    return {};
  }
}

}  // namespace

/// fp32 factors as six products of bf16 parts. On the background lane partial sums have the workspace of
/// GEMMs there.
Kernel make_bf16x6_matmul(const OpView& v, const GemmProblem& p) {
  if (!has_bf16x6()) {
    throw core::Unavailable(
        "matmuls in bf16x6 need the matrix instructions of compute capability 9.0, which this GPU or this "
        "build does not have");
  }
  const bool takes_dtypes = p.result == DType::f32 && (!p.bias || v.in(2).dtype == DType::f32);
  if (!takes_dtypes) return {};
  const devices::GemmSizes sizes{.batch = p.batch, .m = p.m, .n = p.n, .k = p.k};
  const std::int64_t parts = devices::bf16x6_parts(sizes, v.context->sm_count(), p.beside);
  const std::int64_t bytes = devices::bf16x6_workspace_bytes(sizes, parts);
  Bf16x6Gemm gemm{.batch = p.batch,
                  .m = p.m,
                  .n = p.n,
                  .k = p.k,
                  .trans_a = p.trans_a,
                  .trans_b = p.trans_b,
                  .a_stride = p.a_stride > 0 ? p.a_stride
                              : p.trans_a    ? p.m
                                             : p.k,
                  .b_stride = p.trans_b ? p.k : p.n,
                  .c_stride = p.c_stride > 0 ? p.c_stride : p.n,
                  .accumulate = p.accumulate,
                  .parts = parts};
  if (bytes > 0) {
    gemm.workspace = floats(p.beside ? v.context->gemm_plans().side_workspace().data()
                                     : v.context->scratch(static_cast<std::size_t>(bytes)));
  }
  const std::int64_t count = v.integer("batch") / p.batch;
  const program::Lane lane = p.beside ? program::Lane::background : program::Lane::compute;
  const auto run = [=, context = v.context](const KernelArgs& args) {
    Bf16x6Gemm each = gemm;
    const int most = context->matmul_multiprocessors();
    each.multiprocessors = most > 0 ? most : context->sm_count();
    each.bias = p.bias ? floats(args.in[2]) : nullptr;
    for (std::int64_t i = 0; i < count; ++i) {
      each.a = floats(args.in[0]) + i * p.m * p.k;
      each.b = floats(args.in[1]) + i * p.k * p.n;
      each.c = floats(args.out[0]) + i * p.m * p.n;
      launch_bf16x6_gemm(context->stream_of(lane), each);
    }
  };
  return {run,
          {.name = "gemm_bf16x6",
           .variant = matmul_variant(p.batch, p.m, p.n, p.k, p.factors, p.result) + " bf16x6",
           .workspace_bytes = bytes,
           .launches = count * (parts > 1 ? 2 : 1)}};
}

/// A packed weight and many rows: the weight is unpacked into scratch memory, behind a rounded bias.
Kernel make_packed_matmul(const OpView& v) {
  GemmProblem p = problem_of(v);
  const bool is_supported = is_storage(p.factors) && (p.result == DType::f32 || p.result == p.factors) &&
                            p.batch == 1 && v.integer("batch") == 1 && (!p.bias || is_storage(v.in(2).dtype));
  if (!is_supported) return {};
  p.align_b = kPlacement;
  const auto gemm = find_gemm(v, p);
  if (gemm == nullptr) return {};
  const Bias bias_of(v, p);
  const PackedFactor factor(v);
  const std::int64_t before = (bias_of.workspace_bytes() + kPlacement - 1) / kPlacement * kPlacement;
  const std::int64_t bytes = bytes_of(factor.count(), p.factors);
  auto* unpacked =
      static_cast<std::byte*>(v.context->scratch(static_cast<std::size_t>(before + bytes))) + before;
  const auto run = [=, context = v.context](const KernelArgs& args) {
    launch_unpack(context->stream(), factor.of(args.in[1]), p.factors, unpacked);
    gemm->submit({.a = args.in[0],
                  .b = unpacked,
                  .c = args.out[0],
                  .bias = p.bias ? bias_of.get(args.in[2]) : nullptr});
  };
  KernelInfo info = info_of(*gemm, 1, bias_of);
  info.workspace_bytes += bytes;
  if (info.launches) *info.launches += 1;
  return {run, info};
}

/// Looped: one matmul after the other.
Kernel make_matmul(const OpView& v) {
  if (core::is_packed(v.in(1).dtype)) return make_packed_matmul(v);
  const GemmProblem p = problem_of(v);
  if (!is_supported(v, p)) return {};
  if (p.factors == DType::f32 && program::fp32_products_of(v.op) == program::Fp32Products::bf16x6)
    return make_bf16x6_matmul(v, p);
  const CutGemm gemm(v, p);
  const std::int64_t count = v.integer("batch") / p.batch;
  const std::int64_t a_bytes = bytes_of(p.m * p.k, p.factors);
  const std::int64_t b_bytes = bytes_of(p.k * p.n, p.factors);
  const std::int64_t c_bytes = bytes_of(p.m * p.n, p.result);
  const Bias bias_of(v, p);
  const auto run = [=, has_bias = p.bias](const KernelArgs& args) {
    const auto* a = static_cast<const std::byte*>(args.in[0]);
    const auto* b = static_cast<const std::byte*>(args.in[1]);
    auto* c = static_cast<std::byte*>(args.out[0]);
    const void* bias = has_bias ? bias_of.get(args.in[2]) : nullptr;
    for (std::int64_t i = 0; i < count; ++i) {
      gemm.submit(a + i * a_bytes, b + i * b_bytes, c + i * c_bytes, bias, inverses_of(args));
    }
  };
  return {run, info_of(gemm, count, bias_of)};
}

/// A single matmul that stores gelu of its sums, and the sums, rounded. Empty if cuBLASLt has no algorithm.
/// Inputs: a, b, bias. Outputs: y, x.
Kernel make_matmul_gelu(const OpView& v) {
  GemmProblem p = problem_of(v);
  p.epilogue = GemmEpilogue::gelu;
  const bool fits = takes_gelu(v, p) && is_supported(v, p) && v.out(1).dtype == p.result;
  const auto gemm = fits ? find_gemm(v, p) : nullptr;
  if (gemm == nullptr) return {};
  const Bias bias_of(v, p);
  const auto run = [gemm, bias_of](const KernelArgs& args) {
    const Inverses inverses = inverses_of(args);
    gemm->submit({.a = args.in[0],
                  .b = args.in[1],
                  .c = args.out[0],
                  .bias = bias_of.get(args.in[2]),
                  .aux = args.out[1],
                  .a_inverse = inverses.a,
                  .b_inverse = inverses.b});
  };
  return {run, info_of(*gemm, 1, bias_of)};
}

/// A single matmul whose sums are multiplied by gelu'(x) before they are rounded. Empty if cuBLASLt has no
/// algorithm. Inputs: a, b, x.
Kernel make_matmul_gelu_backward(const OpView& v) {
  GemmProblem p = problem_of(v);
  p.bias = false;
  p.epilogue = GemmEpilogue::gelu_gradient;
  const bool fits = takes_gelu(v, p) && is_supported(v, p) && v.in(2).dtype == p.result;
  const auto gemm = fits ? find_gemm(v, p) : nullptr;
  if (gemm == nullptr) return {};
  return {[gemm](const KernelArgs& args) {
            const Inverses inverses = inverses_of(args);
            gemm->submit({.a = args.in[0],
                          .b = args.in[1],
                          .c = args.out[0],
                          .aux = args.in[2],
                          .a_inverse = inverses.a,
                          .b_inverse = inverses.b});
          },
          gemm->info()};
}

/// Logits may be wider than the sums that the bias is added to: these are converted first.
Kernel make_bias_add(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  const DType result = v.out(0).dtype;
  const bool is_wider = dtype != result;
  if (!is_storage(dtype) || (is_wider && result != DType::f32) || !v.inputs_are({1}, DType::f32)) return {};
  const auto run = [=, context = v.context, rows = rows_of(v.in(0)),
                    cols = v.in(0).shape[-1]](const KernelArgs& args) {
    if (is_wider)
      launch_scale_cap(context->stream(), rows * cols, 1, 0, dtype, args.in[0], result, args.out[0]);
    launch_bias_add(context->stream(), result, rows, cols, is_wider ? args.out[0] : args.in[0],
                    floats(args.in[1]), args.out[0]);
  };
  return {run, {.launches = is_wider ? 2 : 1}};
}

Kernel make_bias_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.outputs_are({0}, DType::f32)) return {};
  const std::int64_t rows = rows_of(v.in(0));
  const std::int64_t cols = v.in(0).shape[-1];
  const std::size_t bytes = bias_backward_workspace_bytes(rows, cols);
  void* workspace = v.context->scratch(bytes);
  const auto run = [=, context = v.context, accumulate = v.accumulates()](const KernelArgs& args) {
    launch_bias_backward(context->stream(), dtype, rows, cols, args.in[0], floats(args.out[0]), accumulate,
                         workspace);
  };
  constexpr std::int64_t kStages = 2;  // stages of partial sums
  return {run, {.workspace_bytes = as_bytes(bytes), .launches = kStages}};
}

MakerRows matmul_rows() {
  namespace ops = program::ops;
  return {{&ops::kMatmul, make_matmul, "matmul"},
          {&ops::kMatmulGelu, make_matmul_gelu, "matmul_gelu"},
          {&ops::kMatmulGeluBackward, make_matmul_gelu_backward, "matmul_gelu_backward"},
          {&ops::kBiasAdd, make_bias_add, "bias_add"},
          {&ops::kBiasBackward, make_bias_backward, "sum_rows"}};
}

}  // namespace rooflm::backends::cuda
