// Ceilings that were measured while other programs used the CPU.
#pragma once

#include <string_view>

#include "record/rows.h"

namespace rooflm::record {

/// Prefix of Ceiling::source for such a ceiling; the share of the other programs follows. The machine reaches
/// at least this rate, so it is a lower bound and not a limit.
inline constexpr std::string_view kUnderLoad = "measured under load";

inline bool is_under_load(const Ceiling& ceiling) { return ceiling.source.starts_with(kUnderLoad); }

}  // namespace rooflm::record
