// own_part: y = this rank's rows of x.
#include <cuda_runtime_api.h>

#include "backends/cuda/check.h"
#include "backends/cuda/rows/rows.h"
#include "program/groups.h"
#include "program/ops.h"

namespace rooflm::backends::cuda {

Kernel make_own_part(const OpView& v) {
  const auto element = static_cast<std::int64_t>(core::size_of(v.in(0).dtype));
  const program::Part part = program::part_of(v.in(0).shape.numel(), static_cast<int>(v.integer("parts")),
                                              static_cast<int>(v.integer("index")), v.integer("unit"));
  return [context = v.context, first = part.begin * element,
          bytes = static_cast<std::size_t>(part.size() * element)](const KernelArgs& args) {
    if (bytes == 0) return;
    check(cudaMemcpyAsync(args.out[0], static_cast<const std::byte*>(args.in[0]) + first, bytes,
                          cudaMemcpyDeviceToDevice, context->stream()),
          "copying a part");
  };
}

MakerRows own_part_rows() {
  namespace ops = program::ops;
  return {{&ops::kOwnPart, make_own_part, "copy"}};
}

}  // namespace rooflm::backends::cuda
