// How long collectives waited for other ranks, and how long they transferred.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "report/model/run_data.h"
#include "report/model/traced_kernels.h"

namespace rooflm::report {

/// How it is known from when a collective transferred: from the clocks of several ranks, or because the same
/// collective was as short as that elsewhere in the record (an estimate: some rank is always the last).
enum class WaitSource : std::uint8_t { unknown, estimated, ranks };

/// Time of traced steps in which collectives run and nothing computes, in seconds of a step.
struct ExposedCollectives {
  WaitSource source = WaitSource::unknown;
  double waiting_s = 0, transfer_s = 0;  ///< add up to all of it where the source is known
  double all_s = 0;
};

/// Means of the traced steps of `times`: those of all devices of the run, or of one.
ExposedCollectives exposed_collectives(const RunData& run, const DeviceTimes& times);

/// Sets RunData::transfer_from_ns of all runs whose collectives several records of the set know.
void take_rank_waits(RecordSet& set);

}  // namespace rooflm::report
