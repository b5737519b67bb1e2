// The operations of a block as a formula in the letters of docs/design.md, held against their number.
#pragma once

#include <cstdint>
#include <string>

#include "report/model/run_data.h"
#include "report/model/summaries.h"

namespace rooflm::report {

/// "12 x 2 B T C 3C + 12 x 3 B T C" for the part ("attention/qkv") of layers and phase that `group` is:
/// layers x, matmuls, then elementwise operations. Which letters a block's work goes by is known; how
/// often is counted (of all layers together where they differ), and the formula is given only where it makes
/// exactly the operations of the group. "" otherwise, and for blocks and configurations that are not
/// rooflm's.
std::string flop_formula(const RunData& run, const Group& group, bool is_layered);
/// "12 x B T 3C" for the activations that the group writes, where that makes exactly their `elements`.
std::string element_formula(const RunData& run, const Group& group, std::int64_t elements, bool is_layered);

}  // namespace rooflm::report
