// Emits feed-forward layers, dense ones and experts.
#include <utility>
#include <vector>

#include "model/forward_writer.h"
#include "program/ops.h"
#include "program/planned_ops.h"

namespace rooflm::model {

namespace ops = program::ops;

TensorId Writer::feed_forward(TensorId x, const std::string& prefix, std::int64_t width) {
  const auto scope = builder_.scope("feed_forward");
  TensorId h = program::kNone;  // [B, T, F], llama [B, T, 2F]
  {
    const auto part = builder_.scope("fc1");
    h = linear(x, prefix + "fc1", config_.d_model, config_.arch.gated ? 2 * width : width, "fc1");
  }
  {
    const auto part = builder_.scope("act");
    h = activated(h, prefix);  // [B, T, F]
  }
  const auto part = builder_.scope("fc2");
  return linear(h, prefix + "fc2", width, config_.d_model, "fc2");
}

TensorId Writer::activated(TensorId h, const std::string& prefix) {
  const Arch& arch = config_.arch;
  if (arch.gated && arch.activation == Activation::silu) return builder_.op(ops::kSwiGlu, {h}, {}, "act");
  if (!arch.gated && arch.activation == Activation::gelu_tanh) return builder_.op(ops::kGelu, {h}, {}, "act");
  std::vector<TensorId> inputs = {h};
  if (arch.activation == Activation::xielu) inputs.push_back(weight(prefix + "act.weight"));
  const Attributes attrs{{"kind", static_cast<std::int64_t>(arch.activation)}, {"gated", arch.gated}};
  return builder_.op(ops::kActivate, std::move(inputs), attrs, "act");
}

TensorId Writer::experts(TensorId x, const std::string& prefix) {
  const Experts& e = config_.experts;
  const auto scope = builder_.scope("feed_forward");
  const TensorId before = x;
  const core::Shape shape = builder_.program().shape(x);
  Attributes places{{"experts", e.count}, {"active", e.active}};
  Attributes routing = places;
  routing.set("sigmoid", e.sigmoid_scores);
  routing.set("normalised", e.normalised);
  routing.set("scale", e.scale);
  if (e.groups > 1) {
    routing.set("groups", e.groups);
    routing.set("active_groups", e.active_groups);
    routing.set("group_best", e.group_best);
  }
  if (e.jitter >= 0) routing.set("jitter", e.jitter);
  routing.set("balance", e.balance_loss);
  routing.set("z_loss", e.z_loss);
  routing.set("share", 1.0);
  std::vector<TensorId> route;       // weights, experts [N, K]
  std::vector<TensorId> dispatched;  // order [R], places [N, K], offsets [E + 1]
  TensorId rows = program::kNone;    // [R, C], [R, 2F], [R, F], [R, C]
  {
    const auto part = builder_.scope("router");
    if (e.has_own_norms) x = norm(x, "experts_norm", prefix + "experts_norm");
    TensorId routed = x;
    std::vector<TensorId> scales;
    if (e.has_own_norms) scales = {weight(prefix + "router.scale"), weight(prefix + "router.expert_scale")};
    if (e.has_own_norms) routed = builder_.op(ops::kMap, {x, scales[0]}, {}, "routed");
    TensorId scores = linear(routed, prefix + "router", config_.d_model, e.count, "scores");  // [.., E]
    if (e.has_own_norms) scores = builder_.op(ops::kMap, {scores, scales[1]}, {}, "scores");
    std::vector<TensorId> inputs = {scores};
    if (e.score_bias) inputs.push_back(weight(prefix + "router.score_bias"));
    route = builder_.ops(ops::kRoute, std::move(inputs), routing, "route");
    dispatched = builder_.ops(ops::kDispatch, {route[1]}, places, "dispatch");
    program::Tensor& offsets = builder_.program().tensor(dispatched[2]);
    offsets.role = program::Role::result;  // how many rows each expert has is read after the step
    offsets.name = prefix + "offsets";
    inputs = {x, dispatched[0], dispatched[1]};
    if (e.weigh_input) {
      places.set("weighs_input", true);
      inputs.push_back(route[0]);
    }
    rows = builder_.op(ops::kGatherRows, inputs, places, "rows");
  }
  {
    const auto part = builder_.scope("fc1");
    rows = expert_linear(rows, dispatched[2], prefix + "experts.fc1", "fc1");
  }
  {
    const auto part = builder_.scope("act");
    rows = activated(rows, prefix);
  }
  TensorId y = program::kNone;
  {
    const auto part = builder_.scope("fc2");
    rows = expert_linear(rows, dispatched[2], prefix + "experts.fc2", "fc2");
    const TensorId weights = e.weigh_input ? program::kNone : route[0];
    y = builder_.op(ops::kCombine, {rows, weights, dispatched[1]}, places, "y", {shape});
  }
  if (e.has_own_norms) y = norm(y, "experts_norm_after", prefix + "experts_norm_after");
  if (e.shared_d_ff == 0) return y;
  const auto part = builder_.scope("shared");
  TensorId shared = feed_forward(before, prefix + "shared.", e.shared_d_ff);
  if (e.has_own_norms) shared = norm(shared, "shared_norm_after", prefix + "shared_norm_after");
  if (e.shared_gate) {
    const TensorId gate = linear(before, prefix + "shared_gate", config_.d_model, 1, "shared_gate");
    shared = builder_.op(ops::kGateRows, {shared, gate}, {}, "shared");
  }
  return builder_.op(ops::kAdd, {y, shared}, {}, "y");
}

TensorId Writer::expert_linear(TensorId rows, TensorId offsets, const std::string& name,
                               const std::string& block) {
  const TensorId w = weight(name + ".weight");
  const core::Shape& of_weight = builder_.program().shape(w);
  const Attributes attrs = ops::grouped_matmul(config_.experts.count, builder_.program().shape(rows)[0],
                                               of_weight[1], of_weight[2], true);
  const TensorId y = builder_.op(ops::kGroupedMatmul, {rows, w, offsets}, attrs, block);
  if (!config_.experts.biases) return y;
  return builder_.op(ops::kGroupedBiasAdd, {y, weight(name + ".bias"), offsets}, {}, block);
}

}  // namespace rooflm::model
