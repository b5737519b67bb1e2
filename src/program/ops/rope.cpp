// rope: rotary position embedding (Su et al., 2021) of the q and k heads of a packed projection qkv [B, T, (H
// + 2K) D]; v passes through. Rotate-half convention, as in Hugging Face's Llama: element i of a head pairs
// with i + D/2, angle = t * theta^(-2i/D). Attributes: heads, kv_heads, head_dim, theta, inverse; dims,
// if only so many elements of a head are rotated, from `begin` (0) on: then D is dims in these formulas. On a
// context-parallel rank (program/pieces.h) t is the position in the whole sequence. When generation continues
// a text, a second input `first` [B] int32 gives the position: row t is at first[b] + t, below the attribute
// `positions`.
#include <fmt/format.h>

#include "core/checked.h"
#include "program/gradient.h"
#include "program/ops.h"
#include "program/ops/per_text.h"
#include "program/rotary.h"

namespace rooflm::program::ops {
namespace {

std::vector<Tensor> infer_rope(const Program& p, const Op& op) {
  const auto& x = p.shape(op.inputs.at(0));
  const std::int64_t d = op.attrs.integer("head_dim");
  const std::int64_t width = (op.attrs.integer("heads") + 2 * core::Count(op.attrs.integer("kv_heads"))) * d;
  expect(x.rank() == 3 && x[2] == width, op,
         [&] { return fmt::format("expected [B, T, {}], got {}", width, x.str()); });
  const std::int64_t dims = rotated_dims(op.attrs);
  expect(dims % 2 == 0, op, [&] { return fmt::format("rotates pairs, but the head size {} is odd", dims); });
  const std::int64_t begin = rotated_begin(op.attrs);
  expect(dims > 0 && begin >= 0 && dims <= d - begin, op,
         [&] { return fmt::format("rotates {} elements of a head of {} from {} on", dims, d, begin); });
  if (op.inputs.size() > 1) expect_per_text(p, op, 1, x[0]);
  return {{.shape = x}};
}

/// 3 per rotated element: two multiplications and an addition.
Cost cost_rope(const Program& p, const Op& op) {
  const auto& x = p.shape(op.inputs.at(0));
  const core::Count rotated =
      (core::Count(op.attrs.integer("heads")) + op.attrs.integer("kv_heads")) * rotated_dims(op.attrs);
  return {.elementwise_flop = core::Count(3) * x[0] * x[1] * rotated};
}

/// The gradient of a rotation is the inverse rotation.
void gradient_rope(GradientContext& g) {
  Attributes attrs = g.op().attrs;
  attrs.set("inverse", !attrs.flag("inverse"));
  g.propagate(0, g.emit(kRope, {g.gradient(0)}, attrs).at(0));
}

}  // namespace

const OpDef kRope{
    .name = "rope", .infer = infer_rope, .cost = cost_rope, .gradient = gradient_rope, .in_place_input = 0};

}  // namespace rooflm::program::ops
