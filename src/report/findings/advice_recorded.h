// Advice for recorded foreign programs, and for idle time of the device in any traced run. Private to the
// room.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/findings/advice.h"
#include "report/model/device_times.h"
#include "report/model/run_data.h"
#include "report/model/summaries.h"

namespace rooflm::report {

/// Mean wall time of the traced steps, in seconds; nothing where no step was traced.
[[nodiscard]] std::optional<double> traced_step_s(const DeviceTimes& times);

/// The step time that shares in advice refer to: the median of steps that were timed alone, else
/// traced_step_s.
[[nodiscard]] std::optional<double> advised_step_s(const RunData& run, const DeviceTimes& times);

/// A sentence for each cause of idle time that the user can remove (host, stall, sync, copy), and for
/// collectives that nothing hides: means of the traced steps. Tracing slows the host. If steps of a recorded
/// program were also timed alone, the waiting for the host is reduced by the difference; otherwise the
/// sentences mention the slowdown. What is idle is no more than the step less what the device does in it.
[[nodiscard]] std::vector<Advice> advise_idle(const RunData& run, double step_s);

/// What to try for a part of a recorded program, in PyTorch's terms.
[[nodiscard]] std::string recorded_remedy(const RunData& run, const Group& part);

}  // namespace rooflm::report
