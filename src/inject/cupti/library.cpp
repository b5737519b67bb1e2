// CUPTI's functions, found when the program runs.
#include "inject/cupti/library.h"

#include <dlfcn.h>

#include <array>

namespace rooflm::inject {
namespace {

constexpr std::uint32_t kMajorUnit = 10000;
constexpr std::uint32_t kMajor = CUPTI_API_VERSION / kMajorUnit;

void* open_library(std::string& why) {
  const std::string name = "libcupti.so." + std::to_string(kMajor);
  // One that the process has is found by its name; then where toolkits put it.
  const std::array<std::string, 3> places = {name, "/usr/local/cuda/extras/CUPTI/lib64/" + name,
                                             "/usr/local/cuda/lib64/" + name};
  for (const std::string& place : places) {
    if (void* handle = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) return handle;
    const char* error = ::dlerror();
    if (why.empty()) why = std::string("CUPTI is not here: ") + (error == nullptr ? name : error);
  }
  return nullptr;
}

template <class Call>
void find(void* library, const char* name, Call& call, std::string& missing) {
  call = reinterpret_cast<Call>(::dlsym(library, name));
  if (call == nullptr && missing.empty()) missing = name;
}

}  // namespace

bool CuptiFunctions::load(std::string& why) {
  void* library = open_library(why);
  if (library == nullptr) return false;
  why.clear();
  std::string missing;
  find(library, "cuptiGetVersion", version, missing);
  find(library, "cuptiGetResultString", result_string, missing);
  find(library, "cuptiSubscribe", subscribe, missing);
  find(library, "cuptiEnableCallback", enable_callback, missing);
  find(library, "cuptiActivityRegisterTimestampCallback", register_timestamp, missing);
  find(library, "cuptiActivityRegisterCallbacks", register_callbacks, missing);
  find(library, "cuptiActivitySetAttribute", set_attribute, missing);
  find(library, "cuptiActivityEnable", enable, missing);
  find(library, "cuptiActivityDisable", disable, missing);
  find(library, "cuptiActivityEnableRuntimeApi", enable_runtime, missing);
  find(library, "cuptiActivityEnableDriverApi", enable_driver, missing);
  find(library, "cuptiActivityFlushAll", flush_all, missing);
  find(library, "cuptiActivityGetNextRecord", next_record, missing);
  find(library, "cuptiActivityGetNumDroppedRecords", dropped_records, missing);
  find(library, "cuptiSetThreadIdType", set_thread_id_type, missing);
  find(library, "cuptiGetCallbackName", callback_name, missing);
  if (!missing.empty()) {
    why = "CUPTI has no " + missing + ": it is too old";
    return false;
  }
  std::uint32_t number = 0;
  const CUptiResult asked = version(&number);
  if (asked != CUPTI_SUCCESS) {
    why = words(asked, "asking for its version");
    return false;
  }
  if (number / kMajorUnit == kMajor) return true;
  why = "CUPTI of version " + std::to_string(number / kMajorUnit) + " is here, " + std::to_string(kMajor) +
        " is needed: records of other versions are laid out differently";
  return false;
}

std::string CuptiFunctions::words(CUptiResult result, const std::string& what) const {
  const char* text = nullptr;
  if (result_string(result, &text) != CUPTI_SUCCESS || text == nullptr) text = "unknown error";
  std::string line = "CUPTI: " + what + ": " + text + " (" + std::to_string(static_cast<int>(result)) + ")";
  if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
    line += "; another profiler is attached (ncu, nsys, a debugger): run without it";
  }
  return line;
}

}  // namespace rooflm::inject
