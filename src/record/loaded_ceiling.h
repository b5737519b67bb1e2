// Ceilings that were measured while other programs had the processors.
#pragma once

#include <string_view>

#include "record/rows.h"

namespace rooflm::record {

/// Beginning of Ceiling::source of such a rate; how much the others had follows. The machine does at least
/// this, and alone perhaps more: a lower bound of the ceiling, which limits nothing.
inline constexpr std::string_view kUnderLoad = "measured under load";

inline bool is_under_load(const Ceiling& ceiling) { return ceiling.source.starts_with(kUnderLoad); }

}  // namespace rooflm::record
