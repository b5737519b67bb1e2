// add: z = x + y.
#include "backends/cpu/reference/operand.h"
#include "backends/cpu/reference/producers.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {

Kernel make_add(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t n = v.out(0).shape.numel();
    return [n, x = in_operand<C>(v, 0, kPiece), y = in_operand<C>(v, 1, kPiece),
            z = out_operand<C>(v, 0, kPiece)](const KernelArgs& args) {
      for_pieces(n, [&](std::int64_t i, std::int64_t count) {
        const C* xs = x.read(args.in[0], i, count);
        const C* ys = y.read(args.in[1], i, count);
        z.write(args.out[0], i, count, [&](C* to) {
#pragma omp simd
          for (std::int64_t k = 0; k < count; ++k) to[k] = xs[k] + ys[k];
        });
      });
    };
  });
}

MakerRows add_rows() {
  namespace ops = program::ops;
  return {{&ops::kAdd, make_add, "reference::add"}};
}

}  // namespace rooflm::backends::cpu::reference
