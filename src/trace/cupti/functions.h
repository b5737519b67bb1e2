// CUPTI's functions, found when the program runs: for what traces our own steps and for what is loaded into
// the programs of others. There only libc is sure to be, and nothing may throw.
#pragma once

#include <cupti.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rooflm::trace {

/// Where CUPTI of the major version whose headers this was compiled with may be: as the loader looks for it
/// (one that the process has is found so), then where toolkits put it.
std::vector<std::string> cupti_files();
/// Why a CUPTI of this number (CUPTI_API_VERSION) cannot be used: its records are laid out differently. ""
/// when it can.
std::string why_not_version(std::uint32_t number);
/// What the user can do about an error: "; another profiler ..."; "" when nothing is known.
std::string_view cupti_advice(CUptiResult result);
/// "CUPTI: WHAT: its words (number); what to do".
std::string cupti_words(decltype(&cuptiGetResultString) text_of, CUptiResult result, std::string_view what);

/// The functions that are used, of the CUPTI whose headers this was compiled with or a later one of the same
/// major version.
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

  /// Loads the library for good: it has hooks in the driver until the process ends. False and `why`, one
  /// line, where there is none or it cannot be used.
  bool load(std::string& why);
  /// cupti_words of an error.
  [[nodiscard]] std::string words(CUptiResult result, std::string_view what) const {
    return cupti_words(result_string, result, what);
  }
};

/// "13.0.1".
std::string cupti_version_text(std::uint32_t number);

}  // namespace rooflm::trace
