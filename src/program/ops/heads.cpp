// Moving heads: packed projections [B, T, (H + 2K) D] to q [B, H, T, D], k and v [B, K, T, D], and back.
// Attributes: heads, kv_heads, head_dim. No arithmetic: these ops are pure traffic.
#include <fmt/format.h>

#include "core/checked.h"
#include "program/gradient.h"
#include "program/ops.h"

namespace rooflm::program::ops {
namespace {

using core::Shape;

struct Heads {
  core::Count heads, kv_heads, head_dim;
  explicit Heads(const Attributes& attrs)
      : heads(attrs.integer("heads")),
        kv_heads(attrs.integer("kv_heads")),
        head_dim(attrs.integer("head_dim")) {}
};

std::vector<Tensor> infer_split(const Program& p, const Op& op) {
  const Heads h(op.attrs);
  const Shape& x = p.shape(op.inputs.at(0));
  const std::int64_t width = (h.heads + 2 * h.kv_heads) * h.head_dim;
  expect(x.rank() == 3 && x[2] == width, op,
         [&] { return fmt::format("expected [B, T, {}], got {}", width, x.str()); });
  const Tensor kv{.shape = {x[0], h.kv_heads, x[1], h.head_dim}};
  return {{.shape = {x[0], h.heads, x[1], h.head_dim}}, kv, kv};
}

std::vector<Tensor> infer_join(const Program& p, const Op& op) {
  const Heads h(op.attrs);
  const Shape& q = p.shape(op.inputs.at(0));
  return {{.shape = {q[0], q[2], (h.heads + 2 * h.kv_heads) * h.head_dim}}};
}

/// [B, H, T, D] -> [B, T, H D]
std::vector<Tensor> infer_merge(const Program& p, const Op& op) {
  const Shape& y = p.shape(op.inputs.at(0));
  expect(y.rank() == 4, op, [&] { return fmt::format("expected [B, H, T, D], got {}", y.str()); });
  return {{.shape = {y[0], y[2], y[1] * y[3]}}};
}

/// [B, T, H D] -> [B, H, T, D]
std::vector<Tensor> infer_unmerge(const Program& p, const Op& op) {
  const Heads h(op.attrs);
  const Shape& y = p.shape(op.inputs.at(0));
  expect(y.rank() == 3 && y[2] == h.heads * h.head_dim, op, [&] {
    return fmt::format("expected [B, T, {}], got {}", std::int64_t{h.heads * h.head_dim}, y.str());
  });
  return {{.shape = {y[0], h.heads, y[1], h.head_dim}}};
}

Cost cost_copy(const Program&, const Op&) { return {}; }

void gradient_split(GradientContext& g) {
  g.propagate(0, g.emit(kJoinHeads, {g.gradient(0), g.gradient(1), g.gradient(2)}, g.op().attrs).at(0));
}

void gradient_merge(GradientContext& g) {
  g.propagate(0, g.emit(kUnmergeHeads, {g.gradient(0)}, g.op().attrs).at(0));
}

}  // namespace

const OpDef kSplitHeads{.name = "split_heads",
                        .work = Work::copy,
                        .infer = infer_split,
                        .cost = cost_copy,
                        .gradient = gradient_split};
const OpDef kJoinHeads{.name = "join_heads", .work = Work::copy, .infer = infer_join, .cost = cost_copy};
const OpDef kMergeHeads{.name = "merge_heads",
                        .work = Work::copy,
                        .infer = infer_merge,
                        .cost = cost_copy,
                        .gradient = gradient_merge};
const OpDef kUnmergeHeads{
    .name = "unmerge_heads", .work = Work::copy, .infer = infer_unmerge, .cost = cost_copy};

}  // namespace rooflm::program::ops
