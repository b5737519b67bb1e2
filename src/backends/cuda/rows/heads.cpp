// Binds the splitting of heads and rotary positions to their ops.
#include "backends/cuda/kernels/heads.h"

#include <memory>

#include "backends/cuda/rows/one_dtype.h"
#include "backends/cuda/rows/rows.h"
#include "program/ops.h"
#include "program/rotary.h"

namespace rooflm::backends::cuda {
namespace {

using core::DType;

/// `packed`: a tensor [B, T, ..].
HeadsShape packed_shape(const OpView& v, const program::Tensor& packed) {
  return {.batch = packed.shape[0],
          .seq = packed.shape[1],
          .heads = v.integer("heads"),
          .kv_heads = v.integer("kv_heads"),
          .head_dim = v.integer("head_dim")};
}

}  // namespace

Kernel make_split_heads(const OpView& v) {
  return one_dtype<1, 3>(v, launch_split_heads, packed_shape(v, v.in(0)));
}

Kernel make_join_heads(const OpView& v) {
  return one_dtype<3, 1>(v, launch_join_heads, packed_shape(v, v.out(0)));
}

Kernel make_merge_heads(const OpView& v) {
  const core::Shape& y = v.in(0).shape;
  const HeadsShape shape{.batch = y[0], .seq = y[2], .heads = y[1], .kv_heads = y[1], .head_dim = y[3]};
  return one_dtype<1, 1>(v, launch_merge_heads, shape);
}

Kernel make_unmerge_heads(const OpView& v) {
  return one_dtype<1, 1>(v, launch_unmerge_heads, packed_shape(v, v.in(0)));
}

Kernel make_rope(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.outputs_are({0}, dtype)) return {};
  const HeadsShape shape = packed_shape(v, v.in(0));
  const bool has_first = v.has_in(1);
  const std::int64_t positions = has_first ? v.integer("positions") : shape.seq;
  const auto rotary = program::Rotary::of(v.op.attrs);
  const RotaryPart part{.pairs = static_cast<std::int64_t>(rotary.frequencies.size()),
                        .begin = program::rotated_begin(v.op.attrs)};
  const auto tables = v.context->rope_tables(positions, rotary, places_of(v, positions));
  return [=, context = v.context, inverse = v.op.attrs.flag("inverse")](const KernelArgs& args) {
    launch_rope(context->stream(), dtype, shape, part, args.in[0], floats(tables->cosines.data()),
                floats(tables->sines.data()), inverse, has_first ? ids(args.in[1]) : nullptr, args.out[0]);
  };
}

MakerRows heads_rows() {
  namespace ops = program::ops;
  return {{&ops::kSplitHeads, make_split_heads, "move_heads<split>"},
          {&ops::kJoinHeads, make_join_heads, "move_heads<join>"},
          {&ops::kMergeHeads, make_merge_heads, "move_heads<join>"},
          {&ops::kUnmergeHeads, make_unmerge_heads, "move_heads<split>"},
          {&ops::kRope, make_rope, "rope"}};
}

}  // namespace rooflm::backends::cuda
