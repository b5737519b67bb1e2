// Index of the largest element of each row (program/ops/argmax.cpp).
#include <limits>

#include "backends/cpu/reference/operand.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {
namespace {

using Index = std::int64_t;

template <class C>
std::int32_t place_of_largest(const C* row, Index count) {
  C largest = -std::numeric_limits<C>::infinity();
  Index place = 0;
  for (Index i = 0; i < count; ++i) {
    if (row[i] > largest) {
      largest = row[i];
      place = i;
    }
  }
  return static_cast<std::int32_t>(place);
}

}  // namespace

/// Inputs: x. Outputs: y int32.
Kernel make_argmax(const OpView& view) {
  return with_compute_type(view, [&]<class C>(C) -> Kernel {
    const Index cols = view.in(0).shape[-1];
    const Index rows = rows_of(view.in(0));
    return [rows, cols, valid = view.integer("valid"),
            x = in_operand<C>(view, 0, cols)](const KernelArgs& args) {
      auto* y = static_cast<std::int32_t*>(args.out[0]);
      for_rows(rows,
               [&](Index row) { y[row] = place_of_largest(x.read(args.in[0], row * cols, cols), valid); });
    };
  });
}

MakerRows argmax_rows() { return {{&program::ops::kArgmax, make_argmax, "reference::argmax"}}; }

}  // namespace rooflm::backends::cpu::reference
