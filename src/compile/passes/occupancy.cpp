// Which bytes of an arena are occupied at which time.
#include "compile/passes/occupancy.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

namespace rooflm::passes {
namespace {

/// Ops per block: enough that the tree stays in cache, few enough to scan one by one.
constexpr int kBlock = 16;

/// Up to this many ranges are inserted into a node's union one by one. More are merged lazily, by the next
/// search.
constexpr std::size_t kMostAdded = 8;
/// The same as a share (1 / kMostAddedShare) of the node's ranges.
constexpr std::size_t kMostAddedShare = 8;
/// No limit on lookups.
constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
/// A remembered search may include at most this many ops that the new one excludes. A search from scratch
/// examines about that many lists.
constexpr std::size_t kMostLeftOut = 64;
constexpr std::int64_t kTop = std::numeric_limits<std::int64_t>::max();

int block_of(int op) { return op / kBlock; }

/// Calls use(node) for the fewest nodes of a tree with `leaves` leaves that together span the blocks strictly
/// between the first and the last block of `when`.
template <class Use>
void for_parts(int leaves, Lifetime when, Use&& use) {
  int low = block_of(when.first) + 1 + leaves;
  int high = block_of(when.last) + leaves;
  for (; low < high; low /= 2, high /= 2) {
    if (low % 2 == 1) use(low++);
    if (high % 2 == 1) use(--high);
  }
}

/// Calls use(node) for the first and the last block of `when` and all their ancestors.
template <class Use>
void for_ends(int leaves, Lifetime when, Use&& use) {
  int first = block_of(when.first) + leaves;
  int last = block_of(when.last) + leaves;
  for (; first != last; first /= 2, last /= 2) {
    use(first);
    use(last);
  }
  for (; first > 0; first /= 2) use(first);
}

bool begins_before(const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; }

}  // namespace

/// Index of the first range that ends at `at` or above.
std::size_t ByteRanges::reaching(std::int64_t at) const {
  const auto is_first = [&](std::size_t i) {
    return (i == 0 || ranges_[i - 1].end < at) && (i == ranges_.size() || ranges_[i].end >= at);
  };
  for (std::size_t i = added_at_; i <= std::min(added_at_ + 1, ranges_.size()); ++i) {
    if (is_first(i)) return i;
  }
  const auto found = std::lower_bound(ranges_.begin(), ranges_.end(), at,
                                      [](const ByteRange& r, std::int64_t end) { return r.end < end; });
  return static_cast<std::size_t>(found - ranges_.begin());
}

void ByteRanges::add(ByteRange range) {
  added_at_ = reaching(range.begin);
  const auto first = ranges_.begin() + static_cast<std::ptrdiff_t>(added_at_);
  auto last = first;
  for (; last != ranges_.end() && last->begin <= range.end; ++last) {
    range.begin = std::min(range.begin, last->begin);
    range.end = std::max(range.end, last->end);
  }
  if (first == last) {
    ranges_.insert(first, range);
    return;
  }
  *first = range;
  ranges_.erase(first + 1, last);
}

void ByteRanges::append(ByteRange range) {
  if (ranges_.empty() || range.begin > ranges_.back().end) {
    ranges_.push_back(range);
  } else {
    ranges_.back().end = std::max(ranges_.back().end, range.end);
  }
}

void ByteRanges::unite(std::vector<ByteRange>& ranges) {
  std::sort(ranges.begin(), ranges.end(), begins_before);
  ranges_.clear();
  for (const ByteRange& range : ranges) append(range);
  ranges.clear();
}

void ByteRanges::unite(const ByteRanges& a, const ByteRanges& b) {
  ranges_.clear();
  auto from_a = a.ranges_.begin();
  auto from_b = b.ranges_.begin();
  while (from_a != a.ranges_.end() && from_b != b.ranges_.end()) {
    append(begins_before(*from_b, *from_a) ? *from_b++ : *from_a++);
  }
  for (; from_a != a.ranges_.end(); ++from_a) append(*from_a);
  for (; from_b != b.ranges_.end(); ++from_b) append(*from_b);
}

/// Jumps to the position of the last search of these ranges if it is not too far away.
void GapSearch::go_near(std::int64_t from) {
  is_near_ = true;
  const std::vector<ByteRange>& all = ranges_->ranges_;
  std::ptrdiff_t at = std::min(ranges_->looked_at_, static_cast<std::ptrdiff_t>(all.size()));
  for (std::ptrdiff_t step = 1; at > 0 && all[static_cast<std::size_t>(at - 1)].end > from; step *= 2)
    at -= std::min(at, step);
  next_ += at;
}

std::int64_t GapSearch::lowest_gap(std::int64_t from, std::int64_t bytes) {
  if (!is_near_) go_near(from);
  // Galloping search for the first range that ends above `from`: it is usually near.
  const auto ends_below = [&](const ByteRange& range) { return range.end <= from; };
  std::ptrdiff_t step = 1;
  for (; step < end_ - next_ && ends_below(next_[step - 1]); step *= 2) next_ += step;
  next_ = std::partition_point(next_, next_ + std::min(step, end_ - next_), ends_below);
  for (; next_ != end_ && next_->begin < from + bytes; ++next_) from = next_->end;
  ranges_->looked_at_ = next_ - ranges_->ranges_.data();
  return from;
}

Occupancy::Occupancy(int ops) {
  const int blocks = block_of(ops) + 1;
  while (leaves_ < blocks) leaves_ *= 2;
  nodes_.resize(2 * static_cast<std::size_t>(leaves_));
  spans_.resize(static_cast<std::size_t>(blocks));
  first_.assign(static_cast<std::size_t>(ops), -1);
  last_.assign(static_cast<std::size_t>(ops), -1);
}

/// Marks the range as occupied at some time of the node.
void Occupancy::take(Node& n, ByteRange range) {
  n.end = std::max(n.end, range.end);
  if (n.is_stale) return;
  n.added.push_back(range);
  if (n.added.size() < std::max(kMostAdded, n.taken.ranges().size() / kMostAddedShare)) return;
  n.added.clear();
  n.is_stale = true;
}

void Occupancy::add_to_block(int block, Lifetime when, ByteRange range) {
  const Lifetime part{.first = std::max(when.first, block * kBlock),
                      .last = std::min(when.last, block * kBlock + kBlock - 1)};
  std::vector<Span>& all = spans(block);
  auto same = std::find_if(all.begin(), all.end(), [&](const Span& span) { return span.when == part; });
  if (same == all.end()) same = all.insert(same, {.when = part, .taken = {}});
  same->taken.add(range);
}

void Occupancy::add(Lifetime when, ByteRange range) {
  int& of_first = first_[static_cast<std::size_t>(when.first)];
  int& of_last = last_[static_cast<std::size_t>(when.last)];
  const int index = static_cast<int>(all_.size());
  all_.push_back({.range = range,
                  .next_of_first = std::exchange(of_first, index),
                  .next_of_last = std::exchange(of_last, index)});
  const int first = block_of(when.first);
  const int last = block_of(when.last);
  add_to_block(first, when, range);
  if (last != first) add_to_block(last, when, range);
  for_ends(leaves_, when, [&](int end) { take(node(end), range); });
  for_parts(leaves_, when, [&](int part) {
    node(part).whole.add(range);
    take(node(part), range);
  });
}

/// Recomputes `taken` of a node.
void Occupancy::refresh(int index) {
  Node& n = node(index);
  if (!n.is_stale) {
    if (n.added.size() < kMostAdded) {
      for (const ByteRange& range : n.added) n.taken.add(range);
      n.added.clear();
    } else {
      std::swap(united_, n.taken);
      added_.unite(n.added);
      n.taken.unite(united_, added_);
    }
    return;
  }
  if (index < leaves_) {
    const int left = 2 * index;
    refresh(left);
    refresh(left + 1);
    united_.unite(node(left).taken, node(left + 1).taken);
  } else {
    for (const Span& span : spans(index - leaves_)) {
      scratch_.insert(scratch_.end(), span.taken.ranges().begin(), span.taken.ranges().end());
    }
    united_.unite(scratch_);
  }
  n.taken.unite(united_, n.whole);
  n.is_stale = false;
}

void Occupancy::look_at(ByteRanges& ranges, std::int64_t from) {
  if (!ranges.ranges().empty() && ranges.ranges().back().end > from) taken_.emplace_back(ranges);
}

/// Collects the lists of ranges above `from` that are occupied at some time of `when`.
void Occupancy::find_taken(Lifetime when, std::int64_t from) {
  taken_.clear();
  for_parts(leaves_, when, [&](int part) {
    if (node(part).end <= from) return;
    refresh(part);
    look_at(node(part).taken, from);
  });
  const int first = block_of(when.first);
  const int last = block_of(when.last);
  for (int block = first; block <= last; block += std::max(1, last - first)) {
    for (Span& span : spans(block)) {
      if (span.when.first <= when.last && when.first <= span.when.last) look_at(span.taken, from);
    }
  }
  for_ends(leaves_, when, [&](int end) { look_at(node(end).whole, from); });
}

/// The lowest gap at or above `from` in the lists of find_taken. If it stops early, after
/// `most_lookups` or at `until`, it returns an offset below which there is no gap. `from` must not be below
/// an earlier answer.
std::int64_t Occupancy::climb(std::int64_t from, std::int64_t bytes, std::int64_t until,
                              std::size_t most_lookups) {
  // From the root down: storages placed first lie low and are in the nodes with the longest spans.
  std::size_t agreeing = 0;  // consecutive lists that agreed
  std::size_t i = 0;
  is_found_ = false;
  for (std::size_t lookups = 0; agreeing != taken_.size(); ++lookups) {
    if (from >= until || lookups == most_lookups) return from;
    i = (i > 0 ? i : taken_.size()) - 1;
    GapSearch& list = taken_[i];
    const std::int64_t next = list.lowest_gap(from, bytes);
    ++lookups_;
    if (next != from) agreeing = 0;
    from = next;
    if (list.is_over()) {
      taken_.erase(taken_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++agreeing;
    }
  }
  is_found_ = true;
  return from;
}

/// How many ops of `search` are excluded by `when`.
int Occupancy::ops_left_out(const Search& search, Lifetime when) {
  return std::max(0, when.first - search.when.first) + std::max(0, search.when.last - when.last);
}

/// Of the remembered searches that climbed higher than `from`, the one of which `when` excludes the fewest
/// ops; nullptr if it would exclude more than `most_left_out`.
const Occupancy::Search* Occupancy::most_like(Lifetime when, std::int64_t from,
                                              std::size_t most_left_out) const {
  const Search* best = nullptr;
  for (const Search& search : searches_) {
    if (search.offset <= from) continue;
    const int left_out = ops_left_out(search, when);
    if (static_cast<std::size_t>(left_out) > most_left_out) continue;
    if (best == nullptr || left_out < ops_left_out(*best, when)) best = &search;
  }
  return best;
}

/// Collects the ranges that may have blocked `search` but are not occupied at the times `when`.
void Occupancy::find_freed(const Search& search, Lifetime when, ByteRange within) {
  const auto include = [&](const Taken& taken) {
    if (taken.range.end > within.begin && taken.range.begin < within.end) scratch_.push_back(taken.range);
  };
  for (int op = search.when.first; op < when.first; ++op) {
    for (int i = last_[static_cast<std::size_t>(op)]; i >= 0;
         i = all_[static_cast<std::size_t>(i)].next_of_last) {
      include(all_[static_cast<std::size_t>(i)]);
    }
  }
  for (int op = when.last + 1; op <= search.when.last; ++op) {
    for (int i = first_[static_cast<std::size_t>(op)]; i >= 0;
         i = all_[static_cast<std::size_t>(i)].next_of_first) {
      include(all_[static_cast<std::size_t>(i)]);
    }
  }
  freed_.unite(scratch_);
}

/// Climbs from `from` to where `search` ended, over the ranges that it climbed over. Stops at the first gap
/// that `search` did not have; such gaps can only be in the ranges of find_freed.
std::int64_t Occupancy::climb_like(const Search& search, std::int64_t from, std::int64_t bytes) {
  for (const ByteRange& range : freed_.ranges()) {
    // Such a gap overlaps the range.
    from = climb(std::max(from, range.begin - bytes + 1), bytes, range.end, kAll);
    if (is_found_) return from;
  }
  return std::max(from, search.offset);
}

void Occupancy::remember(Lifetime when, std::int64_t offset) {
  if (searches_.size() < kRemembered) {
    searches_.push_back({when, offset});
  } else {
    searches_[oldest_] = {when, offset};
    oldest_ = (oldest_ + 1) % kRemembered;
  }
}

std::int64_t Occupancy::lowest_gap(Lifetime when, std::int64_t bytes) {
  if (bytes != std::exchange(searched_bytes_, bytes)) {
    searches_.clear();
    oldest_ = 0;
  }
  std::int64_t offset = 0;
  is_found_ = false;
  const Search* like = most_like(when, 0, kMostLeftOut);
  if (like == nullptr) {
    find_taken(when, 0);
  } else {
    find_freed(*like, when, {0, like->offset});
    const auto& freed = freed_.ranges();
    const std::int64_t first = freed.empty() ? like->offset : freed.front().begin - bytes + 1;
    find_taken(when, std::min(std::max(offset, first), like->offset));
    offset = climb_like(*like, offset, bytes);
  }
  for (std::size_t lookups = kMostLeftOut; !is_found_; lookups *= 2) {
    offset = climb(offset, bytes, kTop, lookups);
    if (is_found_) break;
    like = most_like(when, offset, lookups);
    if (like == nullptr) continue;
    find_freed(*like, when, {offset, like->offset});
    offset = climb_like(*like, offset, bytes);
  }
  remember(when, offset);
  return offset;
}

}  // namespace rooflm::passes
