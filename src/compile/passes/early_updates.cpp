// Updates weights while the backward pass still runs.
#include "compile/passes/early_updates.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "compile/passes/words.h"
#include "program/update.h"

namespace rooflm::passes {
namespace {

using program::is_update;
using program::UpdateView;

/// Smaller updates are merged with later ones: a launch takes as long as updating about that many parameters.
constexpr std::int64_t kLeastParameters = std::int64_t{1} << 22U;

/// Matmuls of at most this many FLOP have too few tiles for all multiprocessors.
constexpr std::int64_t kSmallMatmulFlop = 10'000'000'000;
/// Number of windows into which the parameters are divided. Updates of two or three windows may be pending at
/// a time; their gradients take memory.
constexpr std::int64_t kWindows = 20;

/// The tensor that owns the storage of `id`.
TensorId base_of(const Program& p, TensorId id) {
  const TensorId base = p.tensor(id).view_of;
  return base == program::kNone ? id : base;
}

/// The last op other than updates that touches each tensor or a view of it.
std::vector<int> last_uses(const Program& p) {
  std::vector<int> last(p.tensors.size(), -1);
  for (std::size_t i = 0; i < p.ops.size(); ++i) {
    if (is_update(p.ops[i])) continue;
    for (const auto* operands : {&p.ops[i].inputs, &p.ops[i].outputs}) {
      for (const TensorId id : *operands) {
        if (id != program::kNone) last[static_cast<std::size_t>(base_of(p, id))] = static_cast<int>(i);
      }
    }
  }
  return last;
}

/// Of whole weights: ranks whose parts differ in size decide alike.
std::int64_t parameters_of(const Program& p, const Op& op) {
  const UpdateView update(op);
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < update.count(); ++i)
    sum += program::whole_shape(p.tensor(update.weight(i))).numel();
  return sum;
}

/// Updates that run as one op: adjacent ones with equal attributes.
struct Group {
  Op op;
  std::int64_t parameters = 0;

  void add(const Program& p, Op update) {
    parameters += parameters_of(p, update);
    if (op.def == nullptr) {
      op = std::move(update);
    } else {
      program::append_update(op, update);
    }
  }
};

/// Collects updates as they become possible and emits them in groups.
class Updates {
 public:
  explicit Updates(const Program& p) : program_(&p) {}

  void add(Op update) {
    const auto same = std::find_if(groups_.begin(), groups_.end(), [&](const Group& group) {
      return group.op.def == update.def && group.op.attrs == update.attrs;
    });
    Group& group = same == groups_.end() ? groups_.emplace_back() : *same;
    group.add(*program_, std::move(update));
  }
  /// Appends the groups with at least that many parameters.
  void give(std::int64_t least, std::vector<Op>& to) {
    for (Group& group : groups_) {
      if (group.parameters >= least) to.push_back(std::move(group.op));
    }
    groups_.erase(std::remove_if(groups_.begin(), groups_.end(),
                                 [&](const Group& group) { return group.parameters >= least; }),
                  groups_.end());
  }

 private:
  const Program* program_;
  std::vector<Group> groups_;
};

/// The updates (indices into the ops), each with the op after which it is possible: the last that writes the
/// gradient or reads the weight or a copy. Sorted by that op.
std::vector<std::pair<int, std::size_t>> by_place(const Program& p) {
  const auto last = last_uses(p);
  const auto last_use = [&](TensorId id) {
    return id == program::kNone ? -1 : last[static_cast<std::size_t>(base_of(p, id))];
  };
  std::vector<std::pair<int, std::size_t>> updates;
  for (std::size_t index = 0; index < p.ops.size(); ++index) {
    if (!is_update(p.ops[index])) continue;
    const UpdateView update(p.ops[index]);
    int place = -1;
    for (std::size_t i = 0; i < update.count(); ++i) {
      place = std::max(
          {place, last_use(update.gradient(i)), last_use(update.weight(i)), last_use(update.copy(i))});
    }
    updates.emplace_back(place, index);
  }
  std::sort(updates.begin(), updates.end());
  return updates;
}

/// For each tensor, the number of ops other than updates that touch it.
std::vector<int> count_uses(const Program& p) {
  std::vector<int> uses(p.tensors.size(), 0);
  for (const Op& op : p.ops) {
    if (is_update(op)) continue;
    for (const auto* operands : {&op.inputs, &op.outputs}) {
      for (const TensorId id : *operands) {
        if (id != program::kNone) ++uses[static_cast<std::size_t>(id)];
      }
    }
  }
  return uses;
}

/// Whether the op is a weight-gradient matmul that is too small to fill a GPU and only updates wait for it.
bool is_small_gradient(const Program& p, const Op& op, const std::vector<int>& uses) {
  if (!ops::is_matmul(op)) return false;
  const TensorId result = op.outputs[0];
  return p.tensor(result).role == Role::gradient && uses[static_cast<std::size_t>(result)] == 1 &&
         program::cost_of(p, op).matmul_flop <= kSmallMatmulFlop;
}

/// Moves small weight-gradient matmuls to the background.
void choose_matmuls(Program& p) {
  const std::vector<int> uses = count_uses(p);
  for (Op& op : p.ops) {
    if (is_small_gradient(p, op, uses)) op.lane = Lane::background;
  }
}

/// Moves all updates but the last to the background. Returns the last.
std::size_t choose_updates(Program& p) {
  std::size_t last = 0;
  for (std::size_t i = 0; i < p.ops.size(); ++i) {
    if (!is_update(p.ops[i])) continue;
    last = i;
    p.ops[i].lane = Lane::background;
  }
  p.ops[last].lane = Lane::compute;
  return last;
}

/// After each window of parameters, `compute` waits for the background work submitted one window earlier. The
/// last update waits for all of it.
void set_waits(Program& p, std::size_t last_update) {
  std::int64_t all = 0;
  for (const Op& op : p.ops) {
    if (is_update(op) && op.lane == Lane::background) all += parameters_of(p, op);
  }
  int newest = -1;         // the latest background op
  int window_before = -1;  // `newest` at the end of the previous window
  std::int64_t given = 0;
  for (std::size_t i = 0; i < p.ops.size(); ++i) {
    Op& op = p.ops[i];
    if (is_update(op)) given += parameters_of(p, op);
    if (op.lane == Lane::background) newest = static_cast<int>(i);
    if (op.lane == Lane::background || is_update(op) || given == 0 || given < all / kWindows) continue;
    if (window_before >= 0) op.waits = {window_before};
    window_before = newest;
    given = 0;
  }
  if (newest >= 0) p.ops[last_update].waits = {newest};
}

bool has_norm(const Program& program) {
  return std::any_of(program.ops.begin(), program.ops.end(),
                     [](const Op& op) { return op.is(ops::kGlobalNorm); });
}

/// Moves each update to where it is possible, merged with others. False: there are none.
bool move_early(Program& program) {
  const auto updates = by_place(program);
  if (updates.empty()) return false;
  Updates waiting(program);
  std::vector<Op> rewritten;
  rewritten.reserve(program.ops.size());
  auto next = updates.begin();
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (is_update(program.ops[i])) continue;
    rewritten.push_back(std::move(program.ops[i]));
    const auto first = next;
    for (; next != updates.end() && next->first <= static_cast<int>(i); ++next) {
      waiting.add(std::move(program.ops[next->second]));
    }
    if (next != first) waiting.give(kLeastParameters, rewritten);
  }
  waiting.give(0, rewritten);
  program.ops = std::move(rewritten);
  return true;
}

}  // namespace

void early_updates(Program& program, Lane lane) {
  if (has_norm(program) || !move_early(program) || lane == Lane::compute) return;
  choose_matmuls(program);
  set_waits(program, choose_updates(program));
}

void advance_updates(Program& program, Lane lane) {
  if (!has_norm(program) && move_early(program) && lane != Lane::compute) choose_updates(program);
}

}  // namespace rooflm::passes
