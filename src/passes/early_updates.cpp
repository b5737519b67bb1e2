// Updating weights while the backward pass still runs.
#include "passes/early_updates.h"

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
using program::Phase;
using program::Program;
using program::TensorId;

/// Smaller updates wait for others: a launch takes as long as about so many parameters.
constexpr std::int64_t kLeastParameters = std::int64_t{1} << 22U;

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
  // What comes last has nothing to run beside: the others join it.
  const auto last = std::find_if(rewritten.rbegin(), rewritten.rend(), is_update);
  std::for_each(std::next(last), rewritten.rend(), [&](Op& op) {
    if (!is_update(op)) return;
    op.attrs.set("beside", 1);
    last->attrs.set("join", 1);
  });
  program.ops = std::move(rewritten);
}

}  // namespace rooflm::passes
