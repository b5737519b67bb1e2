// Data-parallel ranks whose updates read the gradients of all ranks where they are.
#include "compile/passes/sum_in_update.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "program/groups.h"
#include "program/ops.h"
#include "program/update.h"

namespace rooflm::passes {
namespace {

namespace ops = program::ops;
using program::Attributes;
using program::Group;
using program::Op;
using program::Phase;
using program::Program;
using program::TensorId;

class UpdateSummer {
 public:
  UpdateSummer(Program& step, const compile::Sharding& sharding, const program::Coordinates& rank)
      : step_(&step),
        place_{{"group", static_cast<std::int64_t>(Group::data)},
               {"parts", std::int64_t{sharding.data_ranks()}},
               {"index", std::int64_t{rank.data}},
               {"unit", program::kPartUnit}} {}

  void run(bool keeps_whole_gradients) {
    if (keeps_whole_gradients) {
      find_other_readers();
      drop_collectives();
      rewrite_updates();
    }
    insert_barriers();
  }

 private:
  /// Tensors that anything but updates and sums over the data-parallel ranks reads after such a sum.
  void find_other_readers() {
    std::set<TensorId> results;
    for (const Op& op : step_->ops) {
      if (program::is_update(op)) continue;
      for (const TensorId id : op.inputs) {
        if (results.contains(id)) read_.insert(id);
      }
      if (is_sum(op)) results.insert(op.outputs.begin(), op.outputs.end());
    }
  }

  static bool is_sum(const Op& op) {
    return (op.is(ops::kAllReduce) || op.is(ops::kReduceScatter)) && op.phase == Phase::backward &&
           program::group_of(op) == Group::data && !op.attrs.flag("accumulate");
  }

  void drop_collectives() {
    for (Op& op : step_->ops) {
      if (!is_sum(op)) continue;
      std::vector<TensorId> from, to;
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        const bool is_gradient = step_->tensor(op.inputs[i]).role == program::Role::gradient;
        if (is_gradient && !read_.contains(op.outputs[i])) {
          whole_[op.outputs[i]] = op.inputs[i];
        } else {
          from.push_back(op.inputs[i]);
          to.push_back(op.outputs[i]);
        }
      }
      op.inputs = std::move(from);
      op.outputs = std::move(to);
    }
    std::erase_if(step_->ops, [](const Op& op) { return is_sum(op) && op.inputs.empty(); });
  }

  /// Updates of summed and of other gradients become separate ops.
  void rewrite_updates() {
    std::vector<Op> rewritten;
    rewritten.reserve(step_->ops.size() + 1);
    for (Op& op : step_->ops) {
      if (!program::is_update(op)) {
        rewritten.push_back(std::move(op));
        continue;
      }
      std::vector<Op> kinds;  // at most two
      const std::size_t count = program::UpdateOperands(op).count();
      for (std::size_t i = 0; i < count; ++i) {
        Op one = program::single_update(op, i);
        sum(one);
        const auto same = std::ranges::find(kinds, one.attrs, &Op::attrs);
        if (same == kinds.end()) {
          kinds.push_back(std::move(one));
          continue;
        }
        std::vector<std::int64_t> offsets = std::move(same->input_offset);
        append_update(*same, one);
        if (!offsets.empty())
          offsets.insert(offsets.end(), one.input_offset.begin() + program::UpdateOperands(one).weight_in(0),
                         one.input_offset.end());
        same->input_offset = std::move(offsets);
      }
      std::ranges::move(kinds, std::back_inserter(rewritten));
    }
    step_->ops = std::move(rewritten);
  }

  /// Makes an update of one tensor read the gradients of all ranks, if it reads a sum that is no more.
  void sum(Op& update) const {
    const program::UpdateOperands at(update);
    TensorId& gradient = update.inputs[at.gradient_in(0)];
    const auto found = whole_.find(gradient);
    if (found == whole_.end()) return;
    gradient = found->second;
    update.attrs.set("sums", true);
    for (const char* key : {"group", "parts", "index", "unit"}) update.attrs.set(key, place_.integer(key));
    update.input_offset.assign(update.inputs.size(), 0);
    const std::int64_t elements = step_->shape(gradient).numel();
    if (step_->shape(update.inputs[at.weight_in(0)]).numel() == elements) return;
    update.input_offset[at.gradient_in(0)] =
        program::part_of(elements, static_cast<int>(place_.integer("parts")),
                         static_cast<int>(place_.integer("index")), place_.integer("unit"))
            .begin;
  }

  [[nodiscard]] Op barrier(Phase phase, std::string scope, std::vector<TensorId> tensors) const {
    Op op;
    op.def = &ops::kBarrier;
    op.attrs = place_;
    op.phase = phase;
    op.scope = std::move(scope);
    op.outputs = tensors;
    op.inputs = std::move(tensors);
    return op;
  }

  void insert_barriers() {
    auto& all = step_->ops;
    const auto is_summing = [](const Op& op) { return program::is_update(op) && op.attrs.flag("sums"); };
    std::vector<TensorId> gradients;
    for (const auto& [part, whole] : whole_) gradients.push_back(whole);
    if (const auto first = std::ranges::find_if(all, is_summing); first != all.end()) {
      const Op before = barrier(first->phase, first->scope + "/gradients", gradients);
      const auto last = std::find_if(all.rbegin(), all.rend(), is_summing).base();
      all.insert(all.insert(last, before) - (last - first), before);
    }
    const auto gather = std::ranges::find_if(all, [](const Op& op) {
      return op.is(ops::kAllGather) && program::group_of(op) == Group::data;
    });
    if (gather == all.end()) return;
    const Op at_start = barrier(Phase::forward, gather->scope, {});
    all.insert(std::ranges::find_if(all, [](const Op& op) { return op.phase != Phase::setup; }), at_start);
  }

  Program* step_;
  Attributes place_;
  std::set<TensorId> read_;
  std::map<TensorId, TensorId> whole_;  ///< by the sum that is no more: the rank's own whole gradient
};

}  // namespace

void sum_in_update(Program& step, const compile::Sharding& sharding, const program::Coordinates& rank) {
  if (sharding.data_ranks() > 1) UpdateSummer(step, sharding, rank).run(sharding.zero < 2);
}

}  // namespace rooflm::passes
