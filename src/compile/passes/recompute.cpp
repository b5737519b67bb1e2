// Activation recomputation: repeats parts of the forward pass in the backward pass instead of keeping
// outputs.
#include "compile/passes/recompute.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "compile/passes/shared_ops.h"
#include "compile/passes/words.h"
#include "core/error.h"
#include "core/scope.h"

namespace rooflm::passes {
namespace {

/// A layer of one micro-batch.
using Layer = std::pair<std::int64_t, int>;

/// Whether a matmul is one of every second ones. A packed up-projection counts with its gate.
bool is_every_other(const Op& op, bool has_gate) {
  const core::Scope scope(op.scope);
  if (scope.part() == "attention/proj") return true;
  return scope.part() == "feed_forward/fc1" && has_gate && *scope.layer() % 2 == 1;
}

bool is_eligible(const Op& op, Recompute kind, bool has_gate) {
  if (kind == Recompute::full || op.def->cheap_to_recompute) return true;
  if (core::Scope(op.scope).part() == "attention/qk") return true;
  if (kind != Recompute::every_other) return false;
  // A bias is recomputed with its matmul; on its own it would be added to a rounded sum.
  if (program::ops::is_matmul(op) || op.is(program::ops::kBiasAdd)) return is_every_other(op, has_gate);
  return op.def->work != program::Work::attention && op.def->work != program::Work::collective;
}

/// The forward ops of one layer to recompute, and where.
struct LayerPlan {
  std::vector<std::size_t> forward;
  std::size_t first_backward = 0;
  bool has_backward = false;
};

std::map<Layer, LayerPlan> find_layers(const Program& program) {
  const std::vector<bool> is_shared = find_shared_ops(program);
  std::map<Layer, LayerPlan> layers;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const auto layer = core::Scope(program.ops[i].scope).layer();
    if (!layer || is_shared[i]) continue;
    LayerPlan& plan = layers[{*layer, program.ops[i].micro_batch}];
    if (program.ops[i].phase == Phase::forward) plan.forward.push_back(i);
    if (program.ops[i].phase == Phase::backward && !plan.has_backward) {
      plan.first_backward = i;
      plan.has_backward = true;
    }
  }
  return layers;
}

/// The ops that read each tensor.
std::vector<std::vector<std::size_t>> find_readers(const Program& program) {
  std::vector<std::vector<std::size_t>> readers(program.tensors.size());
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    for (const TensorId id : program.ops[i].inputs) {
      if (id != program::kNone) readers[static_cast<std::size_t>(id)].push_back(i);
    }
  }
  return readers;
}

/// The ops of the layer to recompute: those whose outputs the backward pass reads, and the eligible ops that
/// they depend on. A tensor that forward ops outside the layer read is kept: it is the next layer's input.
std::vector<std::size_t> ops_to_redo(const Program& program, const LayerPlan& plan, Recompute kind,
                                     const std::vector<std::vector<std::size_t>>& readers) {
  const std::set<std::size_t> members(plan.forward.begin(), plan.forward.end());
  const bool has_gate = std::any_of(plan.forward.begin(), plan.forward.end(),
                                    [&](std::size_t i) { return program.ops[i].is(program::ops::kSwiGlu); });
  std::unordered_set<TensorId> wanted;
  std::vector<std::size_t> redo;
  for (const std::size_t i : std::vector(plan.forward.rbegin(), plan.forward.rend())) {
    const Op& op = program.ops[i];
    if (!is_eligible(op, kind, has_gate)) continue;
    const bool is_wanted = std::any_of(op.outputs.begin(), op.outputs.end(), [&](TensorId id) {
      const auto& all = readers[static_cast<std::size_t>(id)];
      const bool leaves_layer = std::any_of(all.begin(), all.end(), [&](std::size_t reader) {
        return program.ops[reader].phase == Phase::forward && !members.contains(reader);
      });
      const bool saved = std::any_of(all.begin(), all.end(), [&](std::size_t reader) {
        return program.ops[reader].phase == Phase::backward;
      });
      return !leaves_layer && (saved || wanted.contains(id));
    });
    if (!is_wanted) continue;
    redo.push_back(i);
    wanted.insert(op.inputs.begin(), op.inputs.end());
  }
  std::reverse(redo.begin(), redo.end());
  return redo;
}

/// Whether forward ops outside the layer read the tensor.
bool leaves(const Program& program, const LayerPlan& plan,
            const std::vector<std::vector<std::size_t>>& readers, TensorId id) {
  const auto& all = readers[static_cast<std::size_t>(id)];
  return std::ranges::any_of(all, [&](std::size_t reader) {
    return program.ops[reader].phase == Phase::forward && !std::ranges::binary_search(plan.forward, reader);
  });
}

/// Restores the original name of what the layer passes on: it is kept, so its copy is not read.
void keep_what_leaves(const Program& program, const LayerPlan& plan,
                      const std::vector<std::vector<std::size_t>>& readers,
                      std::unordered_map<TensorId, TensorId>& renamed) {
  std::erase_if(renamed, [&](const auto& names) { return leaves(program, plan, readers, names.first); });
}

/// Copies of `redo` with new outputs; `renamed` maps old tensors to new ones.
std::vector<Op> clone_ops(Program& program, const std::vector<std::size_t>& redo,
                          std::unordered_map<TensorId, TensorId>& renamed) {
  const auto rename = [&](TensorId& id) {
    if (const auto found = renamed.find(id); found != renamed.end()) id = found->second;
  };
  std::vector<Op> clones;
  for (const std::size_t i : redo) {
    Op clone = program.ops[i];
    clone.phase = Phase::backward;
    clone.recomputed = true;
    std::for_each(clone.inputs.begin(), clone.inputs.end(), rename);
    for (TensorId& id : clone.outputs) {
      program::Tensor copy = program.tensor(id);
      if (copy.role == program::Role::result) copy.role = program::Role::activation;
      const TensorId fresh = program.add_tensor(std::move(copy));
      renamed[id] = fresh;
      id = fresh;
    }
    clones.push_back(std::move(clone));
  }
  return clones;
}

}  // namespace

void recompute(Program& program, Recompute kind, bool is_whole) {
  if (kind == Recompute::none) return;
  const auto readers = find_readers(program);
  std::map<std::size_t, std::vector<Op>> before;  // clones to insert before an op
  for (const auto& [layer, plan] : find_layers(program)) {
    if (!plan.has_backward) continue;
    std::unordered_map<TensorId, TensorId> renamed;
    const bool is_all = is_whole && kind == Recompute::full;
    const auto redo = is_all ? plan.forward : ops_to_redo(program, plan, kind, readers);
    before[plan.first_backward] = clone_ops(program, redo, renamed);
    if (is_all) keep_what_leaves(program, plan, readers, renamed);
    for (const auto& [old, fresh] : renamed) {
      for (const std::size_t i : readers[static_cast<std::size_t>(old)]) {
        Op& op = program.ops[i];
        if (op.phase == Phase::backward) std::replace(op.inputs.begin(), op.inputs.end(), old, fresh);
      }
    }
  }
  std::vector<Op> ops;
  ops.reserve(program.ops.size());
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (auto found = before.find(i); found != before.end()) {
      std::move(found->second.begin(), found->second.end(), std::back_inserter(ops));
    }
    ops.push_back(std::move(program.ops[i]));
  }
  program.ops = std::move(ops);
}

}  // namespace rooflm::passes
