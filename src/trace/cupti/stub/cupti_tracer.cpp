// Stub for builds without CUPTI's headers.
#include "core/error.h"
#include "trace/activity_tracer.h"

namespace rooflm::trace {

std::unique_ptr<ActivityTracer> open_cupti(const TracerMemory& /*memory*/) {
  throw core::Unavailable("CUPTI: built without its headers (cupti.h of the CUDA toolkit)");
}

}  // namespace rooflm::trace
