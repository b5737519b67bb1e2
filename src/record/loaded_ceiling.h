// Ceilings that are no limit: measured while other programs used the CPU, or with a wide interval.
#pragma once

#include <string>
#include <string_view>

#include "record/rows.h"

namespace rooflm::record {

/// Prefix of Ceiling::source for a ceiling that was measured beside other programs; their share follows. The
/// machine reaches at least this rate, so it is a lower bound and not a limit.
inline constexpr std::string_view kUnderLoad = "measured under load";

inline bool is_under_load(const Ceiling& ceiling) { return ceiling.source.starts_with(kUnderLoad); }

/// Ceiling::source of DRAM where the system does not report cache sizes: an op's bytes may come from those.
inline constexpr std::string_view kUnknownCaches = "measured, sizes of caches unknown";

/// Why nothing may be held against a ceiling, in one line: it was measured under load, caches of unknown
/// sizes may serve what it is to limit, or its interval is wider than a fifth of it; "" for a ceiling that is
/// a limit.
std::string why_uncertain(const Ceiling& ceiling);

}  // namespace rooflm::record
