// What moves memory and starts work on a GPU, ready to be measured.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace rooflm::backends::cuda {

/// One thing that can be timed. Rates are amount / seconds; a latency has the amount 0.
struct TimedLoop {
  std::string what;     ///< "read", "write", "update", "copy", "adamw"; "instruction"; "launch", ...
  std::string level;    ///< "DRAM", "L2"; "host", or another GPU: "cuda:1"; "" for launches
  std::string problem;  ///< "1024 MiB"
  double amount = 0;    ///< bytes that one run moves, as the loop names them, or flop that it computes
  /// Seconds of one run, per launch for latencies, after it has ended; throws core::Unavailable.
  std::function<double()> run_s;
};

/// Loops over device memory and over the second-level cache of GPU `index`: read, write, update (x = 2 x +
/// 2), copy and the optimizer's own kernel, whose bytes are 30 per parameter. Device times. They share up to
/// 4 GiB. Throws core::Unavailable, core::OutOfMemory.
std::vector<TimedLoop> memory_loops(int index);

/// The instruction peak of GPU `index` for a dtype ("fp32", "tf32", "bf16", "fp16", "fp8"): multiply-adds on
/// registers alone, once per kind of instruction. One of them is the fastest; which one is a matter of
/// measuring.
struct InstructionLoops {
  std::vector<TimedLoop> loops;  ///< amount in flop, problem "wgmma m64n256k16"; each some milliseconds
  std::string missing{};         ///< why there are none here; "" when there are
};
/// Nothing where the fastest instructions of the architecture are not among those that this library can run:
/// a limit that products pass would be none. Throws core::Unavailable, core::OutOfMemory.
InstructionLoops instruction_loops(int index, const std::string& dtype);

/// Copies between host and device, pinned and pageable, and to and from other GPUs that this one reaches;
/// launch latencies: host to end of an empty kernel ("launch and wait"), each of many in a row ("launch"),
/// each node of a graph ("graph node"), and the host's time to submit a graph of 1000 nodes ("graph launch").
std::vector<TimedLoop> link_loops(int index);

/// Bytes of the second-level cache of GPU `index`; 0 when there is none such.
double l2_bytes(int index);

}  // namespace rooflm::backends::cuda
