// What one rank's step keeps in memory, by role, from the lifetimes of its program.
#include "perfmodel/rank_memory.h"

#include <algorithm>
#include <array>
#include <vector>

#include "compile/passes/plan_memory.h"
#include "core/scope.h"

namespace rooflm::perfmodel {
namespace {

using program::Program;
using program::Role;
using program::Tensor;

enum Part : std::uint8_t { kWeights, kOptimizer, kGradients, kActivations, kOthers, kParts };

Part part_of(Role role) {
  switch (role) {
    case Role::weight:
    case Role::gathered_weight:
      return kWeights;
    case Role::optimizer_state:
      return kOptimizer;
    case Role::gradient:
      return kGradients;
    case Role::activation:
    case Role::activation_gradient:
      return kActivations;
    default:
      return kOthers;
  }
}

/// Bytes of each part by op, as differences from one op to the next.
class AliveBytes {
 public:
  explicit AliveBytes(std::size_t ops) { changes_.resize(ops + 1); }
  void add(Part part, passes::Lifetime life, std::int64_t bytes) {
    if (life.last < life.first || life.first < 0) return;
    changes_[static_cast<std::size_t>(life.first)].at(part) += bytes;
    changes_[std::min(changes_.size() - 1, static_cast<std::size_t>(life.last) + 1)].at(part) -= bytes;
  }
  /// What is alive when most is.
  [[nodiscard]] std::array<std::int64_t, kParts> peak() const {
    std::array<std::int64_t, kParts> alive{}, most{};
    std::int64_t most_bytes = -1;
    for (const auto& change : changes_) {
      std::int64_t sum = 0;
      for (std::size_t p = 0; p < kParts; ++p) sum += alive.at(p) += change.at(p);
      if (sum <= most_bytes) continue;
      most_bytes = sum;
      most = alive;
    }
    return most;
  }

 private:
  std::vector<std::array<std::int64_t, kParts>> changes_;
};

/// Last norm, head and loss; what a stage receives is no part of them.
bool is_of_head(const program::Op& op) {
  const core::Scope scope(op.scope);
  return !scope.layer() && scope.block() != "embedding" && scope.block() != "pipeline";
}

/// Of activations that the first micro-batch writes forward and reads backward: all, and those behind the
/// last layer.
struct Saved {
  double bytes = 0, by_head_bytes = 0;
};

Saved saved_of(const Program& program, const passes::MemoryPlan& plan) {
  Saved sum;
  for (const passes::Storage& storage : plan.storages) {
    if (part_of(program.tensor(storage.tensors.front()).role) != kActivations) continue;
    const program::Op& first = program.ops[static_cast<std::size_t>(storage.lifetime.first)];
    const auto end = std::min(program.ops.size() - 1, static_cast<std::size_t>(storage.lifetime.last));
    const program::Op& last = program.ops[end];
    if (first.micro_batch != 0 || first.phase != program::Phase::forward) continue;
    if (last.phase != program::Phase::backward) continue;
    sum.bytes += static_cast<double>(storage.bytes);
    if (is_of_head(first)) sum.by_head_bytes += static_cast<double>(storage.bytes);
  }
  return sum;
}

}  // namespace

RankMemory rank_memory(const Program& program, compile::EngineKind engine, bool has_caching_allocator,
                       const HeldTensors& held) {
  const passes::MemoryPlan plan = passes::plan_memory(program);
  const bool is_fused = engine == compile::EngineKind::fused && !has_caching_allocator;
  const auto lives = has_caching_allocator ? held_lifetimes(program, held) : plan.lifetimes;
  const ReservedBytes reserved = has_caching_allocator ? reserved_bytes(program, lives) : ReservedBytes{};
  // What other streams hold is theirs, alive or not.
  const auto is_elsewhere = [&](std::size_t tensor) {
    return has_caching_allocator && reserved.streams[tensor] != Stream::compute;
  };
  AliveBytes curve(program.ops.size());
  if (is_fused) {
    for (const passes::Storage& storage : plan.storages)
      curve.add(part_of(program.tensor(storage.tensors.front()).role), storage.lifetime, storage.bytes);
  } else {
    for (std::size_t i = 0; i < program.tensors.size(); ++i) {
      if (plan.storage_of[i] >= 0 && !is_elsewhere(i))
        curve.add(part_of(program.tensors[i].role), lives[i], program.tensors[i].bytes());
    }
  }
  const auto transient = curve.peak();
  std::array<double, kParts> bytes{};
  double alive = 0;
  for (std::size_t p = 0; p < kParts; ++p) alive += bytes.at(p) = static_cast<double>(transient.at(p));
  const double needed = has_caching_allocator
                            ? reserved.compute
                            : static_cast<double>(is_fused ? plan.arena_bytes : plan.unshared_peak_bytes);
  bytes[kWeights] += reserved.gather;
  bytes[kGradients] += reserved.reduce;
  double kept = 0;
  for (const Tensor& tensor : program.tensors) {
    if (!program::is_persistent(tensor.role)) continue;
    bytes.at(part_of(tensor.role)) += static_cast<double>(tensor.own_bytes());
    kept += static_cast<double>(tensor.own_bytes());
  }
  const Saved saved = saved_of(program, plan);
  const double rounding = static_cast<double>(passes::persistent_bytes(program)) - kept;
  return {.weight_bytes = bytes[kWeights],
          .optimizer_bytes = bytes[kOptimizer],
          .gradient_bytes = bytes[kGradients],
          .activation_bytes = bytes[kActivations],
          .workspace_bytes = bytes[kOthers],
          .gap_bytes = std::max(0.0, needed - alive) + rounding,
          .saved_bytes = saved.bytes,
          .saved_by_head_bytes = saved.by_head_bytes};
}

MemoryCourse memory_course(const Program& program, compile::EngineKind engine) {
  const passes::MemoryPlan plan = passes::plan_memory(program);
  MemoryCourse course;
  for (const Tensor& tensor : program.tensors)
    if (program::is_persistent(tensor.role)) course.persistent_bytes += tensor.own_bytes();
  std::vector<std::int64_t> changes(program.ops.size() + 1);
  const auto add = [&](passes::Lifetime life, std::int64_t bytes) {
    if (life.last < life.first || life.first < 0) return;
    changes[static_cast<std::size_t>(life.first)] += bytes;
    changes[std::min(changes.size() - 1, static_cast<std::size_t>(life.last) + 1)] -= bytes;
  };
  if (engine == compile::EngineKind::fused) {
    for (const passes::Storage& storage : plan.storages) add(storage.lifetime, storage.bytes);
  } else {
    for (std::size_t i = 0; i < program.tensors.size(); ++i)
      if (plan.storage_of[i] >= 0) add(plan.lifetimes[i], program.tensors[i].bytes());
  }
  std::int64_t alive = course.persistent_bytes;
  for (std::size_t op = 0; op < program.ops.size(); ++op) {
    alive += changes[op];
    course.alive_bytes.push_back(alive);
    if (alive > course.alive_bytes[course.peak_op]) course.peak_op = op;
  }
  return course;
}

}  // namespace rooflm::perfmodel
