// Binds fp8 casts and their scales to their ops.
#include "backends/cuda/kernels/fp8.h"

#include "backends/cuda/kernels/norm/norm_fp8.h"
#include "backends/cuda/rows/rows.h"
#include "program/fp8.h"
#include "program/ops.h"

namespace rooflm::backends::cuda {

using core::DType;

namespace {

constexpr std::int64_t kMeasured = 3;  ///< launches of a cast that measures first

/// A slot without a scale gets one from the tensor that is cast. After the first step, which is submitted op
/// by op, every slot has one, so recordings need not check.
Kernel make_cast(const OpView& v, Fp8Source source) {
  if (!v.inputs_are({0}, DType::bf16)) return {};
  if (source == Fp8Source::swiglu_backward && !v.inputs_are({1}, DType::bf16)) return {};
  const auto run = [context = v.context, source, rows = v.integer("rows"), cols = v.integer("cols"),
                    is_e5m2 = v.op.attrs.flag("e5m2"),
                    is_current = v.op.attrs.flag("current")](const KernelArgs& args) {
    Fp8Cast cast{.rows = rows,
                 .cols = cols,
                 .source = source,
                 .as_stored = args.out[0],
                 .transposed = args.out[1],
                 .slot = floats(args.out[2])};
    if (source == Fp8Source::tensor) cast.x = args.in[0];
    if (source == Fp8Source::swiglu) cast.h = args.in[0];
    if (source == Fp8Source::swiglu_backward) {
      cast.dy = args.in[0];
      cast.h = args.in[1];
    }
    const Stream stream = context->stream();
    if (is_current) launch_fp8_reset(stream, cast.slot);
    if (is_current || !context->is_recording()) launch_fp8_amax(stream, cast);
    launch_fp8_cast(stream, cast, is_e5m2);
  };
  return {run, {.launches = v.op.attrs.flag("current") ? kMeasured : 1}};
}

/// Which norm it is, and whether it is of a sum.
struct NormKind {
  bool is_layer, adds;
};

/// Inputs: x, [y,] w, [b,] [slot]. Outputs: copies, slot, [r,] [mean,] rstd.
NormFp8 norm_operands(const KernelArgs& args, const NormKind& kind) {
  NormFp8 all{.as_stored = args.out[0], .transposed = args.out[1], .slot = floats(args.out[2])};
  NormForward& norm = all.norm;
  std::size_t in = 0;
  std::size_t out = 3;
  norm.x = args.in[in++];
  if (kind.adds) {
    norm.addend = args.in[in++];
    norm.sum = args.out[out++];
  }
  norm.weight = floats(args.in[in++]);
  if (kind.is_layer) {
    norm.bias = floats(args.in[in++]);
    norm.mean = floats(args.out[out++]);
  }
  norm.rstd = floats(args.out[out]);
  return all;
}

/// As make_cast.
Kernel make_norm_cast(const OpView& v, NormKind kind) {
  const std::size_t weight = kind.adds ? 2 : 1;
  const bool fits = v.inputs_are({0}, DType::bf16) && (!kind.adds || v.inputs_are({1}, DType::bf16)) &&
                    v.inputs_are({weight}, DType::f32) &&
                    (!kind.is_layer || v.inputs_are({weight + 1}, DType::f32));
  if (!fits) return {};
  const auto run = [context = v.context, kind, rows = v.integer("rows"), cols = v.integer("cols"),
                    eps = v.number("eps"), is_current = v.op.attrs.flag("current")](const KernelArgs& args) {
    NormFp8 all = norm_operands(args, kind);
    all.norm.dtype = DType::bf16;
    all.norm.rows = rows;
    all.norm.cols = cols;
    all.norm.eps = eps;
    const Stream stream = context->stream();
    if (is_current) launch_fp8_reset(stream, all.slot);
    if (is_current || !context->is_recording()) launch_norm_fp8_amax(stream, all);
    launch_norm_fp8(stream, all);
  };
  return {run, {.launches = v.op.attrs.flag("current") ? kMeasured : 1}};
}

}  // namespace

Kernel make_layernorm_fp8(const OpView& v) { return make_norm_cast(v, {.is_layer = true, .adds = false}); }
Kernel make_add_layernorm_fp8(const OpView& v) { return make_norm_cast(v, {.is_layer = true, .adds = true}); }
Kernel make_rmsnorm_fp8(const OpView& v) { return make_norm_cast(v, {.is_layer = false, .adds = false}); }
Kernel make_add_rmsnorm_fp8(const OpView& v) { return make_norm_cast(v, {.is_layer = false, .adds = true}); }

Kernel make_fp8_cast(const OpView& v) { return make_cast(v, Fp8Source::tensor); }
Kernel make_swiglu_fp8(const OpView& v) { return make_cast(v, Fp8Source::swiglu); }
Kernel make_swiglu_backward_fp8(const OpView& v) { return make_cast(v, Fp8Source::swiglu_backward); }

Kernel make_fp8_scales(const OpView& v) {
  const std::int64_t slots = v.in(0).shape.numel() / program::kFp8Slot;
  return [context = v.context, slots,
          e5m2_gradients = v.op.attrs.flag("e5m2_gradients")](const KernelArgs& args) {
    launch_fp8_scales(context->stream(), slots, e5m2_gradients, floats(args.out[0]));
  };
}

MakerRows fp8_rows() {
  namespace ops = program::ops;
  return {{&ops::kFp8Cast, make_fp8_cast, "fp8_cast<Tensor>"},
          {&ops::kSwiGluFp8, make_swiglu_fp8, "fp8_cast<SwiGlu>"},
          {&ops::kSwiGluBackwardFp8, make_swiglu_backward_fp8, "fp8_cast<SwiGluBackward>"},
          {&ops::kLayerNormFp8, make_layernorm_fp8, "norm_fp8<layer>"},
          {&ops::kAddLayerNormFp8, make_add_layernorm_fp8, "norm_fp8<layer>"},
          {&ops::kRmsNormFp8, make_rmsnorm_fp8, "norm_fp8<rms>"},
          {&ops::kAddRmsNormFp8, make_add_rmsnorm_fp8, "norm_fp8<rms>"},
          {&ops::kFp8Scales, make_fp8_scales, "fp8_scales"}};
}

}  // namespace rooflm::backends::cuda
