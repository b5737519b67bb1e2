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
void find(void* library, const char* name, Function& function) {
  void* address = dlsym(library, name);
  if (address == nullptr) throw core::Unavailable(fmt::format("CUPTI has no {}: it is too old", name));
  function = reinterpret_cast<Function>(address);
}

}  // namespace

ProfilerLibrary ProfilerLibrary::load() {
  void* library = open_cupti_library();
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
      fmt::format("CUPTI: {}: {} ({}){}", what, words, static_cast<int>(result), cupti_advice(result)));
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
