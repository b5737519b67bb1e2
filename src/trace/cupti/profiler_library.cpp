// CUPTI's profiler functions, found when the program runs.
#include "trace/cupti/profiler_library.h"

#include <cupti_result.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include "core/error.h"
#include "trace/cupti/cupti_library.h"

namespace rooflm::trace {
ProfilerLibrary ProfilerLibrary::load() {
  void* library = open_cupti_library();
  ProfilerLibrary found;
  find_function(library, "cuptiGetResultString", found.result_string);
  find_function(library, "cuptiProfilerInitialize", found.initialize);
  find_function(library, "cuptiProfilerDeviceSupported", found.device_supported);
  find_function(library, "cuptiProfilerGetCounterAvailability", found.counter_availability);
  find_function(library, "cuptiDeviceGetChipName", found.chip_name);
  find_function(library, "cuptiProfilerHostInitialize", found.host_initialize);
  find_function(library, "cuptiProfilerHostDeinitialize", found.host_deinitialize);
  find_function(library, "cuptiProfilerHostConfigAddMetrics", found.add_metrics);
  find_function(library, "cuptiProfilerHostGetMetricProperties", found.metric_properties);
  find_function(library, "cuptiProfilerHostGetConfigImageSize", found.config_size);
  find_function(library, "cuptiProfilerHostGetConfigImage", found.config_image);
  find_function(library, "cuptiProfilerHostGetNumOfPasses", found.passes);
  find_function(library, "cuptiProfilerHostEvaluateToGpuValues", found.evaluate);
  find_function(library, "cuptiRangeProfilerEnable", found.enable);
  find_function(library, "cuptiRangeProfilerDisable", found.disable);
  find_function(library, "cuptiRangeProfilerGetCounterDataSize", found.counter_data_size);
  find_function(library, "cuptiRangeProfilerCounterDataImageInitialize", found.counter_data_initialize);
  find_function(library, "cuptiRangeProfilerSetConfig", found.set_config);
  find_function(library, "cuptiRangeProfilerStart", found.start);
  find_function(library, "cuptiRangeProfilerStop", found.stop);
  find_function(library, "cuptiRangeProfilerPushRange", found.push_range);
  find_function(library, "cuptiRangeProfilerPopRange", found.pop_range);
  find_function(library, "cuptiRangeProfilerDecodeData", found.decode);
  find_function(library, "cuptiRangeProfilerGetCounterDataInfo", found.counter_data_info);
  find_function(library, "cuptiRangeProfilerCounterDataGetRangeInfo", found.range_info);
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
  find_function(driver, "cuCtxGetCurrent", current);
  find_function(driver, "cuCtxGetDevice", device_of_context);
  CurrentContext found;
  if (current(&found.context) != CUDA_SUCCESS || found.context == nullptr ||
      device_of_context(&found.device) != CUDA_SUCCESS) {
    throw core::Unavailable("no GPU is in use in this thread");
  }
  return found;
}

}  // namespace rooflm::trace
