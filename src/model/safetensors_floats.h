// Element types of safetensors files: their sizes and names.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/dtype.h"

namespace rooflm::model {

/// Bytes per element of a safetensors dtype; 0 if the format does not have it.
constexpr std::size_t stored_size(std::string_view dtype) {
  if (const auto known = core::find_dtype(&core::DTypeFacts::stored_name, dtype))
    return core::size_of(*known);
  if (dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "U32") return 4;
  if (dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "BOOL" || dtype == "U8" || dtype == "I8" || dtype == "F8_E5M2" || dtype == "F8_E4M3") return 1;
  return 0;
}

/// "F64, F32, BF16 or F16".
inline std::string stored_floats() {
  std::string names;
  std::string_view separator;
  for (const core::DTypeFacts& facts : core::kDTypes) {
    if (!facts.is_float || core::is_fp8(facts.dtype)) continue;
    names.append(separator).append(facts.stored_name);
    separator = ", ";
  }
  if (const auto last = names.rfind(", "); last != std::string::npos) names.replace(last, 2, " or ");
  return names;
}

}  // namespace rooflm::model
