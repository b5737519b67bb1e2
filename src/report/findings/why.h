// Why ops take longer than they need: the time of each by cause.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/model/launch_shape.h"
#include "report/model/run_data.h"

namespace rooflm::report {

/// What the time of an op is spent on. The first three are what it needs at least: its matrix flop at the
/// fastest rate of matmuls, its bytes at the bandwidth of memory; of these the largest counts, and the
/// others are hidden behind it. The rest is lost.
enum class Cause : std::uint8_t {
  tensor,   ///< the tensor pipe (matrix flop)
  dram,     ///< bandwidth of device memory
  l2,       ///< bandwidth of the second-level cache
  launch,   ///< between kernels: observed time of the op less that of its kernels
  tail,     ///< the last wave of blocks does not fill the device
  clock,    ///< of work on the multiprocessors: the clock was below its highest
  latency,  ///< everything else: waiting for memory, barriers and instructions with too few warps to hide it
  communication,  ///< of collectives and messages, what is no launch: transfer, and waiting for other ranks
};
inline constexpr std::size_t kCauses = 8;
/// "arithmetic" (tensor pipe of a GPU, vector or tile units of a processor), "DRAM bandwidth", "L2
/// bandwidth", "launch", "tail", "clock", "latency", "communication".
std::string_view title_of(Cause cause);
/// The remedy.
std::string_view mend_of(Cause cause);

/// Share of a kernel's time in which its last wave of blocks leaves multiprocessors empty: 1 - waves /
/// ceil(waves); 0 where its waves are not known.
double tail_share(const LaunchShape& launch);

/// The time of an op, or of several, by cause.
struct Why {
  std::string phase{}, name{};
  /// Of observed steps, never of counted ones. What runs beside something else counts by its part of the step
  /// (KernelTime::charged_ns), where kernels were traced.
  double time_s = 0;
  std::array<double, kCauses> cause_s{};  ///< add up to time_s
  bool has_launch = false, has_tail = false,
       has_clock = false;                      ///< these were measured; otherwise in latency
  bool is_counted = false;                     ///< what it needs is by hardware counters, otherwise by shapes
  std::optional<double> occupancy{}, waves{};  ///< of the kernel that took longest
  std::string stall{};                         ///< "long scoreboard 62 %": of warps' time
  [[nodiscard]] double of(Cause cause) const { return cause_s.at(static_cast<std::size_t>(cause)); }
  /// What it needs at least.
  [[nodiscard]] double needed_s() const { return of(Cause::tensor) + of(Cause::dram) + of(Cause::l2); }
  /// The cause with most of the time.
  [[nodiscard]] Cause bound() const;
};

/// By phase and part, in their order, parts that cost nothing left out; empty where ops have no times, or
/// nothing says what they need.
std::vector<Why> why_of(const RunData& run);

}  // namespace rooflm::report
