// CUPTI's profiler functions, found when the program runs.
#include "trace/cupti/profiler_library.h"

#include <cupti_result.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include "core/error.h"
#include "trace/cupti/cupti_library.h"

namespace rooflm::trace {
namespace {

template <class Function>
void look_up(void* library, const char* name, Function& function) {
  void* address = dlsym(library, name);
  if (address == nullptr) throw core::Unavailable(fmt::format("CUPTI has no {}: it is too old", name));
  function = reinterpret_cast<Function>(address);
}

}  // namespace

ProfilerLibrary ProfilerLibrary::load() {
  void* library = open_cupti_library();
  ProfilerLibrary found;
  look_up(library, "cuptiGetResultString", found.result_string);
  look_up(library, "cuptiProfilerInitialize", found.initialize);
  look_up(library, "cuptiProfilerDeviceSupported", found.device_supported);
  look_up(library, "cuptiProfilerGetCounterAvailability", found.counter_availability);
  look_up(library, "cuptiDeviceGetChipName", found.chip_name);
  look_up(library, "cuptiProfilerHostInitialize", found.host_initialize);
  look_up(library, "cuptiProfilerHostDeinitialize", found.host_deinitialize);
  look_up(library, "cuptiProfilerHostConfigAddMetrics", found.add_metrics);
  look_up(library, "cuptiProfilerHostGetMetricProperties", found.metric_properties);
  look_up(library, "cuptiProfilerHostGetConfigImageSize", found.config_size);
  look_up(library, "cuptiProfilerHostGetConfigImage", found.config_image);
  look_up(library, "cuptiProfilerHostGetNumOfPasses", found.passes);
  look_up(library, "cuptiProfilerHostEvaluateToGpuValues", found.evaluate);
  look_up(library, "cuptiRangeProfilerEnable", found.enable);
  look_up(library, "cuptiRangeProfilerDisable", found.disable);
  look_up(library, "cuptiRangeProfilerGetCounterDataSize", found.counter_data_size);
  look_up(library, "cuptiRangeProfilerCounterDataImageInitialize", found.counter_data_initialize);
  look_up(library, "cuptiRangeProfilerSetConfig", found.set_config);
  look_up(library, "cuptiRangeProfilerStart", found.start);
  look_up(library, "cuptiRangeProfilerStop", found.stop);
  look_up(library, "cuptiRangeProfilerPushRange", found.push_range);
  look_up(library, "cuptiRangeProfilerPopRange", found.pop_range);
  look_up(library, "cuptiRangeProfilerDecodeData", found.decode);
  look_up(library, "cuptiRangeProfilerGetCounterDataInfo", found.counter_data_info);
  look_up(library, "cuptiRangeProfilerCounterDataGetRangeInfo", found.range_info);
  return found;
}

void ProfilerLibrary::check(CUptiResult result, std::string_view what) const {
  if (result == CUPTI_SUCCESS) return;
  const char* words = nullptr;
  if (result_string(result, &words) != CUPTI_SUCCESS || words == nullptr) words = "unknown error";
  throw core::Unavailable(
      fmt::format("CUPTI: {}: {} ({}){}", what, words, static_cast<int>(result), cupti_advice(result)));
}

CurrentContext CurrentContext::find() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (driver == nullptr) throw core::Unavailable("no NVIDIA driver: libcuda.so.1 is not on this machine");
  decltype(&cuCtxGetCurrent) current = nullptr;
  decltype(&cuCtxGetDevice) device_of_context = nullptr;
  look_up(driver, "cuCtxGetCurrent", current);
  look_up(driver, "cuCtxGetDevice", device_of_context);
  CurrentContext found;
  if (current(&found.context) != CUDA_SUCCESS || found.context == nullptr ||
      device_of_context(&found.device) != CUDA_SUCCESS) {
    throw core::Unavailable("no GPU is in use in this thread");
  }
  return found;
}

}  // namespace rooflm::trace
