// The timeline of a run: events on their lanes, and series such as memory in use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/model/launch_shape.h"
#include "report/model/run_data.h"

namespace rooflm::report {

/// What an event is called. Kinds are those of record::ActivityName, and of ranges that the report makes
/// itself from the ops: "step", "phase", "layer", "block".
struct TimelineName {
  std::string kind{}, text{};
  std::string short_text{};  ///< of kernels: as short_kernel_names
};

/// Where events happen: kind "range" (steps, phases and blocks), "idle", "device", "link", "host", or of
/// several ranks "exposed": communication beside which the rank did nothing else.
struct TimelineLane {
  std::string name{}, kind{}, device{};
  std::optional<int> rank{};  ///< where several are on one timeline
};

/// Times are nanoseconds since Timeline::origin_ns; lane, name and class are places in the lists of the
/// timeline.
struct TimelineEvent {
  std::int64_t start_ns = 0, end_ns = 0;
  std::size_t lane = 0, name = 0, event_class = 0;
  std::optional<std::size_t> step{};    ///< of Timeline::steps
  std::optional<std::int64_t> op{};     ///< of the program
  std::optional<std::size_t> launch{};  ///< of Timeline::launches
  std::optional<std::size_t> cause{};   ///< the event of the host that started it
  std::int64_t bytes = 0;               ///< moved, by copies and collectives
};

/// From the start of its first event to the end of its last.
struct TimelineStep {
  std::int64_t step = 0;  ///< of record::Sample
  std::string kind{};     ///< of record::Sample: "observed", "traced"
  std::int64_t start_ns = 0, end_ns = 0;
};

/// Something measured over time: it keeps each value until the next.
struct TimelineSeries {
  std::string name{};    ///< "memory", "power_w", ...
  std::string device{};  ///< "" is that of the run
  std::string unit{};
  std::vector<std::int64_t> time_ns{};
  std::vector<double> value{};
};

struct Timeline {
  std::string source{};              ///< "activities", or "ops" where the record has none; "" without events
  std::vector<std::string> notes{};  ///< what a reader must know, in sentences
  std::int64_t origin_ns = 0;        ///< of the record's clock
  std::vector<TimelineStep> steps{};
  std::size_t shown = 0;              ///< the step whose time is nearest to the median of all steps
  std::vector<TimelineLane> lanes{};  ///< ranges first, then devices, links, hosts
  std::vector<TimelineName> names{};
  std::vector<std::string> classes{};
  std::vector<LaunchShape> launches{};  ///< each once
  std::vector<TimelineEvent> events{};  ///< by start, what lasts longer first
  std::vector<TimelineSeries> series{};
};

/// The timeline of a run: of its activities, else of the events of its ops. The step nearest to the median is
/// whole; the fastest, the slowest and others follow while there are at most `most_events` events in all. Of
/// a program without steps the first activities are kept. What has impossible times is left out. Empty where
/// nothing was timed.
Timeline timeline_of(const RunData& run, std::size_t most_events);

/// The class that colours an event: that of its kernel or op, "copy" for memory that is moved or set, the
/// direction of a pass, "idle: " and the cause of idle time, else the kind itself ("api", "sync", "range");
/// "unknown" where nobody knows.
std::string class_of_event(const TimelineName& name, const record::Op* op);

/// Whether that kind of event keeps a device busy.
bool is_work(std::string_view kind);

}  // namespace rooflm::report
