// CUPTI's functions, loaded at run time: shared by the tracing of our own steps and by the library injected
// into foreign programs. In those only libc is guaranteed, and nothing may throw.
#pragma once

#include <cupti.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rooflm::trace {

/// Possible locations of CUPTI, of the major version that this was compiled with: first by the loader's
/// search (which finds one that the process has loaded), then where toolkits install it.
std::vector<std::string> cupti_files();
/// Why a CUPTI with this number (CUPTI_API_VERSION) cannot be used: the layout of its records differs. "" if
/// it can.
std::string why_not_version(std::uint32_t number);
/// What the user can do about an error, "; another profiler ..."; "" if unknown.
std::string_view cupti_advice(CUptiResult result);
/// "CUPTI: WHAT: its message (number); what to do".
std::string cupti_words(decltype(&cuptiGetResultString) text_of, CUptiResult result, std::string_view what);

/// The functions that are used, from the CUPTI whose headers this was compiled with or a later one of the
/// same major version.
struct CuptiFunctions {
  decltype(&cuptiGetVersion) version = nullptr;
  decltype(&cuptiGetResultString) result_string = nullptr;
  decltype(&cuptiSubscribe) subscribe = nullptr;
  decltype(&cuptiUnsubscribe) unsubscribe = nullptr;
  decltype(&cuptiEnableCallback) enable_callback = nullptr;
  decltype(&cuptiActivityRegisterTimestampCallback) register_timestamp = nullptr;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivitySetAttribute) set_attribute = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityEnableRuntimeApi) enable_runtime = nullptr;
  decltype(&cuptiActivityEnableDriverApi) enable_driver = nullptr;
  decltype(&cuptiActivityFlushAll) flush_all = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiActivityGetNumDroppedRecords) dropped_records = nullptr;
  decltype(&cuptiSetThreadIdType) set_thread_id_type = nullptr;
  decltype(&cuptiGetCallbackName) callback_name = nullptr;
  decltype(&cuptiGetGraphNodeId) graph_node_id = nullptr;
  decltype(&cuptiFinalize) finalize = nullptr;

  /// Loads the library and never unloads it: it has hooks in the driver until the process ends. Returns false
  /// and sets `why`, one line, if it is missing or unusable.
  bool load(std::string& why);
  /// cupti_words of an error.
  [[nodiscard]] std::string words(CUptiResult result, std::string_view what) const {
    return cupti_words(result_string, result, what);
  }
};

/// "13.0.1".
std::string cupti_version_text(std::uint32_t number);

}  // namespace rooflm::trace
