// Which bytes of an arena are taken, and when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "compile/passes/lifetime.h"

namespace rooflm::passes {

/// Ranges of bytes, sorted, those that touch joined.
class ByteRanges {
 public:
  /// [begin, end), which may overlap what is there.
  void add(std::int64_t begin, std::int64_t end);
  /// The lowest offset, `from` or above, at which `bytes` bytes are free.
  [[nodiscard]] std::int64_t lowest_gap(std::int64_t from, std::int64_t bytes) const;
  [[nodiscard]] bool empty() const { return lowest_.begin == lowest_.end; }

 private:
  struct Range {
    std::int64_t begin = 0, end = 0;
  };
  Range lowest_;  ///< in the object: most nodes of a tree have one range or none
  std::vector<Range> more_;
};

/// Bytes taken over spans of time: a segment tree over the ops, in which a span is O(log ops) nodes. Storages
/// that lie side by side in a node are one range there, so that searches look at few of them, however many
/// are alive.
class Occupancy {
 public:
  explicit Occupancy(int ops);
  void add(Lifetime when, std::int64_t begin, std::int64_t end);
  /// The lowest offset at which `bytes` bytes are free at all times of `when`.
  [[nodiscard]] std::int64_t lowest_gap(Lifetime when, std::int64_t bytes) const;

 private:
  struct Node {
    ByteRanges whole;   ///< taken over the node's whole span, as far as parents do not say so
    ByteRanges within;  ///< taken during a part of it, at least
  };
  int leaves_ = 1;
  std::vector<Node> nodes_;  ///< a heap: the root is 1, the leaves are the last ones
  mutable std::vector<const ByteRanges*> taken_;  ///< of one search; kept for its memory
};

}  // namespace rooflm::passes
