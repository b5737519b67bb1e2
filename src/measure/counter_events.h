// Which hardware events there are: what counts floating-point operations and DRAM traffic is up to the
// processor.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "measure/counters.h"

namespace rooflm::measure {

/// Events that add up to "flop" on a processor of this vendor ("GenuineIntel", "AuthenticAMD") and family, as
/// /proc/cpuinfo names them; none for others.
CounterGroup flop_events(const std::string& vendor, int family);

/// Reads and writes of the memory controllers below `devices` (/sys/bus/event_source/devices), each a group
/// of its own: those that publish cas_count_read and cas_count_write, or data_read and data_write, with a
/// scale in MiB.
std::vector<CounterGroup> dram_events(const std::filesystem::path& devices);

}  // namespace rooflm::measure
