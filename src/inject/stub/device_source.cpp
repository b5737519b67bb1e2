// Of a build that had no headers of CUPTI: ranges are recorded, and nothing of a device.
#include "inject/device_source.h"

namespace rooflm::inject {

std::unique_ptr<DeviceSource> open_device_source(StreamWriter& /*writer*/, const std::string& /*calls*/,
                                                 std::string& why) {
  why = "rooflm was built without the headers of CUPTI: only ranges were recorded";
  return nullptr;
}

}  // namespace rooflm::inject
