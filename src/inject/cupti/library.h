// CUPTI's functions, found when the program runs. For files of this folder only.
#pragma once

#include <cupti.h>

#include <string>

namespace rooflm::inject {

/// As in the trace room, but with nothing that throws: this is somebody else's process.
struct CuptiFunctions {
  decltype(&cuptiGetVersion) version = nullptr;
  decltype(&cuptiGetResultString) result_string = nullptr;
  decltype(&cuptiSubscribe) subscribe = nullptr;
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

  /// The CUPTI that the process has loaded, else the one that is found. False and `why`, one line, where
  /// there is none or it is of another major version.
  bool load(std::string& why);
  /// "CUPTI: WHAT: its words (number)".
  [[nodiscard]] std::string words(CUptiResult result, const std::string& what) const;
};

}  // namespace rooflm::inject
