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
  const auto first = std::lower_bound(more_.begin(), more_.end(), begin,
                                      [](const Range& range, std::int64_t at) { return range.end < at; });
  auto last = first;
  for (; last != more_.end() && last->begin <= end; ++last) {
    begin = std::min(begin, last->begin);
    end = std::max(end, last->end);
  }
  if (empty()) {
    lowest_ = {begin, end};
  } else if (begin <= lowest_.end && lowest_.begin <= end) {
    lowest_ = {std::min(begin, lowest_.begin), std::max(end, lowest_.end)};
    more_.erase(first, last);
  } else if (end < lowest_.begin) {
    more_.insert(more_.begin(), lowest_);
    lowest_ = {begin, end};
  } else if (first == last) {
    more_.insert(first, {begin, end});
  } else {
    *first = {begin, end};
    more_.erase(first + 1, last);
  }
}

std::int64_t ByteRanges::lowest_gap(std::int64_t from, std::int64_t bytes) const {
  if (from < lowest_.end && lowest_.begin < from + bytes) from = lowest_.end;
  if (more_.empty()) return from;
  auto range = std::upper_bound(more_.begin(), more_.end(), from,
                                [](std::int64_t at, const Range& r) { return at < r.end; });
  for (; range != more_.end() && range->begin < from + bytes; ++range) from = range->end;
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
  taken_.clear();
  const auto look_at = [&](const ByteRanges& ranges) {
    if (!ranges.empty()) taken_.push_back(&ranges);
  };
  for_parts(leaves_, when, [&](int part) {
    look_at(nodes_[index(part)].whole);
    look_at(nodes_[index(part)].within);
  });
  for_ends(leaves_, when, [&](int node) { look_at(nodes_[index(node)].whole); });
  std::int64_t offset = 0;
  std::size_t agreeing = 0;  // of those looked at last
  for (std::size_t i = 0; agreeing < taken_.size(); i = i + 1 < taken_.size() ? i + 1 : 0) {
    const std::int64_t next = taken_[i]->lowest_gap(offset, bytes);
    agreeing = next == offset ? agreeing + 1 : 1;
    offset = next;
  }
  return offset;
}

}  // namespace rooflm::passes
