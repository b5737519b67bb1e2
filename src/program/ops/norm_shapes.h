// Shape checks shared by LayerNorm and RMSNorm. For the files of this folder only.
#pragma once

#include <fmt/format.h>

#include <vector>

#include "program/gradient.h"
#include "program/ops.h"

namespace rooflm::program::ops {

/// Shape of the statistics (mean, rstd): one number per row of x [..., C].
inline core::Shape rows_of(const core::Shape& x) { return {x.numel() / x[-1]}; }

/// Refuses a weight or bias that is not [C]. Both may be absent.
inline void expect_weight(const Program& p, const Op& op, TensorId weight, const core::Shape& x) {
  expect(weight == kNone || p.shape(weight) == core::Shape{x[-1]}, op,
         [&] { return fmt::format("weight {} does not match x {}", p.shape(weight).str(), x.str()); });
}

/// The gradients of weights, inputs 1 on, that are there; those of others are kNone.
struct NormTargets {
  std::vector<TensorId> ids;
  bool accumulate = false;
  NormTargets(GradientContext& g, std::size_t weights) : ids(weights, kNone) {
    for (std::size_t i = 0; i < weights; ++i) {
      if (g.input(i + 1) == kNone) continue;
      const auto target = g.weight_target(i + 1);
      ids[i] = target.id;
      accumulate = target.accumulate;
    }
  }
};

}  // namespace rooflm::program::ops
