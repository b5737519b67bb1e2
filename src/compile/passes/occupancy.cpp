// Which bytes of an arena are taken, and when.
#include "compile/passes/occupancy.h"

#include <algorithm>
#include <cstddef>

namespace rooflm::passes {
namespace {

/// Ops of a block: enough that the tree stays in a cache, few enough to be looked at one by one.
constexpr int kBlock = 16;

int block_of(int op) { return op / kBlock; }

/// Calls use(node) for the fewest nodes of a tree of `leaves` leaves whose spans make up the blocks between
/// those in which `when` begins and ends.
template <class Use>
void for_parts(int leaves, Lifetime when, Use&& use) {
  int low = block_of(when.first) + 1 + leaves;
  int high = block_of(when.last) + leaves;
  for (; low < high; low /= 2, high /= 2) {
    if (low % 2 == 1) use(low++);
    if (high % 2 == 1) use(--high);
  }
}

/// Calls use(node) for the blocks in which `when` begins and ends and all nodes above them.
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

}  // namespace

void ByteRanges::add(ByteRange range) {
  const auto first = std::lower_bound(ranges_.begin(), ranges_.end(), range.begin,
                                      [](const ByteRange& r, std::int64_t at) { return r.end < at; });
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

void ByteRanges::unite(std::vector<ByteRange>& ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  ranges_.clear();
  for (const ByteRange& range : ranges) {
    if (ranges_.empty() || range.begin > ranges_.back().end) {
      ranges_.push_back(range);
    } else {
      ranges_.back().end = std::max(ranges_.back().end, range.end);
    }
  }
  ranges.clear();
}

std::int64_t ByteRanges::lowest_gap(std::int64_t from, std::int64_t bytes) const {
  // The first range that ends above `from`: a binary search without branches, of which half would be guessed
  // wrong. Most of the time of a plan is spent here.
  const ByteRange* range = ranges_.data();
  const ByteRange* const end = range + ranges_.size();
  for (std::size_t count = ranges_.size(); count > 0; count /= 2) {
    const std::size_t half = (count + 1) / 2;
    range += half * static_cast<std::size_t>(range[half - 1].end <= from);
  }
  for (; range != end && range->begin < from + bytes; ++range) from = range->end;
  return from;
}

Occupancy::Occupancy(int ops) {
  const int blocks = block_of(ops) + 1;
  while (leaves_ < blocks) leaves_ *= 2;
  nodes_.resize(2 * static_cast<std::size_t>(leaves_));
  spans_.resize(static_cast<std::size_t>(blocks));
}

void Occupancy::outdate(int index) {
  for (; index > 0 && !node(index).is_stale; index /= 2) node(index).is_stale = true;
}

void Occupancy::add_to_block(int block, Lifetime when, ByteRange range) {
  const Lifetime part{.first = std::max(when.first, block * kBlock),
                      .last = std::min(when.last, block * kBlock + kBlock - 1)};
  std::vector<Span>& all = spans(block);
  auto same = std::find_if(all.begin(), all.end(), [&](const Span& span) { return span.when == part; });
  if (same == all.end()) same = all.insert(same, {.when = part, .taken = {}});
  same->taken.add(range);
  outdate(block + leaves_);
}

void Occupancy::add(Lifetime when, ByteRange range) {
  const int first = block_of(when.first);
  const int last = block_of(when.last);
  add_to_block(first, when, range);
  if (last == first) return;
  add_to_block(last, when, range);
  for_parts(leaves_, when, [&](int part) {
    node(part).whole.add(range);
    outdate(part / 2);
  });
}

/// Puts together what is taken within a node.
void Occupancy::refresh(int index) {
  if (!node(index).is_stale) return;
  const int left = 2 * index;
  const auto include = [&](const ByteRanges& part) {
    scratch_.insert(scratch_.end(), part.ranges().begin(), part.ranges().end());
  };
  if (index < leaves_) {
    refresh(left);
    refresh(left + 1);
    for (const Node* child : {&node(left), &node(left + 1)}) {
      include(child->whole);
      include(child->within);
    }
  } else {
    for (const Span& span : spans(index - leaves_)) include(span.taken);
  }
  node(index).within.unite(scratch_);
  node(index).is_stale = false;
}

void Occupancy::look_at(const ByteRanges& ranges) {
  if (!ranges.ranges().empty()) taken_.push_back(&ranges);
}

std::int64_t Occupancy::lowest_gap(Lifetime when, std::int64_t bytes) {
  taken_.clear();
  for_parts(leaves_, when, [&](int part) {
    refresh(part);
    look_at(node(part).whole);
    look_at(node(part).within);
  });
  const int first = block_of(when.first);
  const int last = block_of(when.last);
  for (int block = first; block <= last; block += std::max(1, last - first)) {
    for (const Span& span : spans(block)) {
      if (span.when.first <= when.last && when.first <= span.when.last) look_at(span.taken);
    }
  }
  for_ends(leaves_, when, [&](int end) { look_at(node(end).whole); });
  // From the root down: what was placed first lies low, and in the nodes with the longest spans.
  std::int64_t offset = 0;
  std::size_t agreeing = 0;  // of those looked at last
  std::size_t i = 0;
  while (agreeing != taken_.size()) {
    i = (i > 0 ? i : taken_.size()) - 1;
    const std::int64_t next = taken_[i]->lowest_gap(offset, bytes);
    ++lookups_;
    agreeing = next == offset ? agreeing + 1 : 1;
    offset = next;
  }
  return offset;
}

}  // namespace rooflm::passes
