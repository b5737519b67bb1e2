// Compact encoding of integers, for the columns of the document's timeline.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace rooflm::report {

/// RFC 4648, with padding.
std::string base64(std::string_view bytes);

/// The differences between neighbours (the first from 0), each zigzag coded (0, -1, 1, -2 become 0, 1, 2, 3)
/// in groups of seven bits, lowest first, the top bit set where more follow; the bytes as base64. Times in
/// order and numbers that repeat take about a byte each. Differences are taken modulo 2^64, so that every
/// column comes back.
std::string pack(std::span<const std::int64_t> values);

}  // namespace rooflm::report
