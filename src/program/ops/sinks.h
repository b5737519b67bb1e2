// Sinks: a score of each head that attends to nothing, the optional last input of ops on scores.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "program/gradient.h"
#include "program/ops.h"
#include "program/scores.h"

namespace rooflm::program::ops {

/// Refuses the op unless its sinks, if it has any, are [H].
inline void expect_sinks(const Program& p, const Op& op, std::int64_t heads) {
  const TensorId sinks = sinks_of(op);
  expect(sinks == kNone || p.shape(sinks) == core::Shape{heads}, op, [&] {
    return fmt::format("expected a sink for each of {} heads, got {}", heads, p.shape(sinks).str());
  });
}

/// Emits a backward op with the outputs `gradient` and the gradient of the sinks, input `sinks` of the
/// forward op.
inline void emit_with_sinks(GradientContext& g, std::size_t sinks, const OpDef& backward,
                            std::vector<TensorId> inputs, TensorId gradient) {
  const auto d_sinks = g.weight_target(sinks);
  Attributes attrs = g.op().attrs;
  attrs.set("accumulate", d_sinks.accumulate);
  g.emit_into(backward, std::move(inputs), std::move(attrs), {gradient, d_sinks.id});
}

/// The second output of such an op.
inline void add_gradient_of_sinks(const Program& p, const Op& op, std::vector<Tensor>& outputs) {
  const TensorId sinks = sinks_of(op);
  if (sinks == kNone) return;
  outputs.push_back({.shape = p.shape(sinks), .role = Role::gradient, .full_precision = true});
}

}  // namespace rooflm::program::ops
