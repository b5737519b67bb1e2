// An update of weights in halves against one of whole numbers, on any backend.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "backends/backend.h"
#include "tests/backends/op_cases.h"
#include "tests/backends/op_runner.h"

namespace rooflm::tests {

/// Halves lose nothing (in fp16: no more than 2^-40), their upper ones are the copy, and a gradient that 16
/// bits hold is the same in them.
inline void expect_compact_is_plain(const std::string& optimizer, core::DType dtype,
                                    backends::Backend& backend) {
  const CompactUpdate cases = compact_update(optimizer, dtype);
  OpRunner plain(cases.plain, backend);
  OpRunner compact(cases.compact, backend);
  plain.run_all();
  compact.run_all();
  const program::Op& update = cases.plain.program.ops.back();
  for (const program::TensorId id : update.outputs) {
    if (id == program::kNone) continue;
    const auto values = compact.read(id);
    const auto expected = plain.read(id);
    const bool is_bf16 = cases.plain.program.tensor(id).dtype == core::DType::bf16;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      double error = is_bf16 ? 0x1p-7 * std::abs(expected[i]) : 0;  // ties are rounded otherwise
      if (cases.compact.program.tensor(id).halves == core::DType::f16) error = 0x1p-40;
      ASSERT_NEAR(values[i], expected[i], error) << optimizer << ", output " << id << "[" << i << "]";
    }
  }
  EXPECT_EQ(compact.read(update.inputs[1]), plain.read(update.inputs[1])) << "norm";
}

}  // namespace rooflm::tests
