// Ranks of a program that is split over devices: which of them a collective joins, and which part of a tensor
// each of them has.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"
#include "program/shard.h"

namespace rooflm::program {

/// Where a rank is among all: 0 <= coordinate < extent of the Mesh.
struct Coordinates {
  int tensor = 0;
  int data = 0;
  int pipeline = 0;
  bool operator==(const Coordinates&) const = default;
};

/// How many ranks there are in each direction. Numbers of ranks count `tensor` first, then `data`, then
/// `pipeline`, so that those that say most to each other are neighbours.
struct Mesh {
  int tensor = 1;
  int data = 1;
  int pipeline = 1;
  int context = 1;     ///< of `data` so many neighbours have parts of the same sequences
  int interleave = 1;  ///< parts of the model that a stage has, each of which sends to the next
  [[nodiscard]] int size() const { return tensor * data * pipeline; }
  [[nodiscard]] Coordinates coordinates_of(int rank) const;
  [[nodiscard]] int rank_of(const Coordinates& at) const;
  /// The ranks of the group that `rank` is in, in the order of their index in it. The group `tied` is empty
  /// for stages between the first and the last.
  [[nodiscard]] std::vector<int> members(int rank, Group group) const;
};

/// Elements [begin, end) of a tensor.
struct Part {
  std::int64_t begin = 0, end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
};
/// Part `index` of `elements` that are split in their order into `parts`: each but the last is the same
/// multiple of `unit` elements; the last ones may be shorter or empty.
Part part_of(std::int64_t elements, int parts, int index, std::int64_t unit);

/// What is left of `whole` on the rank that has the shard.
core::Shape shape_of(const Shard& shard);
/// The shape of the tensor that `tensor` is a part of; its own when it is whole.
core::Shape whole_shape(const Tensor& tensor);
/// Of each element of the tensor its position in the whole one, by Tensor::shards.
std::vector<std::int64_t> elements_of(const Tensor& tensor);
/// Whether the tensor is split over the ranks of that group.
bool is_split(const Tensor& tensor, Group group);

/// Parts of weights, gradients and optimizer state begin on a border of that many elements, so that vectors
/// of 64 bytes fit them.
inline constexpr std::int64_t kPartUnit = 16;

/// Whether the op moves data between ranks.
inline bool is_collective(const Op& op) { return op.def->work == Work::collective; }
/// Whether it goes to, or comes from, one other rank: stages of a pipeline.
bool is_message(const Op& op);
/// The attribute "group" of a collective.
Group group_of(const Op& op);
/// What a collective is about, of one rank: bytes of the whole tensors, which an all_reduce adds up, a
/// reduce_scatter begins with and an all_gather ends with; of a send or receive those that are sent. What
/// of it crosses which link is the business of who models the collective.
std::int64_t payload_bytes(const Program& program, const Op& op);

}  // namespace rooflm::program
