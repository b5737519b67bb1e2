// What moves memory and starts work on a GPU, ready to be measured.
#pragma once

#include <vector>

#include "backends/provider.h"

namespace rooflm::backends::cuda {

using backends::TimedLoop;

/// Loops over device memory and over the second-level cache of GPU `index`: read, write, update (x = 2 x +
/// 2), copy and the optimizer's own kernel, whose bytes are 30 per parameter. Device times. They share up to
/// 4 GiB. Throws core::Unavailable, core::OutOfMemory.
std::vector<TimedLoop> memory_loops(int index);

using backends::InstructionLoops;

/// As Provider::instruction_loops.
InstructionLoops instruction_loops(int index, const std::string& dtype);

/// Copies between host and device, pinned and pageable, and to and from other GPUs that this one reaches;
/// launch latencies: host to end of an empty kernel ("launch and wait"), each of many in a row ("launch"),
/// each node of a graph ("graph node"), and the host's time to submit a graph of 1000 nodes ("graph launch").
std::vector<TimedLoop> link_loops(int index);

/// Bytes of the second-level cache of GPU `index`; 0 when there is none such.
double l2_bytes(int index);

}  // namespace rooflm::backends::cuda
