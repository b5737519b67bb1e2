// Updating weights while the backward pass still runs.
#include "compile/passes/early_updates.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <unordered_map>
#include <utility>
#include <vector>

#include "program/ops.h"

namespace rooflm::passes {
namespace {

namespace ops = program::ops;
using program::Op;
using program::Program;
using program::Role;
using program::TensorId;

/// Smaller updates wait for others: a launch takes as long as about so many parameters.
constexpr std::int64_t kLeastParameters = std::int64_t{1} << 22U;

/// Products of so few flop have too few tiles for all multiprocessors.
constexpr std::int64_t kSmallProductFlop = 10'000'000'000;
/// Into how many parts the parameters are divided, of which two or three are updated beside other ops at a
/// time: their gradients take memory.
constexpr std::int64_t kWindows = 20;

constexpr std::size_t kNorm = 1;    // inputs of an update: hyper, norm or kNone, then
constexpr std::size_t kWeight = 2;  // the weight and
constexpr std::size_t kGradient = 3;

bool is_update(const Op& op) { return op.is(ops::kAdamW) || op.is(ops::kSgd); }

/// The last op that touches each tensor, updates apart.
std::unordered_map<TensorId, std::size_t> last_uses(const Program& p) {
  std::unordered_map<TensorId, std::size_t> last;
  for (std::size_t i = 0; i < p.ops.size(); ++i) {
    if (is_update(p.ops[i])) continue;
    for (const auto* operands : {&p.ops[i].inputs, &p.ops[i].outputs}) {
      for (const TensorId id : *operands) last[id] = i;
    }
  }
  return last;
}

/// Updates that run as one op: equal attributes, and together.
struct Group {
  Op op;
  std::int64_t parameters = 0;

  /// Outputs are those of each tensor in turn, then all copies.
  void add(const Program& p, const Op& update) {
    parameters += p.shape(update.inputs[kWeight]).numel();
    if (op.def == nullptr) {
      op = update;
      return;
    }
    const std::size_t copies = update.attrs.flag("copies") ? 1 : 0;
    const std::size_t before = (op.inputs.size() - kWeight) / (update.inputs.size() - kWeight);
    const auto own_end = update.outputs.end() - static_cast<std::ptrdiff_t>(copies);
    op.outputs.insert(op.outputs.end() - static_cast<std::ptrdiff_t>(before * copies), update.outputs.begin(),
                      own_end);
    op.outputs.insert(op.outputs.end(), own_end, update.outputs.end());
    op.inputs.insert(op.inputs.end(), update.inputs.begin() + kWeight, update.inputs.end());
  }
};

/// Takes updates as they become possible and gives them out as groups.
class Updates {
 public:
  explicit Updates(const Program& p) : program_(&p) {}

  void add(const Op& update) {
    const auto same = std::find_if(groups_.begin(), groups_.end(), [&](const Group& group) {
      return group.op.def == update.def && group.op.attrs == update.attrs;
    });
    Group& group = same == groups_.end() ? groups_.emplace_back() : *same;
    group.add(*program_, update);
  }
  /// Appends the groups of at least that many parameters.
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

/// By the op after which they are possible: the last that writes the gradient or reads the weight or a copy.
std::unordered_map<std::size_t, std::vector<Op>> by_place(const Program& p) {
  const auto last = last_uses(p);
  std::unordered_map<std::size_t, std::vector<Op>> updates;
  for (const Op& op : p.ops) {
    if (!is_update(op)) continue;
    std::size_t place = last.at(op.inputs[kGradient]);
    for (const TensorId id : op.outputs) {
      if (const auto use = last.find(id); id != program::kNone && use != last.end()) {
        place = std::max(place, use->second);
      }
    }
    updates[place].push_back(op);
  }
  return updates;
}

bool takes_part(const Op& op) { return op.inputs[kNorm] == program::kNone; }

std::int64_t parameters_of(const Program& p, const Op& update) {
  const std::size_t stride = update.is(ops::kAdamW) ? 4 : 2;
  std::int64_t sum = 0;
  for (std::size_t i = kWeight; i < update.inputs.size(); i += stride)
    sum += p.shape(update.inputs[i]).numel();
  return sum;
}

/// Whether the product is too small to fill a GPU, and only updates wait for it. `uses`: by how many other
/// ops a tensor is touched.
bool is_small_gradient(const Program& p, const Op& op, const std::unordered_map<TensorId, int>& uses) {
  const TensorId result = op.outputs[0];
  return op.is(ops::kMatmul) && p.tensor(result).role == Role::gradient && uses.at(result) == 1 &&
         program::cost_of(p, op).matmul_flop <= kSmallProductFlop;
}

void mark_small_gradients(Program& p) {
  std::unordered_map<TensorId, int> uses;
  for (const Op& op : p.ops) {
    if (is_update(op)) continue;
    for (const auto* operands : {&op.inputs, &op.outputs}) {
      for (const TensorId id : *operands) ++uses[id];
    }
  }
  for (Op& op : p.ops) {
    if (is_small_gradient(p, op, uses)) op.attrs.set("beside", 1);
  }
}

/// All updates but the last run beside others; after each kWindows-th of the parameters the others wait.
void mark_updates(Program& p) {
  const auto last = std::find_if(p.ops.rbegin(), p.ops.rend(), is_update);
  std::int64_t all = 0;
  std::for_each(std::next(last), p.ops.rend(), [&](Op& op) {
    if (!is_update(op)) return;
    op.attrs.set("beside", 1);
    last->attrs.set("join", 1);
    all += parameters_of(p, op);
  });
  std::int64_t given = 0;
  for (Op& op : p.ops) {
    if (is_update(op)) {
      given += parameters_of(p, op);
    } else if (given > 0 && given >= all / kWindows) {
      op.attrs.set("keep_up", 1);
      given = 0;
    }
  }
}

}  // namespace

void early_updates(Program& program) {
  if (!std::all_of(program.ops.begin(), program.ops.end(),
                   [](const Op& op) { return !is_update(op) || takes_part(op); })) {
    return;
  }
  const auto updates = by_place(program);
  if (updates.empty()) return;
  Updates waiting(program);
  std::vector<Op> rewritten;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (is_update(program.ops[i])) continue;
    rewritten.push_back(program.ops[i]);
    const auto found = updates.find(i);
    if (found == updates.end()) continue;
    for (const Op& update : found->second) waiting.add(update);
    waiting.give(kLeastParameters, rewritten);
  }
  waiting.give(0, rewritten);
  program.ops = std::move(rewritten);
  mark_updates(program);
  mark_small_gradients(program);
}

std::vector<int> end_beside(const Program& program) {
  std::vector<int> ends(program.ops.size());
  int next =
      static_cast<int>(program.ops.size()) - 1;  // the op that waits for what was given before `following`
  int following = next;
  for (int i = static_cast<int>(program.ops.size()) - 1; i >= 0; --i) {
    const Op& op = program.ops[static_cast<std::size_t>(i)];
    ends[static_cast<std::size_t>(i)] = op.attrs.flag("beside") ? next : i;
    if (!op.attrs.flag("keep_up")) continue;
    next = following;
    following = i;
  }
  return ends;
}

}  // namespace rooflm::passes
