// Summarises the events of each op.
#pragma once

#include <span>
#include <vector>

#include "record/rows.h"

namespace rooflm::record {

/// Summaries of all ops that have events, by op; `events` are ordered by step. Statistics are over the steps
/// in which the op ran, of its time per step (its events within a step are summed). A median is the middle
/// value or the mean of the two middle ones; std is the sample standard deviation (n - 1), 0 for a single
/// step.
[[nodiscard]] std::vector<OpTime> summarise_ops(std::span<const Event> events);

}  // namespace rooflm::record
