// CUPTI's functions, found when the program runs. For files of this folder only.
#pragma once

#include <cupti.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "core/shared_library.h"

namespace rooflm::trace {

/// CUPTI itself, of the major version whose headers this was compiled with, loaded for good: it has hooks in
/// the driver until the process ends. Throws core::Unavailable with the reason.
core::SharedLibrary open_cupti_library();
/// Throws core::Unavailable unless a CUPTI of this number (CUPTI_API_VERSION) lays its records out as the one
/// this was compiled with.
void require_version(std::uint32_t number);
/// What the user can do about an error; "" when nothing is known.
std::string_view cupti_advice(CUptiResult result);

/// The functions that are used, of the CUPTI whose headers this was compiled with or a later one of the same
/// major version.
struct CuptiLibrary {
  decltype(&cuptiGetVersion) version = nullptr;
  decltype(&cuptiGetResultString) result_string = nullptr;
  decltype(&cuptiSubscribe) subscribe = nullptr;
  decltype(&cuptiUnsubscribe) unsubscribe = nullptr;
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

  /// Loads the library for good: it has hooks in the driver until the process ends. Throws core::Unavailable
  /// with the reason.
  static CuptiLibrary load();
  /// "13.0.1".
  [[nodiscard]] std::string version_text() const;
  /// Throws core::Unavailable "CUPTI: WHAT: its words, and what to do" unless `result` is CUPTI_SUCCESS.
  void check(CUptiResult result, std::string_view what) const;
};

}  // namespace rooflm::trace
