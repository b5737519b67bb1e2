// Emits a layer of experts. Shapes in comments: N tokens, C channels, E experts of width F, K of each token,
// R = N K.
#include "model/experts.h"

#include <vector>

#include "program/ops.h"

namespace rooflm::model {

namespace ops = program::ops;
using program::Attributes;
using program::TensorId;

TensorId write_experts(program::Builder& builder, const Experts& e, TensorId x,
                       const ExpertWeights& weights) {
  const program::Program& p = builder.program();
  const core::Shape shape = p.shape(x);
  const std::int64_t tokens = shape.numel() / shape[-1];
  const Attributes places{{"experts", e.count}, {"active", e.active}};
  std::vector<TensorId> route;       // weights, experts [N, K]
  std::vector<TensorId> dispatched;  // order [R], places [N, K], offsets [E + 1]
  TensorId rows = program::kNone;    // [R, C], [R, 2F], [R, F], [R, C]
  {
    const auto part = builder.scope("router");
    const Attributes matmul{{"batch", 1},       {"m", tokens},     {"n", e.count},        {"k", shape[-1]},
                            {"trans_a", false}, {"trans_b", true}, {"accumulate", false}, {"looped", false}};
    const TensorId logits = builder.op(ops::kMatmul, {x, weights.router}, matmul, "scores");  // [N, E]
    Attributes routing = places;
    routing.set("sigmoid", e.sigmoid);
    routing.set("normalised", e.normalised);
    routing.set("scale", e.scale);
    routing.set("balance", e.balance_loss);
    routing.set("z_loss", e.z_loss);
    routing.set("share", 1.0);
    route = builder.ops(ops::kRoute, {logits}, routing, "route");
    dispatched = builder.ops(ops::kDispatch, {route[1]}, places, "dispatch");
    rows = builder.op(ops::kGatherRows, {x, dispatched[0], dispatched[1]}, places, "rows");
  }
  const auto multiply = [&](TensorId w, const char* name) {
    const core::Shape& of_weight = p.shape(w);
    const Attributes attrs =
        ops::grouped_matmul(e.count, tokens * e.active, of_weight[1], of_weight[2], true);
    rows = builder.op(ops::kGroupedMatmul, {rows, w, dispatched[2]}, attrs, name);
  };
  {
    const auto part = builder.scope("fc1");
    multiply(weights.fc1, "fc1");
  }
  {
    const auto part = builder.scope("act");
    rows = builder.op(ops::kSwiGlu, {rows}, {}, "act");
  }
  const auto part = builder.scope("fc2");
  multiply(weights.fc2, "fc2");
  return builder.op(ops::kCombine, {rows, route[0], dispatched[1]}, places, "y", {shape});
}

}  // namespace rooflm::model
