// LayerNorm in 16-bit formats: its error, and where it overflows.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "record/rows.h"

namespace rooflm::lab {

/// LayerNorm of one row, y = (x - mean) / sqrt(var + eps), with every result of an operation rounded.
struct NormError {
  std::optional<double> rms{};  ///< of y against fp64, over the outputs that are finite, if any is
  std::int64_t outputs = 0;
  std::int64_t not_finite = 0;  ///< of rows whose sums overflowed
};

/// Of `rows` rows of `width` normal numbers with that deviation, which are rounded to the format first.
/// `in_format`: sums and squares are rounded to the format, too; otherwise they are fp32 and y alone is
/// rounded, as programs of rooflm do. `Half` is core::F16 or core::Bf16. The same numbers each time.
template <class Half>
NormError norm_error(std::int64_t rows, std::int64_t width, double deviation, bool in_format);

/// fp16 against bf16, deviations 1, 16 and 256, width 768: series "norms".
std::vector<record::Cell> norm_cells();

}  // namespace rooflm::lab
