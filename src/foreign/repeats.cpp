// Steps of a program that has no ranges.
#include "foreign/repeats.h"

#include <algorithm>
#include <map>

namespace rooflm::foreign {
namespace {

/// The longest stretch in which each item equals the one `length` before it; `count` periods of it.
Repeats longest_stretch(std::span<const std::int64_t> items, std::size_t length) {
  Repeats best{.begin = 0, .length = length, .count = 0};
  std::size_t begin = 0;
  for (std::size_t i = length; i <= items.size(); ++i) {
    if (i < items.size() && items[i] == items[i - length]) continue;
    const std::size_t count = (i - begin) / length;
    // One item over and over has a period of one, whatever else fits.
    const auto period = items.subspan(begin, length);
    const bool is_one_item =
        length > 1 && std::ranges::all_of(period, [&](std::int64_t item) { return item == period.front(); });
    if (count > best.count && !is_one_item) best = {.begin = begin, .length = length, .count = count};
    begin = i + 1 - length;
  }
  return best;
}

}  // namespace

std::optional<Repeats> find_repeats(std::span<const std::int64_t> items, RepeatLimits limits) {
  std::map<std::int64_t, std::vector<std::size_t>> places;
  for (std::size_t i = 0; i < items.size(); ++i) places[items[i]].push_back(i);
  // A period is a distance between two of some item: those of rare items are few. The rarest that is there
  // often enough is there once in a step.
  std::map<std::size_t, std::size_t> distances;  // how often each was seen
  constexpr std::size_t kMostItems = 64;
  std::vector<const std::vector<std::size_t>*> rare;
  for (const auto& [item, at] : places) {
    if (at.size() >= limits.least) rare.push_back(&at);
  }
  std::ranges::stable_sort(rare, {}, [](const auto* at) { return at->size(); });
  if (rare.size() > kMostItems) rare.resize(kMostItems);
  for (const auto* at : rare) {
    for (std::size_t i = 1; i < at->size(); ++i) ++distances[(*at)[i] - (*at)[i - 1]];
  }
  std::vector<std::pair<std::size_t, std::size_t>> candidates(distances.begin(), distances.end());
  std::ranges::stable_sort(candidates, std::ranges::greater{}, [](const auto& one) { return one.second; });
  constexpr std::size_t kMostCandidates = 32;
  if (candidates.size() > kMostCandidates) candidates.resize(kMostCandidates);
  std::optional<Repeats> best;
  for (const auto& [length, seen] : candidates) {
    if (length < limits.shortest) continue;
    const Repeats found = longest_stretch(items, length);
    const std::size_t covered = found.count * found.length;
    if (found.count < limits.least) continue;
    const std::size_t known = best ? best->count * best->length : 0;
    // A period twice as long covers as much: the shortest is the step.
    if (!best || covered > known + known / 20 ||
        (found.length < best->length && covered + known / 20 >= known)) {
      best = found;
    }
  }
  return best;
}

}  // namespace rooflm::foreign
