// Which bytes of an arena are taken, and when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compile/passes/lifetime.h"

namespace rooflm::passes {

/// Bytes [begin, end) of an arena.
struct ByteRange {
  std::int64_t begin = 0, end = 0;
};

/// Ranges of bytes, sorted, those that touch joined.
class ByteRanges {
 public:
  /// [begin, end), which may overlap what is there.
  void add(ByteRange range);
  /// Becomes the union of ranges in any order, which it takes.
  void unite(std::vector<ByteRange>& ranges);
  /// Becomes the union of two others, neither of them itself.
  void unite(const ByteRanges& a, const ByteRanges& b);
  /// Adds [begin, end), which must not begin below those that are there.
  void append(ByteRange range);
  void clear() { ranges_.clear(); }
  [[nodiscard]] const std::vector<ByteRange>& ranges() const { return ranges_; }

 private:
  friend class GapSearch;
  [[nodiscard]] std::size_t reaching(std::int64_t at) const;
  std::vector<ByteRange> ranges_;
  std::ptrdiff_t looked_at_ = 0;  ///< where the last search was: the next one is often near
  std::size_t added_at_ = 0;      ///< the same, of what was added last
};

/// Looks for gaps in ranges that are sorted and apart, at offsets that only rise. The ranges must stay as
/// they are.
class GapSearch {
 public:
  explicit GapSearch(ByteRanges& ranges)
      : ranges_(&ranges), next_(ranges.ranges_.data()), end_(ranges.ranges_.data() + ranges.ranges_.size()) {}
  /// The lowest offset, `from` or above, at which `bytes` bytes are free. `from` must not be below what was
  /// answered before.
  [[nodiscard]] std::int64_t lowest_gap(std::int64_t from, std::int64_t bytes);
  /// Everything is free from here on.
  [[nodiscard]] bool is_over() const { return next_ == end_; }

 private:
  void go_near(std::int64_t from);
  ByteRanges* ranges_;
  bool is_near_ = false;
  const ByteRange* next_;
  const ByteRange* end_;
};

/// Bytes taken over spans of time, and the search for the lowest gap.
///
/// Time is cut into blocks of a few ops. In the two blocks in which a span begins and ends its part is kept,
/// together with others of the same ops; the blocks between are O(log ops) nodes of a segment tree. Storages
/// that lie side by side are one range there, so that searches look at few of them, however many are alive.
/// What is taken at any time of a node is put together when a search asks for it.
///
/// A search climbs from offset 0 over what is taken. Where gaps of many sizes lie below, as early updates
/// leave them, it would climb over all of them again for every storage. So searches of the same size are
/// remembered: all that one of them climbed over is still in the way of a later one, but for what is taken
/// only at times that the later one leaves out. A search that becomes long looks at those bytes only, and
/// goes on where the other ended. Storages of one size come in the order of time, so two searches of
/// neighbouring layers differ by a few ops.
class Occupancy {
 public:
  explicit Occupancy(int ops);
  void add(Lifetime when, ByteRange range);
  /// The lowest offset at which `bytes` bytes are free at all times of `when`. Fast when calls of one size
  /// follow each other in the order of time.
  [[nodiscard]] std::int64_t lowest_gap(Lifetime when, std::int64_t bytes);
  /// Lists of ranges that searches have looked into so far: what planning takes.
  [[nodiscard]] std::int64_t lookups() const { return lookups_; }

 private:
  struct Node {
    ByteRanges whole;  ///< taken over the node's whole span, as far as parents do not say so
    ByteRanges taken;  ///< at any time of it, but for what was `added` since; not if `is_stale`
    std::vector<ByteRange> added;
    std::int64_t end = 0;  ///< of what is taken
    bool is_stale = false;
  };
  struct Span {
    Lifetime when;
    ByteRanges taken;
  };
  /// What was added, in lists by the ops at which it begins to be taken and ends: indices, -1 for none.
  struct Taken {
    ByteRange range;
    int next_of_first, next_of_last;
  };
  /// At some time of `when` each place of that size below `offset` is taken.
  struct Search {
    Lifetime when;
    std::int64_t offset = 0;
  };
  [[nodiscard]] Node& node(int index) { return nodes_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] std::vector<Span>& spans(int block) { return spans_[static_cast<std::size_t>(block)]; }
  void add_to_block(int block, Lifetime when, ByteRange range);
  static void take(Node& n, ByteRange range);
  void refresh(int index);
  void look_at(ByteRanges& ranges, std::int64_t from);
  void find_taken(Lifetime when, std::int64_t from);
  [[nodiscard]] std::int64_t climb(std::int64_t from, std::int64_t bytes, std::int64_t until,
                                   std::size_t most_lookups);
  [[nodiscard]] static int ops_left_out(const Search& search, Lifetime when);
  [[nodiscard]] const Search* most_like(Lifetime when, std::int64_t from, std::size_t most_left_out) const;
  void find_freed(const Search& search, Lifetime when, ByteRange within);
  [[nodiscard]] std::int64_t climb_like(const Search& search, std::int64_t from, std::int64_t bytes);
  void remember(Lifetime when, std::int64_t offset);

  int leaves_ = 1;
  std::vector<Node> nodes_;               ///< a heap: the root is 1, the leaves are the blocks
  std::vector<std::vector<Span>> spans_;  ///< by block: the parts in it of those that begin or end there
  std::vector<Taken> all_;
  std::vector<int> first_, last_;                 ///< by op: the head of its list
  static constexpr std::size_t kRemembered = 32;  ///< a layer has that many storages of one size
  std::vector<Search> searches_;                  ///< for `searched_bytes_`; a ring
  std::size_t oldest_ = 0;
  std::int64_t searched_bytes_ = -1;
  // Of one search: what it climbs over, and whether the last climb found a gap.
  std::vector<GapSearch> taken_;
  bool is_found_ = false;
  // Of one union; kept for their memory.
  std::vector<ByteRange> scratch_;
  ByteRanges freed_, united_, added_;
  std::int64_t lookups_ = 0;
};

}  // namespace rooflm::passes
