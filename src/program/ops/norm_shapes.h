// Shape checks shared by LayerNorm and RMSNorm. For the files of this folder only.
#pragma once

#include <fmt/format.h>

#include "program/ops.h"

namespace rooflm::program::ops {

/// Shape of the statistics (mean, rstd): one number per row of x [..., C].
inline core::Shape rows_of(const core::Shape& x) { return {x.numel() / x[-1]}; }

/// Refuses a weight that is not [C].
inline void expect_weight(const Program& p, const Op& op, TensorId weight, const core::Shape& x) {
  expect(p.shape(weight) == core::Shape{x[-1]}, op,
         [&] { return fmt::format("weight {} does not match x {}", p.shape(weight).str(), x.str()); });
}

}  // namespace rooflm::program::ops
