// Data-parallel ranks whose updates read the gradients of all ranks where they are.
#include "compile/passes/sum_in_update.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "compile/passes/early_updates.h"
#include "compile/passes/words.h"
#include "program/update.h"

namespace rooflm::passes {
namespace {

class UpdateSummer {
 public:
  UpdateSummer(Program& step, const compile::Sharding& sharding, const program::Coordinates& rank)
      : step_(&step),
        place_{{"group", static_cast<std::int64_t>(Group::data)},
               {"parts", std::int64_t{sharding.data_ranks()}},
               {"index", std::int64_t{rank.data}},
               {"unit", program::kPartUnit}} {}

  void run(bool keeps_whole_gradients, program::Lane lane) {
    if (keeps_whole_gradients) {
      find_other_readers();
      drop_collectives();
      rewrite_updates();
      advance_updates(*step_, lane);
      insert_sums();
    }
    insert_barriers();
  }

  /// Before weights of other ranks are read.
  void insert_first_barrier() {
    auto& all = step_->ops;
    const auto gather = std::ranges::find_if(
        all, [](const Op& op) { return op.is(ops::kAllGather) && program::group_of(op) == Group::data; });
    if (gather == all.end()) return;
    const Op at_start = barrier(Phase::forward, gather->scope, {});
    all.insert(std::ranges::find_if(all, [](const Op& op) { return op.phase != Phase::setup; }), at_start);
  }

 private:
  static bool is_summing(const Op& op) { return program::is_update(op) && op.attrs.flag("sums"); }

  /// Sums over the data-parallel ranks that anything but updates reads.
  void find_other_readers() {
    std::set<TensorId> results;
    for (const Op& op : step_->ops) {
      if (program::is_update(op)) continue;
      for (const TensorId id : op.inputs) {
        if (results.contains(id)) (op.is(ops::kGlobalNorm) ? normed_ : read_).insert(id);
      }
      if (is_sum(op)) results.insert(op.outputs.begin(), op.outputs.end());
    }
  }

  static bool is_sum(const Op& op) {
    return (op.is(ops::kAllReduce) || op.is(ops::kReduceScatter)) && op.phase == Phase::backward &&
           program::group_of(op) == Group::data && !op.attrs.flag("accumulate");
  }

  /// Whether each rank has some of the sum. One that has nothing of a small matrix does not update it.
  [[nodiscard]] bool is_of_all_ranks(const Op& sum, TensorId whole) const {
    const auto parts = static_cast<int>(place_.integer("parts"));
    const std::int64_t elements = step_->shape(whole).numel();
    return sum.is(ops::kAllReduce) ||
           program::part_of(elements, parts, parts - 1, place_.integer("unit")).size() > 0;
  }

  void drop_collectives() {
    for (Op& op : step_->ops) {
      if (!is_sum(op)) continue;
      std::vector<TensorId> from, to;
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        const bool is_gradient = step_->tensor(op.inputs[i]).role == program::Role::gradient;
        if (is_gradient && !read_.contains(op.outputs[i]) && is_of_all_ranks(op, op.inputs[i])) {
          auto& sums = !normed_.contains(op.outputs[i]) ? whole_
                       : op.is(ops::kAllReduce)         ? reduced_
                                                        : scattered_;
          sums[op.outputs[i]] = op.inputs[i];
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
        append_update(*same, one);
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

  using Sums = std::map<TensorId, TensorId>;  ///< the rank's own whole gradient, by the sum

  [[nodiscard]] Op make(const program::OpDef& def, Phase phase, std::string scope) const {
    Op op;
    op.def = &def;
    op.attrs = place_;
    op.phase = phase;
    op.scope = std::move(scope);
    return op;
  }

  [[nodiscard]] Op barrier(Phase phase, const std::string& scope,
                           const std::vector<TensorId>& tensors) const {
    Op op = make(ops::kBarrier, phase, scope);
    op.inputs = op.outputs = tensors;
    return op;
  }

  static std::vector<TensorId> own_of(const Sums& sums) {
    std::vector<TensorId> own;
    for (const auto& [sum, whole] : sums) own.push_back(whole);
    return own;
  }

  /// Sums that the norm reads, at once.
  void insert_sums() {
    auto& all = step_->ops;
    const auto norm = std::ranges::find_if(all, [](const Op& op) { return op.is(ops::kGlobalNorm); });
    if (norm == all.end() || reduced_.size() + scattered_.size() == 0) return;
    const std::string scope = norm->scope + "/gradients";
    std::vector<TensorId> own = own_of(reduced_);
    std::ranges::copy(own_of(scattered_), std::back_inserter(own));
    std::vector<Op> more{barrier(norm->phase, scope, own)};
    for (const auto& [def, sums] :
         {std::pair(&ops::kAllReduce, &reduced_), std::pair(&ops::kReduceScatter, &scattered_)}) {
      if (sums->empty()) continue;
      Op op = make(*def, norm->phase, scope);
      op.attrs.set("mapped", true);
      for (const auto& [sum, whole] : *sums) {
        op.inputs.push_back(whole);
        op.outputs.push_back(sum);
      }
      more.push_back(std::move(op));
    }
    more.push_back(more.front());
    all.insert(norm, std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }

  void insert_barriers() {
    std::vector<Op> all;
    all.reserve(step_->ops.size() + 2);
    std::ptrdiff_t end = 0;
    for (Op& op : step_->ops) {
      if (is_summing(op)) {
        const program::UpdateView update(op);
        std::vector<TensorId> gradients;
        for (std::size_t i = 0; i < update.count(); ++i) gradients.push_back(update.gradient(i));
        all.push_back(barrier(op.phase, op.scope + "/gradients", gradients));
        all.back().lane = op.lane;
        end = static_cast<std::ptrdiff_t>(all.size()) + 1;
      }
      all.push_back(std::move(op));
    }
    if (end > 0) {
      const Op& last = all[static_cast<std::size_t>(end) - 1];
      Op done = barrier(last.phase, last.scope + "/gradients", own_of(whole_));
      all.insert(all.begin() + end, std::move(done));
    }
    step_->ops = std::move(all);
    insert_first_barrier();
  }

  Program* step_;
  Attributes place_;
  std::set<TensorId> read_, normed_;
  Sums whole_;                ///< that updates take
  Sums reduced_, scattered_;  ///< that collectives take before the norm
};

}  // namespace

void sum_in_update(Program& step, const compile::Sharding& sharding, const program::Coordinates& rank,
                   program::Lane lane) {
  if (sharding.data_ranks() > 1) UpdateSummer(step, sharding, rank).run(sharding.zero < 2, lane);
}

void wait_for_weights(Program& step, const compile::Sharding& sharding, const program::Coordinates& rank) {
  if (sharding.data_ranks() > 1) UpdateSummer(step, sharding, rank).insert_first_barrier();
}

}  // namespace rooflm::passes
