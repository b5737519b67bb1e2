// cast: y = x in another dtype, round to nearest even.
#include "backends/cpu/reference/operand.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {

Kernel make_cast(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t n = v.out(0).shape.numel();
    return [n, x = in_operand<C>(v, 0, kPiece), y = out_operand<C>(v, 0, kPiece)](const KernelArgs& args) {
      for_pieces(n, [&](std::int64_t i, std::int64_t count) {
        const C* xs = x.read(args.in[0], i, count);
        y.write(args.out[0], i, count, [&](C* to) { std::copy_n(xs, count, to); });
      });
    };
  });
}

MakerRows cast_rows() {
  namespace ops = program::ops;
  return {{&ops::kCast, make_cast, "reference::cast"}};
}

}  // namespace rooflm::backends::cpu::reference
