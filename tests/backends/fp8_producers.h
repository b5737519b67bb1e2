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

/// A cast that makes what it casts, and what makes that alone.
struct CastPair {
  const program::OpDef *fused, *producer;
  std::int64_t rows, cols;
  std::vector<core::Shape> inputs;     ///< in bf16
  std::vector<core::Shape> weights{};  ///< in fp32, behind them
  std::vector<core::Shape> halves{},
      full{};  ///< outputs before what is cast, in bf16, and behind it, in fp32
};

/// The fused op, and its producer followed by fp8_cast: the same bits.
inline void expect_cast_is_that_of_stored(const CastPair& pair, backends::Backend& backend) {
  namespace ops = program::ops;
  using core::DType;
  using program::TensorId;
  CaseWriter w("stored");
  std::vector<TensorId> operands;
  for (const core::Shape& shape : pair.inputs) operands.push_back(w.copy(shape));
  for (const core::Shape& shape : pair.weights) operands.push_back(w.weight(shape));
  const std::int64_t rows = pair.rows;
  const std::int64_t cols = pair.cols;
  struct Outputs {
    std::vector<TensorId> copies, halves, full;
  };
  const auto make = [&] {
    Outputs out;
    out.copies = {w.copy({rows, cols}, DType::f8), w.copy({cols, rows}, DType::f8),
                  w.add("slot", {program::kFp8Slot}, program::Role::optimizer_state, true)};
    w.fix(out.copies[2], std::vector<double>(program::kFp8Slot, 0.0));
    for (const core::Shape& shape : pair.halves) out.halves.push_back(w.copy(shape));
    for (const core::Shape& shape : pair.full)
      out.full.push_back(w.add("statistics", shape, program::Role::activation, true));
    return out;
  };
  const auto joined = [](std::vector<TensorId> first, const std::vector<TensorId>& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  };
  const program::Attributes attrs{
      {"rows", rows}, {"cols", cols}, {"e5m2", false}, {"current", false}, {"eps", 1e-5}};
  const Outputs one = make();
  const Outputs two = make();
  const TensorId stored = w.copy({rows, cols});
  w.op_into(*pair.producer, operands, attrs, joined(joined(two.halves, {stored}), two.full));
  w.op_into(ops::kFp8Cast, {stored, two.copies[2]}, attrs, two.copies);
  operands.push_back(one.copies[2]);
  w.op_into(*pair.fused, operands, attrs, joined(joined(one.copies, one.halves), one.full));
  OpRunner runner(w.done(), backend);
  runner.run_all();
  const auto first = joined(joined(one.copies, one.halves), one.full);
  const auto second = joined(joined(two.copies, two.halves), two.full);
  for (std::size_t i = 0; i < first.size(); ++i)
    EXPECT_EQ(runner.read(first[i]), runner.read(second[i])) << pair.fused->name << " " << cols << ": " << i;
  EXPECT_GT(runner.read(one.copies[2]).at(program::kFp8Scale), 0.0);
}

/// Of rows that are shorter than a warp, than a block's registers, and as long as may be.
inline void expect_norm_casts_are_those_of_stored(std::int64_t cols, backends::Backend& backend) {
  namespace ops = program::ops;
  constexpr std::int64_t kRows = 48;
  const core::Shape x{kRows, cols}, w{cols}, of_rows{kRows};
  const CastPair rms{&ops::kRmsNormFp8, &ops::kRmsNorm, kRows, cols, {x}, {w}, {}, {of_rows}};
  const CastPair add_rms{&ops::kAddRmsNormFp8, &ops::kAddRmsNorm, kRows, cols, {x, x}, {w}, {x}, {of_rows}};
  const CastPair layer{&ops::kLayerNormFp8, &ops::kLayerNorm, kRows, cols, {x}, {w, w}, {},
                       {of_rows, of_rows}};
  const CastPair add_layer{&ops::kAddLayerNormFp8, &ops::kAddLayerNorm, kRows, cols, {x, x}, {w, w}, {x},
                           {of_rows, of_rows}};
  for (const CastPair& pair : {rms, add_rms, layer, add_layer}) expect_cast_is_that_of_stored(pair, backend);
}

inline void expect_casts_are_those_of_stored(backends::Backend& backend) {
  namespace ops = program::ops;
  constexpr std::int64_t kRows = 144;
  constexpr std::int64_t kWidth = 80;
  const core::Shape half{kRows, kWidth}, whole{kRows, 2 * kWidth};
  expect_cast_is_that_of_stored({&ops::kSwiGluFp8, &ops::kSwiGlu, kRows, kWidth, {whole}}, backend);
  expect_cast_is_that_of_stored(
      {&ops::kSwiGluBackwardFp8, &ops::kSwiGluBackward, kRows, 2 * kWidth, {half, whole}}, backend);
  for (const std::int64_t cols : {std::int64_t{80}, std::int64_t{1600}, program::kFp8NormCols})
    expect_norm_casts_are_those_of_stored(cols, backend);
}

}  // namespace rooflm::tests
