// CUPTI's functions, loaded at run time.
#include "trace/cupti/functions.h"

#include <dlfcn.h>

#include <type_traits>

namespace rooflm::trace {
namespace {

constexpr std::uint32_t kMajorUnit = 10000;
constexpr std::uint32_t kMinorUnit = 100;
constexpr std::uint32_t kMajor = CUPTI_API_VERSION / kMajorUnit;

void* open_library(std::string& why) {
  for (const std::string& file : cupti_files()) {
    if (void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) return handle;
    const char* error = ::dlerror();
    if (why.empty()) why = std::string("CUPTI is not here: ") + (error == nullptr ? file.c_str() : error);
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> cupti_files() {
  const std::string name = "libcupti.so." + std::to_string(kMajor);
  return {name, "/usr/local/cuda/extras/CUPTI/lib64/" + name, "/usr/local/cuda/lib64/" + name};
}

std::string cupti_version_text(std::uint32_t number) {
  return std::to_string(number / kMajorUnit) + "." + std::to_string(number % kMajorUnit / kMinorUnit) + "." +
         std::to_string(number % kMinorUnit);
}

std::string why_not_version(std::uint32_t number) {
  if (number / kMajorUnit == kMajor) return "";
  return "CUPTI " + cupti_version_text(number) + " is here, " + std::to_string(kMajor) +
         ".x is needed: records of other versions are laid out differently";
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

std::string cupti_words(decltype(&cuptiGetResultString) text_of, CUptiResult result, std::string_view what) {
  const char* text = nullptr;
  if (text_of(result, &text) != CUPTI_SUCCESS || text == nullptr) text = "unknown error";
  return "CUPTI: " + std::string(what) + ": " + text + " (" + std::to_string(static_cast<int>(result)) + ")" +
         std::string(cupti_advice(result));
}

bool CuptiFunctions::load(std::string& why) {
  void* library = open_library(why);
  if (library == nullptr) return false;
  why.clear();
  std::string missing;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  find("cuptiGetVersion", version);
  find("cuptiGetResultString", result_string);
  find("cuptiSubscribe", subscribe);
  find("cuptiUnsubscribe", unsubscribe);
  find("cuptiEnableCallback", enable_callback);
  find("cuptiActivityRegisterTimestampCallback", register_timestamp);
  find("cuptiActivityRegisterCallbacks", register_callbacks);
  find("cuptiActivitySetAttribute", set_attribute);
  find("cuptiActivityEnable", enable);
  find("cuptiActivityDisable", disable);
  find("cuptiActivityEnableRuntimeApi", enable_runtime);
  find("cuptiActivityEnableDriverApi", enable_driver);
  find("cuptiActivityFlushAll", flush_all);
  find("cuptiActivityGetNextRecord", next_record);
  find("cuptiActivityGetNumDroppedRecords", dropped_records);
  find("cuptiSetThreadIdType", set_thread_id_type);
  find("cuptiGetCallbackName", callback_name);
  find("cuptiGetGraphNodeId", graph_node_id);
  find("cuptiFinalize", finalize);
  std::uint32_t number = 0;
  if (!missing.empty()) {
    why = "CUPTI has no " + missing + ": it is too old";
  } else if (const CUptiResult asked = version(&number); asked != CUPTI_SUCCESS) {
    why = words(asked, "asking for its version");
  } else {
    why = why_not_version(number);
  }
  return why.empty();
}

}  // namespace rooflm::trace
