// Overlaps collectives with computation.
#include "compile/passes/overlap.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "compile/passes/words.h"

namespace rooflm::passes {
namespace {

using program::kLanes;

/// An op index per lane; -1: none.
using OpOfLane = std::array<int, kLanes>;
constexpr OpOfLane kNoOps = [] {
  OpOfLane none{};
  none.fill(-1);
  return none;
}();

std::size_t index_of(Lane lane) { return static_cast<std::size_t>(lane); }

/// The last ops of each lane that wrote and read a tensor.
struct LastUses {
  OpOfLane wrote = kNoOps, read = kNoOps;
};

class WaitSetter {
 public:
  WaitSetter(Program& program, bool frees_gradients)
      : program_(&program), frees_gradients_(frees_gradients), uses_(program.tensors.size()) {
    known_.fill(kNoOps);
  }

  void run() {
    OpOfLane newest = kNoOps;
    std::size_t last = 0;
    for (std::size_t i = 0; i < program_->ops.size(); ++i) {
      if (program_->ops[i].is(program::ops::kBarrier)) wait_for(program_->ops[i], newest);
      visit(i);
      const Lane lane = program_->ops[i].lane;
      if (lane == Lane::compute) last = i;
      newest[index_of(lane)] = static_cast<int>(i);
    }
    // Nothing could wait for an op after the last `compute` op; program::check refuses that.
    OpOfLane open = newest;
    for (int& op : open) {
      if (op > static_cast<int>(last)) op = -1;
    }
    wait_for(program_->ops[last], open);
  }

 private:
  void visit(std::size_t index) {
    Op& op = program_->ops[index];
    OpOfLane needed = kNoOps;
    const auto need = [&](const OpOfLane& ops) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) needed[lane] = std::max(needed[lane], ops[lane]);
    };
    for (const TensorId id : op.inputs) {
      if (id != program::kNone) need(uses(id).wrote);
    }
    for (const TensorId id : op.outputs) {
      if (id == program::kNone) continue;
      need(uses(id).wrote);
      need(uses(id).read);
    }
    if (frees_gradients_) bound_pending(op, static_cast<int>(index), needed);
    wait_for(op, needed);
    const std::size_t lane = index_of(op.lane);
    for (const TensorId id : op.inputs) {
      if (id != program::kNone) uses(id).read[lane] = static_cast<int>(index);
    }
    for (const TensorId id : op.outputs) {
      if (id != program::kNone) uses(id).wrote[lane] = static_cast<int>(index);
    }
  }

  /// Whole gradients of a unit are held until `compute` knows that they are summed: it goes on for a unit
  /// more, then waits.
  void bound_pending(const Op& op, int index, OpOfLane& needed) {
    if (op.lane == Lane::compute) {
      needed[sum_lane_] = std::max(needed[sum_lane_], sum_before_);
    } else if (op.is(program::ops::kReduceScatter) && program::group_of(op) == program::Group::data) {
      sum_before_ = newest_sum_;
      newest_sum_ = index;
      sum_lane_ = index_of(op.lane);
    }
  }

  /// Adds waits for those of `ops` that the op's lane does not yet know to be done.
  void wait_for(Op& op, const OpOfLane& ops) {
    OpOfLane& known = known_[index_of(op.lane)];
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      if (lane == index_of(Lane::compute) || lane == index_of(op.lane) || ops[lane] <= known[lane]) continue;
      op.waits.push_back(ops[lane]);
      known[lane] = ops[lane];
    }
  }

  /// A tensor and its views share storage, so they share an entry.
  LastUses& uses(TensorId id) {
    const TensorId base = program_->tensor(id).view_of;
    return uses_[static_cast<std::size_t>(base == program::kNone ? id : base)];
  }

  Program* program_;
  bool frees_gradients_;
  int newest_sum_ = -1, sum_before_ = -1;  ///< reduce-scatters of gradients, all on `sum_lane_`
  std::size_t sum_lane_ = index_of(Lane::communication);
  std::vector<LastUses> uses_;
  std::array<OpOfLane, kLanes> known_{};  ///< by lane: the last op of each other lane that it has waited for
};

}  // namespace

void overlap_collectives(Program& step, bool frees_gradients) {
  for (Op& op : step.ops) {
    const bool is_in_order = op.is(program::ops::kBarrier) || op.attrs.flag("mapped");
    if (program::is_collective(op) && !is_in_order) op.lane = Lane::communication;
  }
  set_waits(step, frees_gradients);
}

void set_waits(Program& step, bool frees_gradients) {
  for (Op& op : step.ops) op.waits.clear();
  WaitSetter(step, frees_gradients).run();
}

}  // namespace rooflm::passes
