// Casts that make what they cast against casts of what another op stored, on any backend.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "backends/backend.h"
#include "program/fp8.h"
#include "program/ops.h"
#include "tests/backends/op_case_writer.h"
#include "tests/backends/op_runner.h"

namespace rooflm::tests {

/// `fused` of bf16 inputs, and `producer` of the same followed by fp8_cast: the same bits.
inline void expect_cast_is_that_of_stored(const program::OpDef& fused, const program::OpDef& producer,
                                          const std::vector<core::Shape>& inputs, std::int64_t rows,
                                          std::int64_t cols, backends::Backend& backend) {
  namespace ops = program::ops;
  using core::DType;
  using program::TensorId;
  CaseWriter w("stored");
  std::vector<TensorId> operands;
  for (const core::Shape& shape : inputs) operands.push_back(w.copy(shape));
  struct Copies {
    TensorId as_stored, transposed, slot;
  };
  const auto make = [&] {
    const Copies copies{w.copy({rows, cols}, DType::f8), w.copy({cols, rows}, DType::f8),
                        w.add("slot", {program::kFp8Slot}, program::Role::optimizer_state, true)};
    w.fix(copies.slot, std::vector<double>(program::kFp8Slot, 0.0));
    return copies;
  };
  const program::Attributes attrs{{"rows", rows}, {"cols", cols}, {"e5m2", false}, {"current", false}};
  const Copies one = make();
  const Copies two = make();
  const TensorId stored = w.copy({rows, cols});
  w.op_into(producer, operands, {}, {stored});
  w.op_into(ops::kFp8Cast, {stored, two.slot}, attrs, {two.as_stored, two.transposed, two.slot});
  operands.push_back(one.slot);
  w.op_into(fused, operands, attrs, {one.as_stored, one.transposed, one.slot});
  OpRunner runner(w.done(), backend);
  runner.run_all();
  EXPECT_EQ(runner.read(one.as_stored), runner.read(two.as_stored));
  EXPECT_EQ(runner.read(one.transposed), runner.read(two.transposed));
  EXPECT_EQ(runner.read(one.slot), runner.read(two.slot));
  EXPECT_GT(runner.read(one.slot).at(program::kFp8Scale), 0.0);
}

inline void expect_casts_are_those_of_stored(backends::Backend& backend) {
  namespace ops = program::ops;
  constexpr std::int64_t kRows = 144;
  constexpr std::int64_t kWidth = 80;
  expect_cast_is_that_of_stored(ops::kSwiGluFp8, ops::kSwiGlu, {{kRows, 2 * kWidth}}, kRows, kWidth, backend);
  expect_cast_is_that_of_stored(ops::kSwiGluBackwardFp8, ops::kSwiGluBackward,
                                {{kRows, kWidth}, {kRows, 2 * kWidth}}, kRows, 2 * kWidth, backend);
}

}  // namespace rooflm::tests
