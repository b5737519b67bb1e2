// Rows of a stream as activities. Private to the room.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "foreign/recorded.h"
#include "inject/stream_format.h"

namespace rooflm::foreign {

/// Times of a stream are below it: sums and differences of two stay within 64 bits.
inline constexpr std::uint64_t kMostStreamTime = std::uint64_t{1} << 62U;

/// `texts` by their numbers; times count from `zero_ns`. What a stream may not say (kinds and texts that do
/// not exist, times that go backwards) is left out and counted.
void add_rows(const std::vector<inject::Row>& rows,
              const std::unordered_map<std::uint32_t, std::string>& texts, std::int64_t zero_ns,
              RecordedProcess& into);

}  // namespace rooflm::foreign
