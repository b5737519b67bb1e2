// Activities as a profiler tells of them, as rows of a stream.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "inject/stream_writer.h"
#include "trace/device_activity.h"

namespace rooflm::inject {

/// Keeps what each distinct launch of a kernel looks like as one text.
class ActivityRows {
 public:
  explicit ActivityRows(StreamWriter& writer) : writer_(writer) {}
  /// What occupancy depends on.
  void set_devices(std::vector<trace::DeviceLimits> devices) { devices_ = std::move(devices); }
  /// The profiler may count calls from one again: from here on their numbers are none that were there.
  void begin_anew() { begins_ = true; }
  /// Writes them, and counts what was lost.
  void add(const trace::DeviceTrace& trace);

 private:
  void place_correlations(const trace::DeviceTrace& trace);
  std::uint32_t launch_text(const trace::KernelLaunch& launch, std::int64_t device);

  StreamWriter& writer_;
  std::vector<trace::DeviceLimits> devices_;
  std::map<std::vector<std::int64_t>, std::uint32_t> launches_;
  std::vector<Row> rows_;
  bool begins_ = false;
  std::int64_t before_ = 0;  ///< added to the profiler's numbers of calls
  std::int64_t most_ = 0;    ///< of these numbers, as they are written
};

}  // namespace rooflm::inject
