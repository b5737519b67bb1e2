// Names of activity kinds.
#include "trace/device_activity.h"

namespace rooflm::trace {

const char* name_of(ActivityKind kind) {
  constexpr std::array kNames = {"kernel", "copy", "memset", "sync", "api", "overhead", "memory"};
  return kNames.at(static_cast<std::size_t>(kind));
}

}  // namespace rooflm::trace
