// Inputs that hold one number per text of a batch.
#pragma once

#include <fmt/format.h>

#include "program/ops.h"

namespace rooflm::program::ops {

/// Refuses the op unless its input `input` is int32 [B] with B = `batch`.
inline void expect_per_text(const Program& p, const Op& op, std::size_t input, std::int64_t batch) {
  const Tensor& x = p.tensor(op.inputs.at(input));
  expect(x.dtype == core::DType::i32 && x.shape == core::Shape{batch}, op,
         [&] { return fmt::format("expected an int32 for each of {} texts, got {}", batch, x.shape.str()); });
}

}  // namespace rooflm::program::ops
