// CUPTI's functions for steps of our own engines; errors throw. For files of this folder only.
#pragma once

#include <string>
#include <string_view>

#include "core/system/shared_library.h"
#include "trace/cupti/functions.h"

namespace rooflm::trace {

/// CUPTI, loaded and never unloaded. Throws core::Unavailable with the reason.
core::SharedLibrary open_cupti_library();

struct CuptiLibrary : CuptiFunctions {
  /// As CuptiFunctions::load; throws core::Unavailable with the reason.
  static CuptiLibrary load();
  /// "13.0.1".
  [[nodiscard]] std::string version_text() const;
  /// Throws core::Unavailable with cupti_words unless `result` is CUPTI_SUCCESS.
  void check(CUptiResult result, std::string_view what) const;
};

}  // namespace rooflm::trace
