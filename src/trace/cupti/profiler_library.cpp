// CUPTI's profiler functions, found when the program runs.
#include "trace/cupti/profiler_library.h"

#include <cupti_result.h>
#include <cupti_version.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <string>

#include "core/error.h"

namespace rooflm::trace {
namespace {

constexpr int kMajorUnit = 10000;

template <class Function>
void find(void* library, const char* name, Function& function) {
  void* address = dlsym(library, name);
  if (address == nullptr) throw core::Unavailable(fmt::format("CUPTI has no {}: it is too old", name));
  function = reinterpret_cast<Function>(address);
}

/// Where toolkits put it beside where the loader looks.
void* open_library() {
  const std::string name = fmt::format("libcupti.so.{}", CUPTI_API_VERSION / kMajorUnit);
  const std::array places = {name, "/usr/local/cuda/extras/CUPTI/lib64/" + name,
                             "/usr/local/cuda/lib64/" + name};
  std::string reason;
  for (const std::string& place : places) {
    if (void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) return library;
    if (reason.empty()) reason = dlerror();
  }
  throw core::Unavailable(fmt::format("CUPTI is not here: {}", reason));
}

/// What the user can do about an error; "" when nothing is known.
std::string_view advice(CUptiResult result) {
  switch (result) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
      return "; counters are for administrators only (ERR_NVGPUCTRPERM): run as root or with CAP_SYS_ADMIN, "
             "or "
             "load the driver with NVreg_RestrictProfilingToAdminUsers=0";
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      return "; the GPU is virtual: whoever runs the hypervisor must allow counters";
    case CUPTI_ERROR_HARDWARE_BUSY:
    case CUPTI_ERROR_NOT_COMPATIBLE:
    case CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED:
      return "; something else has the counters (ncu, DCGM): only one profiler can";
    default:
      return "";
  }
}

}  // namespace

ProfilerLibrary ProfilerLibrary::load() {
  void* library = open_library();
  ProfilerLibrary found;
  find(library, "cuptiGetResultString", found.result_string);
  find(library, "cuptiProfilerInitialize", found.initialize);
  find(library, "cuptiProfilerDeviceSupported", found.device_supported);
  find(library, "cuptiProfilerGetCounterAvailability", found.counter_availability);
  find(library, "cuptiDeviceGetChipName", found.chip_name);
  find(library, "cuptiProfilerHostInitialize", found.host_initialize);
  find(library, "cuptiProfilerHostDeinitialize", found.host_deinitialize);
  find(library, "cuptiProfilerHostConfigAddMetrics", found.add_metrics);
  find(library, "cuptiProfilerHostGetMetricProperties", found.metric_properties);
  find(library, "cuptiProfilerHostGetConfigImageSize", found.config_size);
  find(library, "cuptiProfilerHostGetConfigImage", found.config_image);
  find(library, "cuptiProfilerHostGetNumOfPasses", found.passes);
  find(library, "cuptiProfilerHostEvaluateToGpuValues", found.evaluate);
  find(library, "cuptiRangeProfilerEnable", found.enable);
  find(library, "cuptiRangeProfilerDisable", found.disable);
  find(library, "cuptiRangeProfilerGetCounterDataSize", found.counter_data_size);
  find(library, "cuptiRangeProfilerCounterDataImageInitialize", found.counter_data_initialize);
  find(library, "cuptiRangeProfilerSetConfig", found.set_config);
  find(library, "cuptiRangeProfilerStart", found.start);
  find(library, "cuptiRangeProfilerStop", found.stop);
  find(library, "cuptiRangeProfilerPushRange", found.push_range);
  find(library, "cuptiRangeProfilerPopRange", found.pop_range);
  find(library, "cuptiRangeProfilerDecodeData", found.decode);
  find(library, "cuptiRangeProfilerGetCounterDataInfo", found.counter_data_info);
  find(library, "cuptiRangeProfilerCounterDataGetRangeInfo", found.range_info);
  return found;
}

void ProfilerLibrary::check(CUptiResult result, std::string_view what) const {
  if (result == CUPTI_SUCCESS) return;
  const char* words = nullptr;
  if (result_string(result, &words) != CUPTI_SUCCESS || words == nullptr) words = "unknown error";
  throw core::Unavailable(
      fmt::format("CUPTI: {}: {} ({}){}", what, words, static_cast<int>(result), advice(result)));
}

CurrentContext CurrentContext::find() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (driver == nullptr) throw core::Unavailable("no NVIDIA driver: libcuda.so.1 is not on this machine");
  decltype(&cuCtxGetCurrent) current = nullptr;
  decltype(&cuCtxGetDevice) device_of_context = nullptr;
  trace::find(driver, "cuCtxGetCurrent", current);
  trace::find(driver, "cuCtxGetDevice", device_of_context);
  CurrentContext found;
  if (current(&found.context) != CUDA_SUCCESS || found.context == nullptr ||
      device_of_context(&found.device) != CUDA_SUCCESS) {
    throw core::Unavailable("no GPU is in use in this thread");
  }
  return found;
}

}  // namespace rooflm::trace
