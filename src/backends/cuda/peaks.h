// Micro-benchmarks of a GPU's memory, links and launches.
#pragma once

#include <vector>

#include "backends/provider.h"

namespace rooflm::backends::cuda {

using backends::TimedLoop;

/// Loops over device memory and L2 of GPU `index`: read, write, update (x = 2 x + 2), copy, and the
/// optimizer's own kernel (30 bytes per parameter). Device times. They share up to 4 GiB. Throws
/// core::Unavailable, core::OutOfMemory.
std::vector<TimedLoop> memory_loops(int index);

using backends::InstructionLoops;

/// As Provider::instruction_loops.
InstructionLoops instruction_loops(int index, const std::string& dtype);

/// Copies between host and device, pinned and pageable, and to and from peer GPUs. Launch latencies: from the
/// host's launch to the end of an empty kernel ("launch and wait"), per launch in a long series ("launch"),
/// per node of a graph ("graph node"), and the host's time to submit a graph of 1000 nodes ("graph launch").
std::vector<TimedLoop> link_loops(int index);

/// Bytes of L2 of GPU `index`; 0 if it has none.
double l2_bytes(int index);

}  // namespace rooflm::backends::cuda
