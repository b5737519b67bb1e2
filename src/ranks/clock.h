// The clocks of ranks against each other.
#pragma once

#include <cstdint>

#include "ranks/transport.h"

namespace rooflm::ranks {

/// What to add to this rank's monotonic clock (CLOCK_MONOTONIC, std::chrono::steady_clock) for that of the
/// first.
struct ClockOffset {
  std::int64_t ns = 0;
  std::int64_t uncertainty_ns = 0;  ///< half of the fastest round trip
};

/// By messages there and back, of which the fastest counts (Cristian, "Probabilistic clock synchronization",
/// 1989). All ranks call it.
ClockOffset measure_clock_offset(Transport& transport);
/// The same; exactly 0 where all ranks are on one host, whose processes have one clock.
ClockOffset clock_offset(Transport& transport);

}  // namespace rooflm::ranks
