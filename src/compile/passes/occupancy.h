// Which bytes of an arena are occupied at which time.
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

/// Sorted, disjoint ranges of bytes; adjacent ranges are merged.
class ByteRanges {
 public:
  /// Adds a range, which may overlap existing ones.
  void add(ByteRange range);
  /// Becomes the union of the given ranges, in any order; consumes them.
  void unite(std::vector<ByteRange>& ranges);
  /// Becomes the union of two other sets; neither may be this one.
  void unite(const ByteRanges& a, const ByteRanges& b);
  /// Adds a range that begins at or above all existing ones.
  void append(ByteRange range);
  void clear() { ranges_.clear(); }
  [[nodiscard]] const std::vector<ByteRange>& ranges() const { return ranges_; }

 private:
  friend class GapSearch;
  [[nodiscard]] std::size_t reaching(std::int64_t at) const;
  std::vector<ByteRange> ranges_;
  std::ptrdiff_t looked_at_ = 0;  ///< position of the last search; the next one is often near
  std::size_t added_at_ = 0;      ///< position of the last addition
};

/// Searches for gaps in sorted, disjoint ranges, at non-decreasing offsets. The ranges must not change
/// meanwhile.
class GapSearch {
 public:
  explicit GapSearch(ByteRanges& ranges)
      : ranges_(&ranges), next_(ranges.ranges_.data()), end_(ranges.ranges_.data() + ranges.ranges_.size()) {}
  /// The lowest offset >= `from` with `bytes` free bytes. `from` must not be below an earlier answer.
  [[nodiscard]] std::int64_t lowest_gap(std::int64_t from, std::int64_t bytes);
  /// Whether everything from here on is free.
  [[nodiscard]] bool is_over() const { return next_ == end_; }

 private:
  void go_near(std::int64_t from);
  ByteRanges* ranges_;
  bool is_near_ = false;
  const ByteRange* next_;
  const ByteRange* end_;
};

/// Which bytes are occupied over which time spans, and the search for the lowest gap.
///
/// Time is cut into blocks of a few ops. The first and the last block of a span hold their part of it in
/// lists by op; the blocks in between are covered by O(log ops) nodes of a segment tree. Adjacent storages
/// are one range in a node, so a search visits few ranges however many storages are alive. The union of all
/// that is occupied at any time of a node is computed lazily, when a search needs it.
///
/// A search climbs from offset 0 over the occupied ranges. If many small gaps lie low, as early updates leave
/// them, it would climb over all of them again for every storage. So searches of the same size are
/// remembered: whatever one of them climbed over still blocks a later one, except ranges occupied only at
/// times that the later one excludes. A search that becomes long examines only those ranges and continues
/// where the remembered one ended. Storages of one size arrive in order of time, so the searches of
/// neighbouring layers differ by a few ops.
class Occupancy {
 public:
  explicit Occupancy(int ops);
  void add(Lifetime when, ByteRange range);
  /// The lowest offset with `bytes` free bytes at all times of `when`. Fast if calls with one size come in
  /// order of time.
  [[nodiscard]] std::int64_t lowest_gap(Lifetime when, std::int64_t bytes);
  /// Number of range lists examined so far: a measure of the planning time.
  [[nodiscard]] std::int64_t lookups() const { return lookups_; }

 private:
  struct Node {
    ByteRanges whole;  ///< occupied over the node's whole span, unless a parent already says so
    /// Occupied at any time of the span, except ranges `added` since; invalid if `is_stale`.
    ByteRanges taken;
    std::vector<ByteRange> added;
    std::int64_t end = 0;  ///< end of the highest occupied range
    bool is_stale = false;
  };
  struct Span {
    Lifetime when;
    ByteRanges taken;
  };
  /// A range in two linked lists, by the op at which it becomes occupied and the op at which it is freed.
  /// The links are indices; -1 ends a list.
  struct Taken {
    ByteRange range;
    int next_of_first, next_of_last;
  };
  /// At some time of `when` every place of that size below `offset` is occupied.
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
  std::vector<std::vector<Span>> spans_;  ///< by block: the spans that begin or end in it
  std::vector<Taken> all_;
  std::vector<int> first_, last_;                 ///< by op: the head of its list
  static constexpr std::size_t kRemembered = 32;  ///< about the number of storages of one size in a layer
  std::vector<Search> searches_;                  ///< for `searched_bytes_`; a ring buffer
  std::size_t oldest_ = 0;
  std::int64_t searched_bytes_ = -1;
  // State of one search: the ranges it climbs over, and whether the last climb found a gap.
  std::vector<GapSearch> taken_;
  bool is_found_ = false;
  // Scratch for a union; kept to reuse its memory.
  std::vector<ByteRange> scratch_;
  ByteRanges freed_, united_, added_;
  std::int64_t lookups_ = 0;
};

}  // namespace rooflm::passes
