// Casts to fp8 and their scales, bound to ops.
#include "backends/cuda/kernels/fp8.h"

#include "backends/cuda/rows/rows.h"
#include "program/fp8.h"
#include "program/ops.h"

namespace rooflm::backends::cuda {

using core::DType;

/// A slot without a scale gets one from what is cast. After a first step, which is submitted op by op, none is
/// without: so recordings do not look.
Kernel make_fp8_cast(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype)) return {};
  const auto run = [context = v.context, dtype, rows = v.integer("rows"), cols = v.integer("cols"),
                    is_e5m2 = v.op.attrs.flag("e5m2"),
                    is_current = v.op.attrs.flag("current")](const KernelArgs& args) {
    const Fp8Cast cast{.rows = rows,
                       .cols = cols,
                       .dtype = dtype,
                       .x = args.in[0],
                       .as_stored = args.out[0],
                       .transposed = args.out[1],
                       .slot = floats(args.out[2])};
    const Stream stream = context->stream();
    if (is_current) launch_fp8_reset(stream, cast.slot);
    if (is_current || !context->is_recording()) launch_fp8_amax(stream, cast);
    launch_fp8_cast(stream, cast, is_e5m2);
  };
  constexpr std::int64_t kMeasured = 3;
  return {run, {.launches = v.op.attrs.flag("current") ? kMeasured : 1}};
}

Kernel make_fp8_scales(const OpView& v) {
  const std::int64_t slots = v.in(0).shape.numel() / program::kFp8Slot;
  return [context = v.context, slots, e5m2_gradients = v.op.attrs.flag("e5m2_gradients")](
             const KernelArgs& args) {
    launch_fp8_scales(context->stream(), slots, e5m2_gradients, floats(args.out[0]));
  };
}

MakerRows fp8_rows() {
  namespace ops = program::ops;
  return {{&ops::kFp8Cast, make_fp8_cast, "fp8_cast"}, {&ops::kFp8Scales, make_fp8_scales, "fp8_scales"}};
}

}  // namespace rooflm::backends::cuda
