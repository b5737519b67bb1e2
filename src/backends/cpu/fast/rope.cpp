// Rotary position embedding on packed projections.
#include "backends/cpu/fast/rope.h"

#include <algorithm>
#include <cmath>

#include "backends/cpu/fast/attention.h"
#include "backends/cpu/fast/maker.h"
#include "backends/cpu/fast/parallel.h"
#include "backends/cpu/fast/vec.h"
#include "backends/cpu/resources.h"
#include "backends/cpu/token_ids.h"
#include "program/ops.h"
#include "program/rotary.h"

namespace rooflm::backends::cpu {

void rope_tables(std::int64_t seq, std::int64_t head_dim, double theta, float* cosines, float* sines) {
  const std::int64_t half = head_dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    for (std::int64_t t = 0; t < seq; ++t) {
      const double angle = static_cast<double>(t) * frequency;
      cosines[t * half + i] = static_cast<float>(std::cos(angle));
      sines[t * half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

template <Storage S>
void rope(const AttentionShape& shape, const program::Pieces& pieces, const S* in, const float* cosines,
          const float* sines, bool inverse, const std::int32_t* begin, S* out, const RotatedPart& part) {
  const std::int64_t dim = shape.head_dim;
  const std::int64_t half = (part.dims > 0 ? part.dims : dim) / 2;
  const std::int64_t before = part.begin;
  const std::int64_t rotated = shape.heads + shape.kv_heads;
  const std::int64_t row_size = (rotated + shape.kv_heads) * shape.head_dim;
  const std::int64_t value_begin = rotated * shape.head_dim;
  const float sign = inverse ? -1.0F : 1.0F;
  const std::int64_t seq = shape.seq;
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(S));
  const bool streams = in != out && 2 * half == dim && half * kBytes % kLineBytes == 0 &&
                       is_streamed(shape.batch * seq * row_size * kBytes);
  parallel_for(shape.batch * seq, 4, [=](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      const std::int64_t position =
          pieces.position(row % seq, seq) + (begin == nullptr ? 0 : begin[row / seq]);
      const float* c = cosines + position * half;
      const float* s = sines + position * half;
      for (std::int64_t head = 0; head < rotated; ++head) {
        const S* x = in + row * row_size + head * dim + before;
        S* y = out + row * row_size + head * dim + before;
        for_lanes_to(y, streams, 0, half, [=](auto i, auto group) ROOFLM_INLINE_LAMBDA {
          const Floats cosine = load_at(c + i, group);
          const Floats sine = load_at(s + i, group) * sign;
          const Floats a = load_at(x + i, group);
          const Floats b = load_at(x + half + i, group);
          store_at(y + i, a * cosine - b * sine, group);
          store_at(y + half + i, b * cosine + a * sine, group);
        });
        if (in != out) {
          std::copy(x - before, x, y - before);
          std::copy(x + 2 * half, x - before + dim, y + 2 * half);
        }
      }
      if (in != out) {
        const S* values = in + row * row_size;
        S* to = out + row * row_size;
        for_lanes_to(to, streams, value_begin, row_size, [=](auto i, auto group) ROOFLM_INLINE_LAMBDA {
          store_at(to + i, load_at(values + i, group), group);
        });
      }
    }
    if (streams) end_stream();
  });
}

template void rope(const AttentionShape&, const program::Pieces&, const float*, const float*, const float*,
                   bool, const std::int32_t*, float*, const RotatedPart&);
template void rope(const AttentionShape&, const program::Pieces&, const core::Bf16*, const float*,
                   const float*, bool, const std::int32_t*, core::Bf16*, const RotatedPart&);

}  // namespace rooflm::backends::cpu

namespace rooflm::backends::cpu::fast {

Kernel make_rope(const OpView& v) {
  if (!v.outputs_are({0}, v.in(0).dtype)) return {};
  return with_storage(v.in(0).dtype, [&]<class S>(S) -> Kernel {
    const AttentionShape shape = attention_shape(v, v.in(0).shape);
    const bool inverse = v.op.attrs.flag("inverse");
    const bool has_first = v.has_in(1);
    const RotatedPart part{program::rotated_begin(v.op.attrs), program::rotated_dims(v.op.attrs)};
    const auto pieces = program::Pieces::of(v.op.attrs);
    const std::int64_t positions = has_first ? v.integer("positions") : shape.seq * pieces.parts;
    const auto tables = v.context->rope_tables<float>(positions, program::Rotary::of(v.op.attrs));
    return [=](const KernelArgs& args) {
      const auto* first = has_first ? checked_first(args.in[1], shape.batch, shape.seq, positions) : nullptr;
      rope(shape, pieces, static_cast<const S*>(args.in[0]), tables->cosines(), tables->sines(), inverse,
           first, static_cast<S*>(args.out[0]), part);
    };
  });
}

MakerRows rope_rows() {
  namespace ops = program::ops;
  return {{&ops::kRope, make_rope, "rope"}};
}

}  // namespace rooflm::backends::cpu::fast
