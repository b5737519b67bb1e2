// What a device tells of its activities.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "inject/stream_writer.h"

namespace rooflm::inject {

/// A profiler of devices, which writes rows by itself. Nothing throws.
class DeviceSource {
 public:
  DeviceSource() = default;
  DeviceSource(const DeviceSource&) = delete;
  DeviceSource& operator=(const DeviceSource&) = delete;
  virtual ~DeviceSource() = default;
  /// From now on activities are kept, and no longer. False and `why` where it is not possible.
  virtual bool start(std::string& why) = 0;
  virtual void stop() = 0;
  /// As `stop`, and the profiler leaves the process until the next `start`: as long as it is there, calls of
  /// the driver take longer. Waits for the device, so that nothing that it was given is lost. For threads of
  /// the program that are in no call of CUDA.
  virtual void leave() = 0;
  /// Of the next start: what is kept, "kernels,copies,waits,overhead,memory,calls,driver" or fewer of them:
  /// "launches" are fewer calls, "driver" has those of the driver, too.
  virtual void choose(const std::string& what) = 0;
  /// Writes what is complete; with `all` also what is not.
  virtual void collect(bool all) = 0;
};

/// CUPTI, which comes to the process when it is started; nothing, and `why`, where it is not here or is of
/// another version.
/// `calls`: "all" calls that start work, wait or take memory, only "launches", or "none".
std::unique_ptr<DeviceSource> open_device_source(StreamWriter& writer, const std::string& calls,
                                                 std::string& why);

}  // namespace rooflm::inject
