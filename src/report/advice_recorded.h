// What to change in a program of others that was recorded, and what keeps the device of any traced run
// waiting. Private to the room.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/advice.h"
#include "report/device_times.h"
#include "report/run_data.h"
#include "report/summaries.h"

namespace rooflm::report {

/// Mean wall time of the traced steps, in seconds; nothing where no step was traced.
[[nodiscard]] std::optional<double> traced_step_s(const DeviceTimes& times);

/// The step that advice takes shares of: the median of steps that were timed alone, else that of
/// traced_step_s.
[[nodiscard]] std::optional<double> advised_step_s(const RunData& run, const DeviceTimes& times);

/// A sentence for each cause of idle time that can be mended from outside (host, sync, copy): means of the
/// traced steps. Tracing makes hosts slower: where steps of a recorded program were timed alone, too, the
/// device waits as much less for the host as they are shorter; elsewhere the sentences say it.
[[nodiscard]] std::vector<Advice> advise_idle(const RunData& run, const DeviceTimes& times);

/// What to try for a part of a recorded program, in the words of PyTorch.
[[nodiscard]] std::string recorded_remedy(const RunData& run, const Group& part);

}  // namespace rooflm::report
