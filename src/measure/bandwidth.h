// How fast memory can be read and written, for each cache level and for DRAM.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "measure/machine.h"
#include "measure/peaks.h"

namespace rooflm::measure {

/// A place that data comes from, and how much memory to walk through so that it comes from there.
struct MemoryLevel {
  std::string name;               ///< "L1", "L2", "L3", "DRAM"
  std::size_t working_bytes = 0;  ///< of all threads together
};

/// Taken for the last level of caches where the system tells none.
inline constexpr std::size_t kUnknownCache = std::size_t{64} << 20U;

/// The data caches as the processor tells them, each walked through by half (private caches once per thread,
/// shared ones once per group of processors that share them), and DRAM with twelve times the last level, so
/// that each of the three arrays of a triad is four times as large; beyond 1 GiB only four times, and less
/// where `free_bytes` / 2 does not allow it.
std::vector<MemoryLevel> memory_levels(const Processor& processor, int threads, double free_bytes);

/// How many rows measure_bandwidth answers.
inline constexpr std::size_t kBandwidthLoops = 7;

/// Memory traffic of `threads` threads, each in its own part of level.working_bytes: read (sum), write
/// (fill), update (a = 2 a + 2), copy (b = a), triad (a = b + 2 c) and adamw (four arrays read, three of them
/// written, as that optimizer moves them) of fp64, and saxpy (a = a + 2 b) of fp32. Bytes are those that the
/// loop names, as STREAM counts them (McCalpin, 1995): a cache line that is fetched only because it is
/// written is not counted. A sample moves about 128 MiB a thread: some passes, or the next part of one.
/// std::bad_alloc when the memory is not there; std::invalid_argument for less than
/// 16 kB per thread.
std::vector<Peak> measure_bandwidth(const MemoryLevel& level, int threads, const SamplingOptions& options);

}  // namespace rooflm::measure
