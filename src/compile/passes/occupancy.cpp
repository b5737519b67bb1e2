// Which bytes of an arena are taken, and when.
#include "compile/passes/occupancy.h"

#include <algorithm>
#include <cstddef>

namespace rooflm::passes {
namespace {

std::size_t index(int node) { return static_cast<std::size_t>(node); }

/// Calls use(node) for the fewest nodes of a tree of `leaves` leaves whose spans make up [first, last].
template <class Use>
void for_parts(int leaves, Lifetime when, Use&& use) {
  int low = when.first + leaves;
  int high = when.last + leaves + 1;
  for (; low < high; low /= 2, high /= 2) {
    if (low % 2 == 1) use(low++);
    if (high % 2 == 1) use(--high);
  }
}

/// Calls use(node) for all nodes above the first and the last leaf of a span, these included. Among them are
/// all that the span takes a part of, but not the whole.
template <class Use>
void for_ends(int leaves, Lifetime when, Use&& use) {
  int first = when.first + leaves;
  int last = when.last + leaves;
  for (; first != last; first /= 2, last /= 2) {
    use(first);
    use(last);
  }
  for (; first > 0; first /= 2) use(first);
}

}  // namespace

void ByteRanges::add(std::int64_t begin, std::int64_t end) {
  const auto first = std::lower_bound(ranges_.begin(), ranges_.end(), begin,
                                      [](const Range& range, std::int64_t at) { return range.end < at; });
  auto last = first;
  for (; last != ranges_.end() && last->begin <= end; ++last) {
    begin = std::min(begin, last->begin);
    end = std::max(end, last->end);
  }
  if (first == last) {
    ranges_.insert(first, {begin, end});
    return;
  }
  *first = {begin, end};
  ranges_.erase(first + 1, last);
}

std::int64_t ByteRanges::lowest_gap(std::int64_t from, std::int64_t bytes) const {
  auto range = std::upper_bound(ranges_.begin(), ranges_.end(), from,
                                [](std::int64_t at, const Range& r) { return at < r.end; });
  for (; range != ranges_.end() && range->begin < from + bytes; ++range) from = range->end;
  return from;
}

Occupancy::Occupancy(int ops) {
  while (leaves_ < ops) leaves_ *= 2;
  nodes_.resize(2 * index(leaves_));
}

void Occupancy::add(Lifetime when, std::int64_t begin, std::int64_t end) {
  for_parts(leaves_, when, [&](int part) { nodes_[index(part)].whole.add(begin, end); });
  for_ends(leaves_, when, [&](int node) { nodes_[index(node)].within.add(begin, end); });
}

std::int64_t Occupancy::lowest_gap(Lifetime when, std::int64_t bytes) const {
  std::vector<const ByteRanges*> taken;
  const auto look_at = [&](const ByteRanges& ranges) {
    if (!ranges.empty()) taken.push_back(&ranges);
  };
  for_parts(leaves_, when, [&](int part) {
    look_at(nodes_[index(part)].whole);
    look_at(nodes_[index(part)].within);
  });
  for_ends(leaves_, when, [&](int node) { look_at(nodes_[index(node)].whole); });
  std::int64_t offset = 0;
  std::size_t agreeing = 0;  // of those looked at last
  for (std::size_t i = 0; agreeing < taken.size(); i = (i + 1) % taken.size()) {
    const std::int64_t next = taken[i]->lowest_gap(offset, bytes);
    agreeing = next == offset ? agreeing + 1 : 1;
    offset = next;
  }
  return offset;
}

}  // namespace rooflm::passes
