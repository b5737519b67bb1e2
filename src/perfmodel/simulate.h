// One rank's step in time: ops on lanes, with waits.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "program/program.h"

namespace rooflm::perfmodel {

/// Start and end of an op, in seconds from the start of the step.
struct Span {
  double start_s = 0, end_s = 0;
};

/// Why the compute lane had nothing to do: the causes of Timeline::exposed_s, host_s and waiting_s.
enum class IdleCause : std::uint8_t { exposed_communication, host, waiting };
std::string_view name_of(IdleCause cause);

/// A stretch without work for the compute lane, for one cause.
struct IdleSpan {
  double start_s = 0, end_s = 0;
  IdleCause cause = IdleCause::waiting;
};

/// Where the step's time goes: the five parts of the compute lane add up to step_s.
struct Timeline {
  std::vector<Span> spans{};     ///< by op; setup ops have none
  std::vector<IdleSpan> idle{};  ///< in their order, where SimulationOptions::keeps_idle asks for them
  double step_s = 0;
  double busy_s = 0;           ///< the device computes, by ops at their own speed
  double slowed_s = 0;         ///< more than that, because a collective ran beside
  double exposed_s = 0;        ///< nothing to compute, while a collective runs
  double host_s = 0;           ///< nothing to compute, because the host has not submitted it
  double waiting_s = 0;        ///< nothing to compute for another reason: copies
  double communication_s = 0;  ///< collectives run, exposed or not
};

/// Collectives over the network while a step is simulated: another link than those within a node, and another
/// stream. (No op of a program is on this lane.)
inline constexpr program::Lane kNetworkLane = program::Lane::host;

struct SimulationOptions {
  double launch_host_s = 0;  ///< host time to submit one launch
  double matmul_slowdown = 1;
  double other_slowdown = 1;
  bool keeps_idle = false;  ///< for pictures: plans need only the sums
};

/// Runs the program's lanes against each other (program::Lane says what may run beside what). An op of the
/// lane `background` gets the device only while `compute` has nothing to do there: both would want all
/// multiprocessors. Ops of the two are slower while the lane `communication` or kNetworkLane is busy.
/// `seconds`: of each op, alone.
Timeline simulate(const program::Program& program, std::span<const double> seconds,
                  const SimulationOptions& options);

}  // namespace rooflm::perfmodel
