// Which part of a tensor a rank has.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/shape.h"

namespace rooflm::program {

/// The ranks of a collective: those that differ only in this coordinate. `tied`: the first and last pipeline
/// stages, which share the weight of a tied head. `context`: neighbours within `data` that share sequences.
/// `expert`: neighbours within `data` that have some experts each; `copies`: ranks of `data` with the same
/// ones.
enum class Group : std::uint8_t { tensor, data, pipeline, tied, context, expert, copies };
std::string_view name_of(Group group);

/// One of the parts of a tensor of shape `whole` that is split over the ranks of a group.
struct Shard {
  /// Instead of an axis: all elements in order, so parts need not be whole rows (program::part_of).
  static constexpr int kElements = -1;
  /// Instead of an axis: the rank `owner` has all of it, the others nothing.
  static constexpr int kOwner = -2;

  Group group = Group::data;
  int axis = kElements;
  int index = 0;
  int parts = 1;
  int owner = 0;  ///< with kOwner: its index in the group
  core::Shape whole{};
  /// Extents along the axis that are split separately, such as the rows of q, k and v in one weight. Empty:
  /// one.
  std::vector<std::int64_t> packed{};
  bool operator==(const Shard&) const = default;
};

}  // namespace rooflm::program
