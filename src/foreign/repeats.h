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
/// of it, with its shortest period: a period is a step. At least `least` times in a row; a period has at
/// least `shortest` items. Nothing where there is none.
struct RepeatLimits {
  std::size_t least = 4, shortest = 2;
};
std::optional<Repeats> find_repeats(std::span<const std::int64_t> items, RepeatLimits limits);

}  // namespace rooflm::foreign
