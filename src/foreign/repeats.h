// Steps of a program that has no ranges, found in what its device did. Private to the room.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace rooflm::foreign {

/// One period of a sequence: items [begin, begin + length) and, one after the other, `count` of the same.
struct Repeats {
  std::size_t begin = 0, length = 0, count = 0;
};

/// The part of `items` (names of kernels, in the order in which they ran) that repeats itself and covers most
/// of it, with its shortest period: what comes before is warm-up, a period is a step. At least `least` times
/// in a row, and half of all items in all; a period of one item is no step. Nothing where there is none.
std::optional<Repeats> find_repeats(std::span<const std::int64_t> items, std::size_t least = 4);

}  // namespace rooflm::foreign
