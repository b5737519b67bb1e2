// Unions and differences of time intervals.
#include "core/stretches.h"

#include <algorithm>
#include <cstddef>

namespace rooflm::core {

std::vector<Stretch> covered(std::vector<Stretch> all) {
  std::ranges::sort(all);
  std::vector<Stretch> apart;
  for (const Stretch& one : all) {
    if (one.first >= one.second) continue;
    if (!apart.empty() && one.first <= apart.back().second) {
      apart.back().second = std::max(apart.back().second, one.second);
    } else {
      apart.push_back(one);
    }
  }
  return apart;
}

std::vector<Stretch> outside(const std::vector<Stretch>& all, const std::vector<Stretch>& others) {
  std::vector<Stretch> left;
  std::size_t next = 0;
  for (auto [start, end] : all) {
    while (next < others.size() && others[next].second <= start) ++next;
    for (std::size_t i = next; i < others.size() && others[i].first < end; ++i) {
      if (others[i].first > start) left.emplace_back(start, others[i].first);
      start = std::max(start, others[i].second);
    }
    if (start < end) left.emplace_back(start, end);
  }
  return left;
}

std::int64_t length_within(const std::vector<Stretch>& all, const Stretch& bounds) {
  std::int64_t length = 0;
  for (const auto& [start, end] : all)
    length += std::max<std::int64_t>(0, std::min(end, bounds.second) - std::max(start, bounds.first));
  return length;
}

Stretch hull(const std::vector<Stretch>& all) {
  return {std::ranges::min(all, {}, &Stretch::first).first,
          std::ranges::max(all, {}, &Stretch::second).second};
}

std::int64_t length_of(const std::vector<Stretch>& all) {
  std::int64_t length = 0;
  for (const auto& [start, end] : all) length += end - start;
  return length;
}

}  // namespace rooflm::core
