// Emits feed-forward layers, dense ones and experts.
#include <algorithm>
#include <utility>

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
  if (arch.activation == Activation::xielu)
    h = builder_.op(ops::kMap, {h, weight(prefix + "act.weight")}, {}, "act");
  return builder_.op(ops::kActivate, {h}, {{"gated", arch.gated}}, "act");
}

TensorId Writer::experts(TensorId x, const std::string& prefix) {
  const Experts& e = config_.experts;
  const auto scope = builder_.scope("feed_forward");
  const TensorId before = x;
  const std::int64_t tokens = builder_.program().shape(x).numel() / config_.d_model;
  Attributes routing{{"experts", e.count}, {"active", e.active}};
  const std::int64_t touched = std::min(e.count, tokens * e.active);
  if (positions_ > 0 && touched < e.count) routing.set("touched", touched);
  std::vector<TensorId> route;     // weights [B T, k], places [B T, k]
  TensorId rows = program::kNone;  // [E, R, C]
  {
    const auto part = builder_.scope("router");
    if (e.has_own_norms) x = norm(x, "experts_norm", prefix + "experts_norm");
    TensorId routed = x;
    std::vector<TensorId> scales;
    if (e.has_own_norms) scales = {weight(prefix + "router.scale"), weight(prefix + "router.expert_scale")};
    if (e.has_own_norms) routed = builder_.op(ops::kMap, {x, scales[0]}, {}, "routed");
    TensorId scores = linear(routed, prefix + "router", config_.d_model, e.count, "scores");
    if (e.has_own_norms) scores = builder_.op(ops::kMap, {scores, scales[1]}, {}, "scores");
    if (e.score_bias)
      scores = builder_.op(ops::kMap, {scores, weight(prefix + "router.score_bias")}, {}, "scores");
    route = builder_.ops(ops::kRoute, {scores}, routing, "route");
    rows = builder_.op(ops::kDispatch, {x, route[1]}, routing, "rows");
  }
  {
    const auto part = builder_.scope("fc1");
    rows = expert_linear(rows, prefix + "experts.fc1", "fc1");  // [E, R, 2F]
  }
  {
    const auto part = builder_.scope("act");
    rows = activated(rows, prefix);
  }
  TensorId y = program::kNone;
  {
    const auto part = builder_.scope("fc2");
    rows = expert_linear(rows, prefix + "experts.fc2", "fc2");
    y = builder_.op(ops::kCombine, {rows, route[0], route[1]}, routing, "y", {builder_.program().shape(x)});
  }
  if (e.has_own_norms) y = norm(y, "experts_norm_after", prefix + "experts_norm_after");
  if (e.shared_d_ff == 0) return y;
  const auto part = builder_.scope("shared");
  TensorId shared = feed_forward(before, prefix + "shared.", e.shared_d_ff);
  if (e.has_own_norms) shared = norm(shared, "shared_norm_after", prefix + "shared_norm_after");
  if (e.shared_gate)
    shared = builder_.op(ops::kMap, {shared, weight(prefix + "shared_gate.weight")}, {}, "shared");
  return builder_.op(ops::kAdd, {y, shared}, {}, "y");
}

TensorId Writer::expert_linear(TensorId rows, const std::string& name, const std::string& block) {
  const TensorId y = expert_matmul(rows, weight(name + ".weight"), block);
  return config_.experts.biases ? builder_.op(ops::kMap, {y, weight(name + ".bias")}, {}, block) : y;
}

TensorId Writer::expert_matmul(TensorId rows, TensorId w, const std::string& name) {
  const core::Shape& of_rows = builder_.program().shape(rows);
  const std::int64_t out = builder_.program().shape(w)[1];
  const Attributes attrs{{"batch", of_rows[0]}, {"m", of_rows[1]},  {"n", out},
                         {"k", of_rows[2]},     {"trans_a", false}, {"trans_b", true},
                         {"accumulate", false}, {"looped", false}};
  program::Op op = builder_.make(ops::kMatmul, {rows, w}, attrs);
  if (of_rows[0] < config_.experts.count) op.input_offset = {0, 0};
  return builder_.program().append(std::move(op), name).at(0);
}

}  // namespace rooflm::model
