// Sums and summaries over the samples and ops of a run, which views, document and advice share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/statistics.h"
#include "report/model/run_data.h"

namespace rooflm::report {

/// The phases of a step in their order, as records name them.
inline constexpr std::array<std::string_view, 3> kPhases = {"forward", "backward", "optimizer"};
inline constexpr const char* kStep = "step";
inline constexpr const char* kSetup = "setup";  ///< phase of ops that run once, before the first step
inline constexpr std::string_view kComputeLane = "compute";  ///< of ops that run one after the other
/// The host's time until everything is submitted: in samples, not part of the step's sum.
inline constexpr const char* kSubmit = "submit";
/// For steps submitted op by op: time until the device started. Part of the step's sum, but not of device
/// time.
inline constexpr const char* kDeviceWait = "wait";

/// Seconds of the samples of one kind ("plain": no observer) of a phase; nothing when there are none.
std::optional<core::Summary> phase_time(const RunData& run, std::string_view phase,
                                        std::string_view kind = "plain");
/// The median of phase_time.
std::optional<double> phase_median(const RunData& run, std::string_view phase,
                                   std::string_view kind = "plain");

/// The work of a group of ops in one step, and its time.
struct Work {
  std::int64_t ops = 0, launches = 0, instances = 0;
  std::int64_t matmul_flop = 0, elementwise_flop = 0, bytes = 0;
  double device_s = 0;           ///< sum of the ops' medians over the observed steps
  std::optional<double> wall_s;  ///< the same of their wall times; nothing unless every one was measured
  std::int64_t timed_ops = 0;    ///< ops with times: device_s and wall_s are of these
  /// Sum of the ops' wall times in steps in which each was submitted alone and waited for; nothing unless
  /// every op has one. GPUs alone are measured so.
  std::optional<double> alone_s{};
  std::optional<double> roof_s;  ///< sum of the ops' roofs; nothing unless every op has one
  std::string bound;             ///< the roof that takes the largest part of roof_s

  [[nodiscard]] double flop() const { return static_cast<double>(matmul_flop + elementwise_flop); }
  /// As TimedOp::shown_roof_s.
  [[nodiscard]] std::optional<double> shown_roof_s() const {
    return roof_s.value_or(0) != 0 ? roof_s : std::nullopt;
  }
  /// Whether somebody knows what it does: of a program that is not ours perhaps nobody does.
  [[nodiscard]] bool is_priced() const { return flop() > 0 || bytes > 0 || roof_s.has_value(); }
  /// FLOP per byte; nothing without bytes.
  [[nodiscard]] std::optional<double> intensity() const;
  /// device_s; nothing when no op was timed.
  [[nodiscard]] std::optional<double> measured_s() const;
  /// The wall time to show beside device_s: alone_s where it was measured, else wall_s, which is the host's
  /// to submit where a device runs ops later.
  [[nodiscard]] std::optional<double> shown_wall_s() const { return alone_s ? alone_s : wall_s; }
  /// wall_s - device_s: dispatch, allocation and waiting between kernels; nothing without wall times.
  [[nodiscard]] std::optional<double> outside_s() const;
  /// outside_s / launches, the launch gap; nothing without wall times or launches.
  [[nodiscard]] std::optional<double> gap_s() const;
  /// The same of shown_wall_s.
  [[nodiscard]] std::optional<double> shown_outside_s() const;
  [[nodiscard]] std::optional<double> shown_gap_s() const;
};

struct Group {
  std::string phase;
  std::string name;
  Work work;
  std::optional<double> time_share{};  ///< of the time in kernels of the step
};

/// Sums of the ops by phase and by `key`: phases in the order of the step, keys in the order in which they
/// first appear. Setup ops are not part of a step and are left out.
std::vector<Group> group_ops(const RunData& run, const std::function<std::string(const TimedOp&)>& key);
/// group_ops by block: "attention", "ln1" (docs/design.md, "Blocks"); layers added up.
std::vector<Group> blocks_of(const RunData& run);
/// group_ops by part: "attention/qk", "ln1".
std::vector<Group> parts_of(const RunData& run);
/// What the wall times of a GPU's ops are (Work::alone_s), in a sentence; "" where there are none.
std::string alone_note(const RunData& run);
/// All ops of a phase; `phase` "step" is all of them.
Work phase_work(const RunData& run, std::string_view phase);
/// The same of the ops that the phase's time and roof are of: what runs beside other phases, as updates do
/// beside the backward pass, is left out. Of kStep: all.
Work own_work(const RunData& run, std::string_view phase);

/// The roof of a phase or step: its own prediction, or the sum over its ops.
struct Roof {
  std::optional<double> roof_s;
  std::string bound;
};
Roof phase_roof(const RunData& run, std::string_view phase, const Work& work);

/// How many steps were observed.
std::size_t observed_steps(const RunData& run);
/// "Busy machine: other programs used 12.0 to 60.7 % of the processors, in 2 of 3 runs."; "" if
/// no run says so.
std::string load_sentence(const RecordSet& set);
/// Phases that have samples or ops, in the order of the step; others after them.
std::vector<std::string> phases_of(const RunData& run);

}  // namespace rooflm::report
