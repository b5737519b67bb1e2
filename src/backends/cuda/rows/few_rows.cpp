// Binds matmuls of few rows to their ops.
#include "backends/cuda/rows/few_rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "backends/cuda/kernels/few_rows/few_rows_gemm.h"
#include "core/packed_weights.h"
#include "program/ops.h"

namespace rooflm::backends::cuda {
namespace {

/// Whether steps leave a weight as it is.
bool is_constant(const program::Program& program, program::TensorId id) {
  if (program.tensor(id).role != program::Role::weight) return false;
  return std::ranges::none_of(program.ops, [id](const program::Op& op) {
    return op.phase != program::Phase::setup && std::ranges::find(op.outputs, id) != op.outputs.end();
  });
}

bool is_whole(const program::Op& op) {
  const auto is_zero = [](std::int64_t offset) { return offset == 0; };
  return std::ranges::all_of(op.input_offset, is_zero) && std::ranges::all_of(op.output_offset, is_zero) &&
         !op.attrs.has("a_stride") && !op.attrs.has("c_stride");
}

}  // namespace

PackedFactor::PackedFactor(const OpView& v)
    : PackedFactor(v, {.dtype = v.in(1).dtype,
                       .rows = v.integer(v.op.attrs.flag("trans_b") ? "n" : "k"),
                       .width = v.integer(v.op.attrs.flag("trans_b") ? "k" : "n")}) {}

PackedFactor PackedFactor::of_matrix(const OpView& v) {
  return {v, {.dtype = v.in(0).dtype, .rows = v.in(0).shape[0], .width = v.in(0).shape[1]}};
}

PackedFactor::PackedFactor(const OpView& v, const PackedWeight& weight) : weight_(weight) {
  if (weight_.dtype != core::DType::nf4) return;
  constexpr std::size_t kBytes = 256 * sizeof(float);
  scale_values_ = std::make_shared<DeviceMemory>(v.context->allocate(kBytes));
  v.context->copy_in(scale_values_->data(), core::kScaleCodes, kBytes);
}

PackedWeight PackedFactor::of(const void* data) const {
  PackedWeight weight = weight_;
  weight.data = data;
  if (scale_values_ != nullptr) weight.scale_values = floats(scale_values_->data());
  return weight;
}

namespace {

/// A single matmul by a weight that no step changes. Empty where there is no kernel for it, or cuBLASLt is
/// faster: the rows of matmul.cpp come after this one.
Kernel make_few_rows_matmul(const OpView& v) {
  const program::Op& op = v.op;
  const bool fits = op.attrs.flag("trans_b") && !op.attrs.flag("trans_a") && v.integer("batch") == 1 &&
                    !v.accumulates() && is_whole(op) && is_constant(v.program, op.inputs[1]);
  if (!fits) return {};
  FewRowsGemm gemm{.factors = v.in(0).dtype,
                   .result = v.out(0).dtype,
                   .m = v.integer("m"),
                   .n = v.integer("n"),
                   .k = v.integer("k"),
                   .weight = {.dtype = v.in(1).dtype}};
  const bool has_bias = v.has_in(2);
  if (has_bias) gemm.bias_dtype = v.in(2).dtype;
  if (!has_few_rows_gemm(gemm)) return {};
  const auto run = [gemm, has_bias, factor = PackedFactor(v), context = v.context](const KernelArgs& args) {
    FewRowsGemm now = gemm;
    now.a = args.in[0];
    now.weight = factor.of(args.in[1]);
    now.bias = has_bias ? args.in[2] : nullptr;
    now.c = args.out[0];
    launch_few_rows_gemm(context->stream(), now, context->sm_count());
  };
  return {run,
          {.name = fmt::format("few_rows_gemm<{}>", core::name_of(gemm.weight.dtype)),
           .library = "rooflm",
           .variant = matmul_variant(1, gemm.m, gemm.n, gemm.k, gemm.factors, gemm.result)}};
}

}  // namespace

MakerRows few_rows_rows() { return {{&program::ops::kMatmul, make_few_rows_matmul, "few_rows_gemm"}}; }

}  // namespace rooflm::backends::cuda
