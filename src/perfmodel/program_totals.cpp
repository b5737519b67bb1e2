// Sums over the ops and tensors of a program.
#include "perfmodel/program_totals.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "core/checked.h"
#include "core/scope.h"

namespace rooflm::perfmodel {
namespace {

using program::Op;
using program::Phase;

void add(Totals& totals, const program::Program& program, const Op& op) {
  ++totals.ops;
  totals.cost += program::cost_of(program, op);
}

}  // namespace

std::vector<std::pair<Phase, Totals>> totals_by_phase(const program::Program& program) {
  std::map<Phase, Totals> totals;
  for (const Op& op : program.ops) add(totals[op.phase], program, op);
  return {totals.begin(), totals.end()};
}

std::vector<std::pair<std::string, Totals>> totals_by_block(const program::Program& program) {
  std::vector<std::pair<std::string, Totals>> blocks;
  std::unordered_map<std::string, std::size_t> index;
  for (const Op& op : program.ops) {
    if (op.phase == Phase::setup) continue;
    const auto [entry, is_new] = index.try_emplace(core::Scope(op.scope).any_layer(), blocks.size());
    if (is_new) blocks.emplace_back(entry->first, Totals{});
    add(blocks[entry->second].second, program, op);
  }
  return blocks;
}

Totals step_totals(const program::Program& program) { return step_totals(totals_by_phase(program)); }

Totals step_totals(const std::vector<std::pair<Phase, Totals>>& by_phase) {
  Totals totals;
  for (const auto& [phase, sums] : by_phase) {
    if (phase == Phase::setup) continue;
    totals.ops += sums.ops;
    totals.cost += sums.cost;
  }
  return totals;
}

std::vector<std::pair<program::Role, std::int64_t>> persistent_by_role(const program::Program& program) {
  std::map<program::Role, std::int64_t> bytes;
  for (const program::Tensor& tensor : program.tensors) {
    if (program::is_persistent(tensor.role))
      bytes[tensor.role] = core::Count(bytes[tensor.role]) + tensor.own_bytes();
  }
  return {bytes.begin(), bytes.end()};
}

std::int64_t saved_for_backward_bytes(const PlannedProgram& planned) {
  const program::Program& program = planned.program;
  const passes::MemoryPlan& plan = planned.plan;
  std::vector<std::int64_t> change(program.ops.size() + 1, 0);
  for (std::size_t id = 0; id < program.tensors.size(); ++id) {
    const auto [first, last] = plan.lifetimes[id];
    if (first < 0 || program::is_persistent(program.tensors[id].role)) continue;
    const bool is_saved = program.ops[static_cast<std::size_t>(first)].phase == Phase::forward &&
                          program.ops[static_cast<std::size_t>(last)].phase == Phase::backward;
    if (!is_saved) continue;
    std::int64_t& before = change[static_cast<std::size_t>(first)];
    std::int64_t& after = change[static_cast<std::size_t>(last) + 1];
    before = core::Count(before) + program.tensors[id].bytes();
    after = core::Count(after) + -program.tensors[id].bytes();
  }
  std::int64_t alive = 0;
  std::int64_t most = 0;
  for (const std::int64_t bytes : change) most = std::max(most, alive = core::Count(alive) + bytes);
  return most;
}

}  // namespace rooflm::perfmodel
