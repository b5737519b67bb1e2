// Ranks of a split program: which ranks a collective joins, and which part of a tensor each of them has.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"
#include "program/shard.h"

namespace rooflm::program {

/// The position of a rank: 0 <= coordinate < extent of the Mesh.
struct Coordinates {
  int tensor = 0;
  int data = 0;
  int pipeline = 0;
  bool operator==(const Coordinates&) const = default;
};

/// The number of ranks along each axis. Rank numbers vary fastest along `tensor`, then `data`, then
/// `pipeline`, so ranks that communicate most are neighbours.
struct Mesh {
  int tensor = 1;
  int data = 1;
  int pipeline = 1;
  int context = 1;     ///< this many neighbours within `data` share each sequence
  int interleave = 1;  ///< model parts per pipeline stage; each sends to the next part
  int expert = 1;      ///< this many neighbours within `data` have some of the experts each
  [[nodiscard]] int size() const { return tensor * data * pipeline; }
  [[nodiscard]] Coordinates coordinates_of(int rank) const;
  [[nodiscard]] int rank_of(const Coordinates& at) const;
  /// The ranks of `rank`'s group, ordered by their index in it. The group `tied` is empty for stages between
  /// the first and the last.
  [[nodiscard]] std::vector<int> members(int rank, Group group) const;
};

/// Elements [begin, end) of a tensor.
struct Part {
  std::int64_t begin = 0, end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
};
/// Part `index` of `elements` split in order into `parts`. All but the last few parts have the same size, a
/// multiple of `unit`; the last ones may be shorter or empty.
Part part_of(std::int64_t elements, int parts, int index, std::int64_t unit);

/// How a collective cuts a tensor: into parts of multiples of `unit`, or not at all where one rank owns it.
struct Cut {
  static constexpr int kNobody = -1;
  std::int64_t unit = 1;
  int owner = kNobody;  ///< index in the group of the rank that has all; the parts of the others are empty
};
Part part_of(std::int64_t elements, int parts, int index, const Cut& cut);
/// Of the tensor whose part on this rank is `part`, in the collective `op`: its owner is among `part`'s
/// shards.
Cut cut_of(const Program& program, const Op& op, TensorId part);

/// The shape of the shard, given the shape of the whole tensor in it.
core::Shape shape_of(const Shard& shard);
/// The shape of the whole tensor that `tensor` is a part of; its own shape if it is not split.
core::Shape whole_shape(const Tensor& tensor);
/// For each element of the tensor, its index in the whole tensor, by Tensor::shards.
std::vector<std::int64_t> elements_of(const Tensor& tensor);
/// Whether the tensor is split over the ranks of that group.
bool is_split(const Tensor& tensor, Group group);
/// Whether one rank has all of the tensor, this or another.
bool is_owned(const Tensor& tensor);

/// Parts of weights, gradients and optimizer state begin at multiples of this many elements, so they are
/// aligned for 64-byte vectors.
inline constexpr std::int64_t kPartUnit = 16;

/// Whether the op moves data between ranks.
inline bool is_collective(const Op& op) { return op.def->work == Work::collective; }
/// Whether the op is a point-to-point message between pipeline stages (send, receive).
bool is_message(const Op& op);
/// The attribute "group" of a collective.
Group group_of(const Op& op);
/// Bytes that a collective handles on one rank: the whole tensors that an all_reduce sums, a reduce_scatter
/// begins with, or an all_gather ends with; for send and receive the bytes sent; for a barrier the numbers.
/// How many of them cross which link is up to the cost model of the collective.
std::int64_t payload_bytes(const Program& program, const Op& op);

}  // namespace rooflm::program
