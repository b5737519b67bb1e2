// Which bytes of an arena are taken, and when.
#pragma once

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
  /// The lowest offset, `from` or above, at which `bytes` bytes are free.
  [[nodiscard]] std::int64_t lowest_gap(std::int64_t from, std::int64_t bytes) const;
  [[nodiscard]] const std::vector<ByteRange>& ranges() const { return ranges_; }

 private:
  std::vector<ByteRange> ranges_;
};

/// Bytes taken over spans of time. Time is cut into blocks of a few ops. In the two blocks in which a span
/// begins and ends its part is kept, together with others of the same ops; the blocks between are O(log ops)
/// nodes of a segment tree. Storages that lie side by side are one range there, so that searches look at few
/// of them, however many are alive. What is taken in parts of a node is put together when a search asks for
/// it: storages of one size are placed in the order of time, so that searches seldom ask for what has just
/// changed.
class Occupancy {
 public:
  explicit Occupancy(int ops);
  void add(Lifetime when, ByteRange range);
  /// The lowest offset at which `bytes` bytes are free at all times of `when`.
  [[nodiscard]] std::int64_t lowest_gap(Lifetime when, std::int64_t bytes);

 private:
  struct Node {
    ByteRanges whole;       ///< taken over the node's whole span, as far as parents do not say so
    ByteRanges within;      ///< taken in parts of it, unless `is_stale`
    bool is_stale = false;  ///< then those above are, too
  };
  struct Span {
    Lifetime when;
    ByteRanges taken;
  };
  [[nodiscard]] Node& node(int index) { return nodes_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] std::vector<Span>& spans(int block) { return spans_[static_cast<std::size_t>(block)]; }
  void add_to_block(int block, Lifetime when, ByteRange range);
  void outdate(int index);
  void refresh(int index);
  void look_at(const ByteRanges& ranges);

  int leaves_ = 1;
  std::vector<Node> nodes_;               ///< a heap: the root is 1, the leaves are the blocks
  std::vector<std::vector<Span>> spans_;  ///< by block: the parts in it of those that begin or end there
  // Of one search or union; kept for their memory.
  std::vector<const ByteRanges*> taken_;
  std::vector<ByteRange> scratch_;
};

}  // namespace rooflm::passes
