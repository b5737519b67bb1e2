// CUPTI's profiler functions, loaded at run time.
#include "trace/cupti/profiler_library.h"

#include "core/error.h"
#include "trace/cupti/cupti_library.h"

namespace rooflm::trace {

ProfilerLibrary ProfilerLibrary::load() {
  const core::SharedLibrary library = open_cupti_library();
  ProfilerLibrary found;
  library.need("cuptiGetResultString", found.result_string);
  library.need("cuptiProfilerInitialize", found.initialize);
  library.need("cuptiProfilerDeviceSupported", found.device_supported);
  library.need("cuptiProfilerGetCounterAvailability", found.counter_availability);
  library.need("cuptiDeviceGetChipName", found.chip_name);
  library.need("cuptiProfilerHostInitialize", found.host_initialize);
  library.need("cuptiProfilerHostDeinitialize", found.host_deinitialize);
  library.need("cuptiProfilerHostConfigAddMetrics", found.add_metrics);
  library.need("cuptiProfilerHostGetMetricProperties", found.metric_properties);
  library.need("cuptiProfilerHostGetConfigImageSize", found.config_size);
  library.need("cuptiProfilerHostGetConfigImage", found.config_image);
  library.need("cuptiProfilerHostGetNumOfPasses", found.passes);
  library.need("cuptiProfilerHostEvaluateToGpuValues", found.evaluate);
  library.need("cuptiRangeProfilerEnable", found.enable);
  library.need("cuptiRangeProfilerDisable", found.disable);
  library.need("cuptiRangeProfilerGetCounterDataSize", found.counter_data_size);
  library.need("cuptiRangeProfilerCounterDataImageInitialize", found.counter_data_initialize);
  library.need("cuptiRangeProfilerSetConfig", found.set_config);
  library.need("cuptiRangeProfilerStart", found.start);
  library.need("cuptiRangeProfilerStop", found.stop);
  library.need("cuptiRangeProfilerPushRange", found.push_range);
  library.need("cuptiRangeProfilerPopRange", found.pop_range);
  library.need("cuptiRangeProfilerDecodeData", found.decode);
  library.need("cuptiRangeProfilerGetCounterDataInfo", found.counter_data_info);
  library.need("cuptiRangeProfilerCounterDataGetRangeInfo", found.range_info);
  return found;
}

void ProfilerLibrary::check(CUptiResult result, std::string_view what) const {
  if (result != CUPTI_SUCCESS) throw core::Unavailable(cupti_words(result_string, result, what));
}

CurrentContext CurrentContext::find() {
  const core::SharedLibrary driver("the NVIDIA driver", {"libcuda.so.1"});
  decltype(&cuCtxGetCurrent) current = nullptr;
  decltype(&cuCtxGetDevice) device_of_context = nullptr;
  driver.need("cuCtxGetCurrent", current);
  driver.need("cuCtxGetDevice", device_of_context);
  CurrentContext found;
  if (current(&found.context) != CUDA_SUCCESS || found.context == nullptr ||
      device_of_context(&found.device) != CUDA_SUCCESS) {
    throw core::Unavailable("no GPU is in use in this thread");
  }
  return found;
}

}  // namespace rooflm::trace
