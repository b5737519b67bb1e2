// What the events of an op amount to.
#pragma once

#include <span>
#include <vector>

#include "record/rows.h"

namespace rooflm::record {

/// Of events in the order of their steps. Per op that has events, by op: how many there are, and over the
/// steps in which it ran the statistics of its time per step (its events of one step are added up). Medians
/// are the middle value, or the mean of the two middle ones; std is of the sample (n - 1), 0 for a single
/// step.
[[nodiscard]] std::vector<OpTime> summarise_ops(std::span<const Event> events);

}  // namespace rooflm::record
