// Ranks of a split program.
#include "program/groups.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "core/checked.h"
#include "program/ops.h"

namespace rooflm::program {

std::string_view name_of(Group group) {
  constexpr std::array<std::string_view, 7> kNames{"tensor",  "data",   "pipeline", "tied",
                                                   "context", "expert", "copies"};
  return kNames.at(static_cast<std::size_t>(group));
}

Coordinates Mesh::coordinates_of(int rank) const {
  return {.tensor = rank % tensor, .data = rank / tensor % data, .pipeline = rank / (tensor * data)};
}

int Mesh::rank_of(const Coordinates& at) const { return at.tensor + tensor * (at.data + data * at.pipeline); }

std::vector<int> Mesh::members(int rank, Group group) const {
  Coordinates at = coordinates_of(rank);
  std::vector<int> ranks;
  const auto walk = [&](int& coordinate, int extent) {
    for (coordinate = 0; coordinate < extent; ++coordinate) ranks.push_back(rank_of(at));
  };
  switch (group) {
    case Group::tensor:
      walk(at.tensor, tensor);
      break;
    case Group::data:
      walk(at.data, data);
      break;
    case Group::pipeline:
      walk(at.pipeline, pipeline);
      break;
    case Group::context:
    case Group::expert: {
      const int size = group == Group::context ? context : expert;
      for (int i = 0, first = at.data - at.data % size; i < size; ++i) {
        at.data = first + i;
        ranks.push_back(rank_of(at));
      }
      break;
    }
    case Group::copies:
      for (at.data %= expert; at.data < data; at.data += expert) ranks.push_back(rank_of(at));
      break;
    case Group::tied:
      if (at.pipeline != 0 && at.pipeline != pipeline - 1) break;
      for (const int stage : {0, pipeline - 1}) {
        at.pipeline = stage;
        if (ranks.empty() || rank_of(at) != ranks.back()) ranks.push_back(rank_of(at));
      }
      break;
  }
  return ranks;
}

Part part_of(std::int64_t elements, int parts, int index, std::int64_t unit) {
  const std::int64_t units = (elements + unit - 1) / unit;
  const std::int64_t size = (units + parts - 1) / parts * unit;
  return {.begin = std::min(elements, index * size), .end = std::min(elements, (index + 1) * size)};
}

Part part_of(std::int64_t elements, int parts, int index, const Cut& cut) {
  if (cut.owner == Cut::kNobody) return part_of(elements, parts, index, cut.unit);
  return {.begin = 0, .end = index == cut.owner ? elements : 0};
}

Cut cut_of(const Program& program, const Op& op, TensorId part) {
  const Tensor& tensor = program.tensor(part);
  return {.unit = op.attrs.has("unit") ? op.attrs.integer("unit") : 1,
          .owner = is_owned(tensor) ? tensor.shards.back().owner : Cut::kNobody};
}

core::Shape shape_of(const Shard& shard) {
  if (shard.axis == Shard::kOwner) return shard.index == shard.owner ? shard.whole : core::Shape{0};
  if (shard.axis == Shard::kElements)
    return {part_of(shard.whole.numel(), shard.parts, shard.index, kPartUnit).size()};
  return shard.whole.with(shard.axis, shard.whole[shard.axis] / shard.parts);
}

core::Shape whole_shape(const Tensor& tensor) {
  return tensor.shards.empty() ? tensor.shape : tensor.shards.front().whole;
}

namespace {

/// Indices in `whole` of the elements of one shard.
std::vector<std::int64_t> elements_of(const Shard& shard) {
  std::vector<std::int64_t> elements;
  if (shard.axis < 0) {
    const Cut cut{.unit = kPartUnit, .owner = shard.axis == Shard::kOwner ? shard.owner : Cut::kNobody};
    const Part part = part_of(shard.whole.numel(), shard.parts, shard.index, cut);
    elements.resize(static_cast<std::size_t>(part.size()));
    std::iota(elements.begin(), elements.end(), part.begin);
    return elements;
  }
  std::int64_t inner = 1;
  for (std::size_t i = static_cast<std::size_t>(shard.axis) + 1; i < shard.whole.rank(); ++i)
    inner *= shard.whole.dims()[i];
  const std::int64_t extent = shard.whole[shard.axis];
  const std::vector<std::int64_t> packed = shard.packed.empty() ? std::vector{extent} : shard.packed;
  elements.reserve(static_cast<std::size_t>(shape_of(shard).numel()));
  for (std::int64_t outer = 0; outer < shard.whole.numel() / (extent * inner); ++outer) {
    std::int64_t first = outer * extent;
    for (const std::int64_t rows : packed) {
      const std::int64_t own = rows / shard.parts;
      for (std::int64_t i = 0; i < own * inner; ++i)
        elements.push_back((first + own * shard.index) * inner + i);
      first += rows;
    }
  }
  return elements;
}

}  // namespace

std::vector<std::int64_t> elements_of(const Tensor& tensor) {
  std::vector<std::int64_t> elements(static_cast<std::size_t>(whole_shape(tensor).numel()));
  std::iota(elements.begin(), elements.end(), 0);
  for (const Shard& shard : tensor.shards) {
    std::vector<std::int64_t> own = elements_of(shard);
    for (std::int64_t& element : own) element = elements[static_cast<std::size_t>(element)];
    elements = std::move(own);
  }
  return elements;
}

bool is_split(const Tensor& tensor, Group group) {
  return std::any_of(tensor.shards.begin(), tensor.shards.end(),
                     [&](const Shard& shard) { return shard.group == group; });
}

bool is_owned(const Tensor& tensor) {
  return !tensor.shards.empty() && tensor.shards.back().axis == Shard::kOwner;
}

bool is_message(const Op& op) { return op.is(ops::kSend) || op.is(ops::kReceive); }

Group group_of(const Op& op) { return static_cast<Group>(op.attrs.integer("group")); }

std::int64_t payload_bytes(const Program& program, const Op& op) {
  if (op.is(ops::kBarrier)) return cost_of(program, op).bytes_read;
  // What is sent and what arrives, on average; there is room for more.
  if (op.is(ops::kExchangeRows) || op.is(ops::kReturnRows))
    return std::min(program.tensor(op.inputs[0]).bytes(), program.tensor(op.outputs[0]).bytes());
  const auto sum = [&](const std::vector<TensorId>& ids) {
    core::Count bytes = 0;
    for (const TensorId id : ids) bytes = bytes + program.tensor(id).bytes();
    return std::int64_t{bytes};
  };
  return std::max(sum(op.inputs), sum(op.outputs));
}

}  // namespace rooflm::program
