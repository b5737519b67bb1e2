// Binds argmax to its op.
#include <cstdint>

#include "backends/cuda/rows/rows.h"
#include "program/ops.h"

namespace rooflm::backends::cuda {

/// kernels/argmax.cu: y[r] = index of the first largest of the elements x[r, :valid], x [rows, cols].
void launch_argmax(Stream stream, std::int64_t rows, std::int64_t cols, std::int64_t valid, const float* x,
                   std::int32_t* y);

/// Inputs: x. Outputs: y int32.
Kernel make_argmax(const OpView& v) {
  if (v.in(0).dtype != core::DType::f32) return {};
  return [context = v.context, rows = rows_of(v.in(0)), cols = v.in(0).shape[-1],
          valid = v.integer("valid")](const KernelArgs& args) {
    launch_argmax(context->stream(), rows, cols, valid, floats(args.in[0]),
                  static_cast<std::int32_t*>(args.out[0]));
  };
}

MakerRows argmax_rows() { return {{&program::ops::kArgmax, make_argmax, "argmax"}}; }

}  // namespace rooflm::backends::cuda
