// An update of weights in halves against one of whole numbers, on any backend.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "backends/backend.h"
#include "tests/backends/op_cases.h"
#include "tests/backends/op_runner.h"

namespace rooflm::tests {

/// Halves lose nothing, their upper ones are the copy, and a gradient that bf16 holds is the same in it.
inline void expect_compact_is_plain(const std::string& optimizer, backends::Backend& backend) {
  const CompactUpdate cases = compact_update(optimizer);
  OpRunner plain(cases.plain, backend);
  OpRunner compact(cases.compact, backend);
  plain.run_all();
  compact.run_all();
  const program::Op& update = cases.plain.program.ops.back();
  for (const program::TensorId id : update.outputs) {
    if (id == program::kNone) continue;
    const auto values = compact.read(id);
    const auto expected = plain.read(id);
    const bool is_rounded = cases.plain.program.tensor(id).dtype == core::DType::bf16;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double ulp = is_rounded ? 0x1p-7 * std::abs(expected[i]) : 0;  // ties are rounded otherwise
      ASSERT_NEAR(values[i], expected[i], ulp) << optimizer << ", output " << id << "[" << i << "]";
    }
  }
  EXPECT_EQ(compact.read(update.inputs[1]), plain.read(update.inputs[1])) << "norm";
}

}  // namespace rooflm::tests
