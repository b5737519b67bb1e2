// rope: rotary position embedding of the q and k heads of qkv [B, T, (H + 2K) D], rotate-half convention;
// of all elements of a head or some of them.
#include "backends/cpu/reference/operand.h"
#include "backends/cpu/token_ids.h"
#include "program/ops.h"
#include "program/pieces.h"
#include "program/rotary.h"

namespace rooflm::backends::cpu::reference {

Kernel make_rope(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const core::Shape& shape = v.in(0).shape;
    const std::int64_t seq = shape[1];
    const std::int64_t width = shape[2];
    const std::int64_t rows = shape[0] * seq;
    const std::int64_t dim = v.integer("head_dim");
    const std::int64_t half = program::rotated_dims(v.op.attrs) / 2;
    const std::int64_t begin = program::rotated_begin(v.op.attrs);
    const std::int64_t rotated = (v.integer("heads") + v.integer("kv_heads")) * dim;
    const C sign = v.op.attrs.flag("inverse") ? C(-1) : C(1);
    const bool has_first = v.has_in(1);
    const auto pieces = program::Pieces::of(v.op.attrs);
    const std::int64_t positions = has_first ? v.integer("positions") : seq * pieces.parts;
    return [=, tables = v.context->rope_tables<C>(positions, program::Rotary::of(v.op.attrs)),
            x = in_operand<C>(v, 0, width), y = out_operand<C>(v, 0, width)](const KernelArgs& args) {
      const C* all_cosines = tables->cosines();
      const C* all_sines = tables->sines();
      const auto* first = has_first ? checked_first(args.in[1], rows / seq, seq, positions) : nullptr;
      for_rows(rows, [&](std::int64_t r) {
        const C* from = x.read(args.in[0], r * width, width);
        const std::int64_t position = pieces.position(r % seq, seq) + (first == nullptr ? 0 : first[r / seq]);
        const C* cosines = all_cosines + position * half;
        const C* sines = all_sines + position * half;
        y.write(args.out[0], r * width, width, [&](C* to) {
          if (to != from) std::copy(from, from + width, to);
          for (std::int64_t head = begin; head < rotated; head += dim) {
#pragma omp simd
            for (std::int64_t i = 0; i < half; ++i) {
              const C a = from[head + i];
              const C b = from[head + half + i];
              to[head + i] = a * cosines[i] - b * sign * sines[i];
              to[head + half + i] = b * cosines[i] + a * sign * sines[i];
            }
          }
        });
      });
    };
  });
}

MakerRows rope_rows() {
  namespace ops = program::ops;
  return {{&ops::kRope, make_rope, "reference::rope"}};
}

}  // namespace rooflm::backends::cpu::reference
