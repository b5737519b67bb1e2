// own_part: y = this rank's rows of x.
#include <cstring>

#include "backends/cpu/reference/operand.h"
#include "program/groups.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {

Kernel make_own_part(const OpView& v) {
  const auto element = static_cast<std::int64_t>(core::size_of(v.in(0).dtype));
  const program::Part part = program::part_of(v.in(0).shape.numel(), static_cast<int>(v.integer("parts")),
                                              static_cast<int>(v.integer("index")), v.integer("unit"));
  return {[first = part.begin * element, bytes = part.size() * element](const KernelArgs& args) {
    if (bytes == 0) return;
    std::memcpy(args.out[0], static_cast<const std::byte*>(args.in[0]) + first,
                static_cast<std::size_t>(bytes));
  }};
}

MakerRows own_part_rows() {
  namespace ops = program::ops;
  return {{&ops::kOwnPart, make_own_part, "reference::own_part"}};
}

}  // namespace rooflm::backends::cpu::reference
