// Where the time of a traced step went: in each moment one kernel runs, several run, or the device is idle
// for a reason.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/named.h"
#include "report/model/activity_names.h"
#include "report/model/run_data.h"

namespace rooflm::report {

/// Why no kernel runs. `host`: it was not asked for in time; `dependency`: it was, and the device went from
/// one kernel to the next; `queued`: it was, and waited longer than kLeastStallNs: for an event of another
/// stream, of the host or another device, or for another process's time slice; `copy`: only copies and
/// memsets run; `sync`: the host waits, or has yet to learn that the device is done; `tracing`: the host is
/// kept up by the profiler, by ranges or stacks of its own; `stall`: the host did something else for much
/// longer than launches take (kStallFactor); `unknown`: the launch of the next kernel was not recorded.
enum class IdleCause : std::uint8_t { host, dependency, queued, copy, sync, tracing, stall, unknown };
inline constexpr std::size_t kIdleCauses = 8;
constexpr auto names_of(IdleCause) {
  return core::named<IdleCause>("cause of idle time", {{IdleCause::host, "host"},
                                                       {IdleCause::dependency, "dependency"},
                                                       {IdleCause::queued, "queued"},
                                                       {IdleCause::copy, "copy"},
                                                       {IdleCause::sync, "sync"},
                                                       {IdleCause::tracing, "tracing"},
                                                       {IdleCause::stall, "stall"},
                                                       {IdleCause::unknown, "unknown"}});
}
using core::name_of;

/// Before a launch the host is late by the median of all such gaps, more or less. What is so many times
/// longer than that, and longer than kLeastStallNs, is no launch; nor is what is longer than kMostLaunchNs.
inline constexpr std::int64_t kStallFactor = 20, kLeastStallNs = 100'000, kMostLaunchNs = 1'000'000;

/// The range that a traced step is, among activities.
inline constexpr std::string_view kStepRange = "step";
/// Kinds of samples whose steps were traced: as the engine runs them, and with nothing beside anything else.
inline constexpr std::string_view kTraced = "traced";
inline constexpr std::string_view kInOrder = "in_order";
/// Number of the one entry of a recording without steps: from the first to the last work of the device.
inline constexpr std::int64_t kWholeRecording = -1;

/// Of one kernel, in nanoseconds. A moment that n kernels share counts 1/n for each, so that exclusive and
/// shared of all kernels add up to the device's busy time.
struct KernelTime {
  std::int64_t duration_ns = 0;
  std::int64_t exclusive_ns = 0;  ///< no other kernel ran
  double shared_ns = 0;           ///< its part of the moments in which others ran, too
  /// Its part of the step: moments of computation are divided among what computes, and collectives have
  /// only those in which nothing computes. Over all kernels that adds up to the busy time, too.
  double charged_ns = 0;
  bool is_collective = false;
  std::optional<std::size_t> beside{};  ///< the activity that ran beside it for the longest
  /// Share of its duration in which another kernel ran.
  [[nodiscard]] double overlap() const;
};

/// A stretch in which no kernel ran, whole or a part of one for one cause.
struct Idle {
  std::int64_t step = 0;
  std::int64_t start_ns = 0, end_ns = 0;
  IdleCause cause = IdleCause::host;
  std::optional<std::size_t> next{};  ///< the activity (index) that ended it; nothing at the end of a step
  bool is_unexplained = false;        ///< after the last kernel, while the host did not wait
};

/// A stretch in which collectives ran and nothing computed.
struct Exposed {
  std::int64_t step = 0;
  std::int64_t start_ns = 0, end_ns = 0;
  std::size_t kernel = 0;  ///< the activity (index); of several the one that ends first
};

/// Kind of the sample of a step in which memory was traced, too. That slows it down: its kernels are on the
/// timeline and in no statistics.
inline constexpr std::string_view kAllocations = "allocations";
/// Of the first steps of a recorded program, which take longer: they enter no statistics.
inline constexpr std::string_view kWarmup = "warmup";
/// Of one that begins with the copies of its inputs: likewise, but for the view of inputs.
inline constexpr std::string_view kInputs = "inputs";

struct DeviceStep {
  std::int64_t step = 0;
  std::string kind{};                      ///< of its sample: "traced", "in_order"
  std::int64_t begin_ns = 0, end_ns = 0;   ///< as the host saw it
  std::int64_t first_ns = 0, last_ns = 0;  ///< start of the first and end of the last kernel or copy
  std::size_t kernels = 0;                 ///< that it launched
  double exclusive_s = 0;                  ///< one kernel ran, of whatever step
  double shared_s = 0;                     ///< at least two kernels ran
  double exposed_s = 0;                    ///< of both, what only collectives ran
  std::array<double, kIdleCauses> idle_s{};
  double idle_within_s = 0;         ///< of the idle time, what lies between first and last
  std::optional<double> wall_s{};   ///< sample "step"
  std::optional<double> event_s{};  ///< samples of the phases, which are the device's own events
  [[nodiscard]] double idle_total_s() const;
  /// Kernels other than collectives ran.
  [[nodiscard]] double compute_s() const { return exclusive_s + shared_s - exposed_s; }
  [[nodiscard]] double span_s() const { return static_cast<double>(end_ns - begin_ns) * 1e-9; }
};

struct DeviceTimes {
  /// In their order; only steps with a range "step". Without any step the whole recording is one.
  std::vector<DeviceStep> steps{};
  /// By index into RunData::activities, in their order.
  std::vector<std::pair<std::size_t, KernelTime>> kernels{};
  std::vector<Idle> idle{};
  std::vector<Exposed> exposed{};
  std::size_t outside = 0;  ///< kernels that leave the range of their step
  /// Whether no step is known, and the only one is the whole recording.
  [[nodiscard]] bool is_whole() const { return steps.size() == 1 && steps[0].step == kWholeRecording; }
  /// Steps of that kind.
  [[nodiscard]] std::size_t count(std::string_view kind) const;
  [[nodiscard]] const DeviceStep* find(std::int64_t step) const;
};

/// Of a run whose steps were traced, or that is a recording without steps; empty otherwise. Kernels and
/// collectives of all devices count together, unless one device is named.
DeviceTimes device_times(const RunData& run, std::string_view device = {});

}  // namespace rooflm::report
