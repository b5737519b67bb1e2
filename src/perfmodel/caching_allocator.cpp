// What PyTorch's caching allocator holds for a step.
#include "perfmodel/caching_allocator.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "compile/passes/plan_memory.h"
#include "compile/planned/collective_copies.h"
#include "core/scope.h"
#include "program/groups.h"
#include "program/ops.h"

namespace rooflm::perfmodel {
namespace {

using program::Op;
using program::Program;
using program::Tensor;
using program::TensorId;

/// The memory of one stream, as one range of addresses that grows.
class Pool {
 public:
  std::int64_t allocate(std::int64_t bytes) {
    const auto best = by_size_.lower_bound({bytes, 0});
    if (best == by_size_.end()) return extend(bytes);
    const auto [size, offset] = *best;
    take(free_.find(offset));
    if (size > bytes) give(offset + bytes, size - bytes);
    return offset;
  }

  void release(std::int64_t offset, std::int64_t bytes) {
    const auto after = free_.find(offset + bytes);
    if (after != free_.end()) {
      bytes += after->second;
      take(after);
    }
    auto before = free_.lower_bound(offset);
    if (before != free_.begin()) {
      --before;
      if (before->first + before->second == offset) {
        offset = before->first;
        bytes += before->second;
        take(before);
      }
    }
    give(offset, bytes);
  }

  [[nodiscard]] std::int64_t reserved() const { return end_; }

 private:
  using Blocks = std::map<std::int64_t, std::int64_t>;

  /// The last free block grows by what it lacks.
  std::int64_t extend(std::int64_t bytes) {
    std::int64_t offset = end_;
    if (!free_.empty()) {
      const auto last = std::prev(free_.end());
      if (last->first + last->second == end_) {
        offset = last->first;
        take(last);
      }
    }
    end_ = offset + bytes;
    return offset;
  }

  void give(std::int64_t offset, std::int64_t bytes) {
    free_.emplace(offset, bytes);
    by_size_.emplace(bytes, offset);
  }
  void take(Blocks::iterator block) {
    by_size_.erase({block->second, block->first});
    free_.erase(block);
  }

  Blocks free_;                                              ///< bytes by offset
  std::set<std::pair<std::int64_t, std::int64_t>> by_size_;  ///< the same: bytes, offset
  std::int64_t end_ = 0;
};

Stream stream_of(const Op& op) {
  const bool is_data = program::is_collective(op) && program::group_of(op) == program::Group::data;
  if (is_data && op.is(program::ops::kAllGather)) return Stream::gather;
  if (is_data && op.is(program::ops::kReduceScatter)) return Stream::reduce;
  return Stream::compute;
}

/// Blocks are multiples of this (kMinBlockSize).
std::int64_t block_bytes(const Tensor& tensor) {
  constexpr std::int64_t kBlock = 512;
  return (tensor.bytes() + kBlock - 1) / kBlock * kBlock;
}

bool is_unit(const Program& program, const Op& op) {
  return op.is(passes::kRearrange) && program.tensor(op.outputs.at(0)).role == program::Role::gathered_weight;
}

/// Weights of a unit are freed together.
void free_units_together(const Program& program, std::vector<passes::Lifetime>& lives) {
  for (const Op& op : program.ops) {
    if (!is_unit(program, op)) continue;
    int last = -1;
    for (const TensorId id : op.outputs) last = std::max(last, lives[static_cast<std::size_t>(id)].last);
    for (const TensorId id : op.outputs) lives[static_cast<std::size_t>(id)].last = last;
  }
}

/// A cast of a part of a weight that only gathers read is made for each of them.
void shorten_gathered_parts(const Program& program, std::vector<passes::Lifetime>& lives) {
  std::vector<int> last_gather(program.tensors.size(), -1);
  std::vector<bool> has_other(program.tensors.size(), false);
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const bool is_gather = stream_of(program.ops[i]) == Stream::gather;
    for (const TensorId id : program.ops[i].inputs) {
      if (id == program::kNone) continue;
      const auto index = static_cast<std::size_t>(id);
      if (is_gather)
        last_gather[index] = static_cast<int>(i);
      else
        has_other[index] = true;
    }
  }
  for (const Op& op : program.ops) {
    if (!op.is(program::ops::kCast)) continue;
    const auto part = static_cast<std::size_t>(op.outputs.at(0));
    if (last_gather[part] >= 0 && !has_other[part]) lives[part].first = lives[part].last = last_gather[part];
  }
}

/// The last backward op of each layer and micro-batch.
std::map<std::pair<std::int64_t, int>, int> backward_ends(const Program& program) {
  std::map<std::pair<std::int64_t, int>, int> ends;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    const auto layer = core::Scope(op.scope).layer();
    if (layer && op.phase == program::Phase::backward) ends[{*layer, op.micro_batch}] = static_cast<int>(i);
  }
  return ends;
}

void hold_unread_saves(const Program& program, std::vector<passes::Lifetime>& lives) {
  const auto ends = backward_ends(program);
  for (const Op& op : program.ops) {
    const core::Scope scope(op.scope);
    if (!program::ops::is_matmul(op) || op.phase != program::Phase::forward) continue;
    if (scope.part() != "feed_forward/fc2") continue;
    const auto end = ends.find({*scope.layer(), op.micro_batch});
    auto& life = lives[static_cast<std::size_t>(op.outputs.at(0))];
    if (end != ends.end()) life.last = std::max(life.last, end->second);
  }
}

/// From the forward pass until they are gathered for the backward pass: that they then are once more takes no
/// more memory.
void hold_last_layer(const Program& program, std::vector<passes::Lifetime>& lives) {
  std::int64_t last_layer = -1;
  for (const Op& op : program.ops)
    last_layer = std::max(last_layer, core::Scope(op.scope).layer().value_or(-1));
  const Op* before = nullptr;  // the unit of the last layer that was gathered last
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (!is_unit(program, op) || core::Scope(op.scope).layer() != last_layer) continue;
    if (before != nullptr) {
      for (const TensorId id : before->outputs) {
        int& last = lives[static_cast<std::size_t>(id)].last;
        last = std::max(last, static_cast<int>(i) - 1);
      }
    }
    before = &op;
  }
}

}  // namespace

std::vector<passes::Lifetime> held_lifetimes(const Program& program, const HeldTensors& held) {
  auto lives = passes::find_lifetimes(program);
  free_units_together(program, lives);
  shorten_gathered_parts(program, lives);
  if (held.has_unread_saves) hold_unread_saves(program, lives);
  if (held.keeps_last_layer) hold_last_layer(program, lives);
  return lives;
}

ReservedBytes reserved_bytes(const Program& program, const std::vector<passes::Lifetime>& lifetimes) {
  std::vector<std::vector<TensorId>> born(program.ops.size()), done(program.ops.size() + 1);
  for (std::size_t i = 0; i < program.tensors.size(); ++i) {
    const Tensor& tensor = program.tensors[i];
    const passes::Lifetime life = lifetimes[i];
    if (program::is_persistent(tensor.role) || tensor.view_of != program::kNone || life.first < 0) continue;
    born[static_cast<std::size_t>(life.first)].push_back(static_cast<TensorId>(i));
    done[std::min(program.ops.size(), static_cast<std::size_t>(life.last))].push_back(
        static_cast<TensorId>(i));
  }
  std::array<Pool, 3> pools;
  const auto pool_of = [&](Stream stream) -> Pool& { return pools.at(static_cast<std::size_t>(stream)); };
  std::vector<std::int64_t> offsets(program.tensors.size());
  std::vector<Stream> streams(program.tensors.size(), Stream::compute);
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    for (const TensorId id : born[i]) {
      const auto index = static_cast<std::size_t>(id);
      const bool is_output = std::ranges::find(op.outputs, id) != op.outputs.end();
      const Stream stream = is_output ? stream_of(op) : Stream::compute;
      streams[index] = stream;
      offsets[index] = pool_of(stream).allocate(block_bytes(program.tensor(id)));
    }
    for (const TensorId id : done[i]) {
      const auto index = static_cast<std::size_t>(id);
      pool_of(streams[index]).release(offsets[index], block_bytes(program.tensor(id)));
    }
  }
  const auto reserved = [&](Stream stream) { return static_cast<double>(pool_of(stream).reserved()); };
  return {.compute = reserved(Stream::compute),
          .gather = reserved(Stream::gather),
          .reduce = reserved(Stream::reduce),
          .streams = std::move(streams)};
}

}  // namespace rooflm::perfmodel
