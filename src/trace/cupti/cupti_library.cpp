// CUPTI's functions, found when the program runs.
#include "trace/cupti/cupti_library.h"

#include <fmt/format.h>

#include <cstdint>

#include "core/error.h"

namespace rooflm::trace {
namespace {

constexpr std::uint32_t kMajorUnit = 10000;
constexpr std::uint32_t kMinorUnit = 100;
constexpr std::uint32_t kMajor = CUPTI_API_VERSION / kMajorUnit;

std::string text_of(std::uint32_t version) {
  return fmt::format("{}.{}.{}", version / kMajorUnit, version % kMajorUnit / kMinorUnit,
                     version % kMinorUnit);
}

}  // namespace

void require_version(std::uint32_t number) {
  if (number / kMajorUnit == kMajor) return;
  throw core::Unavailable(
      fmt::format("CUPTI {} is here, {}.x is needed: records of other versions are laid out differently",
                  text_of(number), kMajor));
}

core::SharedLibrary open_cupti_library() {
  const std::string name = fmt::format("libcupti.so.{}", kMajor);
  // Where toolkits put it beside where the loader looks.
  return {"CUPTI", {name, "/usr/local/cuda/extras/CUPTI/lib64/" + name, "/usr/local/cuda/lib64/" + name}};
}

std::string_view cupti_advice(CUptiResult result) {
  switch (result) {
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
      return "; another profiler is attached (ncu, nsys, a debugger): run without it";
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
      return "; only administrators may (ERR_NVGPUCTRPERM): run as root or with CAP_SYS_ADMIN, or load the "
             "driver with NVreg_RestrictProfilingToAdminUsers=0";
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      return "; the GPU is virtual: whoever runs the hypervisor must allow it";
    case CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED:
    case CUPTI_ERROR_NOT_COMPATIBLE:
    case CUPTI_ERROR_HARDWARE_BUSY:
      return "; something else profiles this GPU (ncu, DCGM)";
    default:
      return "";
  }
}

CuptiLibrary CuptiLibrary::load() {
  const core::SharedLibrary library = open_cupti_library();
  CuptiLibrary found;
  library.need("cuptiGetVersion", found.version);
  library.need("cuptiGetResultString", found.result_string);
  library.need("cuptiSubscribe", found.subscribe);
  library.need("cuptiUnsubscribe", found.unsubscribe);
  library.need("cuptiActivityRegisterTimestampCallback", found.register_timestamp);
  library.need("cuptiActivityRegisterCallbacks", found.register_callbacks);
  library.need("cuptiActivitySetAttribute", found.set_attribute);
  library.need("cuptiActivityEnable", found.enable);
  library.need("cuptiActivityDisable", found.disable);
  library.need("cuptiActivityEnableRuntimeApi", found.enable_runtime);
  library.need("cuptiActivityEnableDriverApi", found.enable_driver);
  library.need("cuptiActivityFlushAll", found.flush_all);
  library.need("cuptiActivityGetNextRecord", found.next_record);
  library.need("cuptiActivityGetNumDroppedRecords", found.dropped_records);
  library.need("cuptiSetThreadIdType", found.set_thread_id_type);
  library.need("cuptiGetCallbackName", found.callback_name);
  library.need("cuptiGetGraphNodeId", found.graph_node_id);
  std::uint32_t number = 0;
  found.check(found.version(&number), "asking for its version");
  require_version(number);
  return found;
}

std::string CuptiLibrary::version_text() const {
  std::uint32_t number = 0;
  check(version(&number), "asking for its version");
  return text_of(number);
}

void CuptiLibrary::check(CUptiResult result, std::string_view what) const {
  if (result == CUPTI_SUCCESS) return;
  const char* words = nullptr;
  if (result_string(result, &words) != CUPTI_SUCCESS || words == nullptr) words = "unknown error";
  throw core::Unavailable(
      fmt::format("CUPTI: {}: {} ({}){}", what, words, static_cast<int>(result), cupti_advice(result)));
}

}  // namespace rooflm::trace
