// Data parallelism: gradients are summed over ranks, and state may be split over them (ZeRO).
#include "compile/passes/shard_data.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "compile/passes/division.h"
#include "compile/passes/words.h"
#include "core/scope.h"

namespace rooflm::passes {
namespace {

using compile::Sharding;
using program::Coordinates;

/// The unit that is reduced and gathered together: a layer, or a block outside of layers.
std::string unit_of(const Op& op, const Sharding& sharding) {
  if (sharding.root_unit && !core::Scope(op.scope).layer()) return "root";
  return op.scope.substr(0, op.scope.find('/'));
}

/// Ops to be inserted before those of a program.
class Insertions {
 public:
  void before(std::size_t index, Op op) { ops_[index].push_back(std::move(op)); }
  void apply(Program& program) {
    std::vector<Op> rewritten;
    rewritten.reserve(program.ops.size() + ops_.size());
    for (std::size_t i = 0; i <= program.ops.size(); ++i) {
      if (const auto found = ops_.find(i); found != ops_.end())
        std::move(found->second.begin(), found->second.end(), std::back_inserter(rewritten));
      if (i < program.ops.size()) rewritten.push_back(std::move(program.ops[i]));
    }
    program.ops = std::move(rewritten);
  }

 private:
  std::map<std::size_t, std::vector<Op>> ops_;
};

/// Collectives of one rank.
class Collectives {
 public:
  Collectives(const Sharding& sharding, const Coordinates& rank) : sharding_(sharding), rank_(rank) {}

  [[nodiscard]] Attributes place(Group group) const {
    int parts = 2;  // tied
    int index = rank_.pipeline == 0 ? 0 : 1;
    if (group == Group::data) {
      parts = sharding_.data_ranks();
      index = rank_.data;
    } else if (group == Group::copies) {
      parts = sharding_.expert_copies();
      index = rank_.data / sharding_.expert;
    } else if (group == Group::tensor) {
      parts = sharding_.tensor;
      index = rank_.tensor;
    } else if (group == Group::pipeline) {
      parts = sharding_.pipeline;
      index = rank_.pipeline;
    }
    return {{"group", static_cast<std::int64_t>(group)},
            {"parts", std::int64_t{parts}},
            {"index", std::int64_t{index}},
            {"unit", program::kPartUnit}};
  }

  /// The collective op, with the phase and micro-batch of `like`.
  [[nodiscard]] Op make(const program::OpDef& def, Group group, const Op& like, std::string scope) const {
    Op op;
    op.def = &def;
    op.attrs = place(group);
    op.phase = like.phase;
    op.micro_batch = like.micro_batch;
    op.scope = std::move(scope);
    return op;
  }

 private:
  Sharding sharding_;
  Coordinates rank_;
};

/// Classifies weights and gradients and emits their reductions.
class GradientReducer {
 public:
  GradientReducer(Program& step, program::GradientMap& gradients, const Sharding& sharding,
                  const Coordinates& rank, const SharedWeights& shared, const Division& division)
      : step_(&step),
        gradients_(&gradients),
        sharding_(sharding),
        collectives_(sharding, rank),
        division_(&division),
        summed_(shared.summed.begin(), shared.summed.end()),
        tied_(shared.tied.begin(), shared.tied.end()) {}

  void run() {
    find_weights();
    if (sharding_.zero >= 2) separate_micro_batches();
    find_units();
    for (const auto& [unit, reduced] : units_) reduce(reduced, ends_.at(unit));
    insertions_.apply(*step_);
  }

 private:
  struct Gradient {
    TensorId weight = program::kNone, id = program::kNone;
  };
  /// A layer, or a block outside of layers, in one micro-batch.
  using Unit = std::pair<std::string, int>;

  void find_weights() {
    for (TensorId id = 0; id < static_cast<TensorId>(step_->tensors.size()); ++id) {
      const TensorId gradient = gradients_->of(id);
      if (step_->tensor(id).role == Role::weight && gradient != program::kNone) weights_[gradient] = id;
    }
    for (const Op& op : step_->ops) last_micro_batch_ = std::max(last_micro_batch_, op.micro_batch);
  }

  /// If the gradients of every micro-batch are reduced, each micro-batch has its own whole gradients; none
  /// accumulates onto the previous ones.
  void separate_micro_batches() {
    std::map<std::pair<TensorId, int>, TensorId> own;
    for (Op& op : step_->ops) {
      for (TensorId& id : op.outputs) {
        const auto weight = weights_.find(id);
        if (weight == weights_.end() || !division_->divides(step_->tensor(weight->second))) continue;
        const auto [entry, is_first] = own.try_emplace({id, op.micro_batch}, id);
        if (is_first) op.attrs.set("accumulate", false);
        if (is_first && op.micro_batch > 0) entry->second = step_->add_tensor(step_->tensor(id));
        id = entry->second;
      }
    }
    for (const auto& [place, id] : own) weights_[id] = weights_.at(place.first);
  }

  void find_units() {
    std::map<std::pair<TensorId, int>, std::string> last_writer;
    for (std::size_t i = 0; i < step_->ops.size(); ++i) {
      const Op& op = step_->ops[i];
      if (op.phase == Phase::backward) ends_[{unit_of(op, sharding_), op.micro_batch}] = i;
      for (const TensorId id : op.outputs) {
        const auto weight = weights_.find(id);
        if (weight == weights_.end()) continue;
        const bool is_each = sharding_.zero >= 2 && division_->divides(step_->tensor(weight->second));
        if (is_each || op.micro_batch == last_micro_batch_)
          last_writer[{id, op.micro_batch}] = unit_of(op, sharding_);
      }
    }
    for (const auto& [written, unit] : last_writer)
      units_[{unit, written.second}].push_back({.weight = weights_.at(written.first), .id = written.first});
  }

  /// Sums the gradients of a unit whose last op is `end`.
  void reduce(const std::vector<Gradient>& gradients, std::size_t end) {
    const Op like = step_->ops[end];
    std::vector<TensorId> summed, whole, tied, experts;
    std::map<Group, std::vector<TensorId>> divided, parts;
    for (const auto& [weight, id] : gradients) {
      const Tensor& tensor = step_->tensor(weight);
      const bool is_summed = summed_.contains(tensor.name);
      const bool is_tied = tied_.contains(tensor.name) && like.micro_batch == last_micro_batch_;
      TensorId result = id;
      if (division_->divides(tensor)) {
        result = part_of_gradient(weight, id);
        divided[Division::sharers_of(tensor)].push_back(id);
        parts[Division::sharers_of(tensor)].push_back(result);
      } else if (program::is_split(tensor, Group::expert)) {
        experts.push_back(id);
      } else {
        whole.push_back(id);
      }
      if (is_summed) summed.push_back(id);
      if (is_tied) tied.push_back(result);
    }
    const auto add = [&](const program::OpDef& def, Group group, const std::vector<TensorId>& from,
                         const std::vector<TensorId>& to, std::size_t place) {
      if (from.empty()) return;
      Op op = collectives_.make(def, group, like, unit_of(like, sharding_) + "/gradients");
      op.inputs = from;
      op.outputs = to;
      if (op.is(ops::kReduceScatter)) op.attrs.set("accumulate", sharding_.zero >= 2 && like.micro_batch > 0);
      insertions_.before(place, std::move(op));
    };
    const bool is_late = sharding_.late_sums && like.micro_batch == last_micro_batch_;
    const std::size_t place = is_late ? step_->ops.size() : end + 1;
    add(ops::kAllReduce, Group::tensor, summed, summed, place);
    if (sharding_.data_ranks() > 1) add(ops::kAllReduce, Group::data, whole, whole, place);
    // The ranks of the group `expert` got the rows of each other: theirs are sums already.
    if (sharding_.expert_copies() > 1) add(ops::kAllReduce, Group::copies, experts, experts, place);
    for (const auto& [group, gradients_of] : divided)
      add(ops::kReduceScatter, group, gradients_of, parts.at(group), place);
    // The first stage has its gradient only after the last stage has sent everything back.
    add(ops::kAllReduce, Group::tied, tied, tied, step_->ops.size());
  }

  /// The rank's part of a weight's gradient, created once.
  TensorId part_of_gradient(TensorId weight, TensorId whole) {
    const auto [entry, is_new] = parts_.try_emplace(weight, program::kNone);
    if (is_new) {
      entry->second = step_->add_tensor(division_->part_of(weight, step_->tensor(whole)));
      gradients_->set(weight, entry->second);
    }
    return entry->second;
  }

  Program* step_;
  program::GradientMap* gradients_;
  Sharding sharding_;
  Collectives collectives_;
  const Division* division_;
  std::set<std::string> summed_, tied_;
  int last_micro_batch_ = 0;
  std::map<TensorId, TensorId> weights_;  ///< by gradient
  std::map<Unit, std::vector<Gradient>> units_;
  std::map<Unit, std::size_t> ends_;    ///< index of the last backward op, by unit
  std::map<TensorId, TensorId> parts_;  ///< by weight
  Insertions insertions_;
};

/// Gathers split weights for the ops that read them.
class WeightGatherer {
 public:
  WeightGatherer(Program& step, const Sharding& sharding, const Coordinates& rank, const Division& division)
      : step_(&step), sharding_(sharding), collectives_(sharding, rank), division_(&division) {}

  void run() {
    const std::size_t tensors = step_->tensors.size();
    for (std::size_t i = 0; i < step_->ops.size(); ++i) {
      for (std::size_t k = 0; k < step_->ops[i].inputs.size(); ++k) {
        const TensorId id = step_->ops[i].inputs[k];
        const bool is_weight = id != program::kNone && step_->tensor(id).role == Role::weight;
        if (is_weight && division_->divides(step_->tensor(id))) step_->ops[i].inputs[k] = whole_of(id, i);
      }
    }
    for (TensorId id = 0; id < static_cast<TensorId>(tensors); ++id) {
      Tensor& tensor = step_->tensor(id);
      if (tensor.role == Role::weight && division_->divides(tensor)) tensor = division_->part_of(id, tensor);
    }
    Insertions insertions;
    for (std::size_t i = 0; i < uses_.size(); ++i)
      insertions.before(uses_[i == 0 ? 0 : i - 1].first, gather(uses_[i]));
    insertions.apply(*step_);
  }

 private:
  /// Consecutive ops that read the weights of one unit, from op `first` on.
  struct Use {
    std::size_t first = 0;
    Group group = Group::data;
    std::vector<TensorId> parts, whole;
  };
  using Key = std::tuple<std::string, int, bool, Group>;

  /// What a weight is gathered once for. zero 3 frees it between the forward and the backward pass of a
  /// layer, but not that of the head, whose backward pass follows at once.
  [[nodiscard]] Key key_of(const Op& op, Group group) const {
    const std::string unit = unit_of(op, sharding_);
    if (sharding_.zero < 3) return {unit, 0, false, group};
    const bool is_layer = core::Scope(op.scope).layer().has_value();
    return {unit, op.micro_batch, is_layer && op.phase == Phase::backward, group};
  }

  TensorId whole_of(TensorId weight, std::size_t index) {
    const Group group = Division::sharers_of(step_->tensor(weight));
    const Key key = key_of(step_->ops[index], group);
    const Key place = sharding_.zero < 3 ? Key{} : key;
    const auto [entry, is_new] = whole_.try_emplace({weight, place}, program::kNone);
    if (!is_new) return entry->second;
    Tensor whole = step_->tensor(weight);
    whole.role = Role::gathered_weight;
    whole.full_precision = false;
    entry->second = step_->add_tensor(std::move(whole));
    const auto [use, is_new_use] = by_key_.try_emplace(key, uses_.size());
    if (is_new_use) uses_.push_back({.first = index, .group = group, .parts = {}, .whole = {}});
    uses_[use->second].parts.push_back(weight);
    uses_[use->second].whole.push_back(entry->second);
    return entry->second;
  }

  [[nodiscard]] Op gather(const Use& use) const {
    const Op& like = step_->ops[use.first];
    Op op = collectives_.make(ops::kAllGather, use.group, like, unit_of(like, sharding_) + "/weights");
    op.inputs = use.parts;
    op.outputs = use.whole;
    return op;
  }

  Program* step_;
  Sharding sharding_;
  Collectives collectives_;
  const Division* division_;
  std::map<std::pair<TensorId, Key>, TensorId> whole_;
  std::map<Key, std::size_t> by_key_;
  std::vector<Use> uses_;
};

/// Makes the result the mean over all ranks' parts of the batch.
void sum_loss(Program& step, const Collectives& collectives) {
  const TensorId loss = step.find("loss");
  if (loss == program::kNone) return;
  std::size_t last = 0;
  for (std::size_t i = 0; i < step.ops.size(); ++i) {
    const auto& outputs = step.ops[i].outputs;
    if (std::find(outputs.begin(), outputs.end(), loss) != outputs.end()) last = i;
  }
  Op op = collectives.make(ops::kAllReduce, Group::data, step.ops[last], step.ops[last].scope);
  op.inputs = {loss};
  op.outputs = {loss};
  step.ops.insert(step.ops.begin() + static_cast<std::ptrdiff_t>(last) + 1, std::move(op));
}

}  // namespace

void shard_data(Program& step, program::GradientMap& gradients, const Sharding& sharding,
                const Coordinates& rank, const SharedWeights& shared, const OptimizerOptions& optimizer) {
  const Division division(step, sharding, rank, optimizer);
  GradientReducer(step, gradients, sharding, rank, shared, division).run();
  if (sharding.zero > 0) WeightGatherer(step, sharding, rank, division).run();
  if (sharding.data_ranks() > 1) sum_loss(step, Collectives(sharding, rank));
}

void shard_inference(Program& step, const Sharding& sharding, const Coordinates& rank,
                     const OptimizerOptions& optimizer) {
  if (sharding.zero > 0)
    WeightGatherer(step, sharding, rank, Division(step, sharding, rank, optimizer)).run();
  if (sharding.data_ranks() > 1) sum_loss(step, Collectives(sharding, rank));
}

void sum_norm(Program& step, const Sharding& sharding, const Coordinates& rank, const SharedWeights& shared) {
  const bool is_of_data = sharding.zero > 0 || sharding.expert > 1;  // ranks of it have parts
  if (sharding.tensor == 1 && sharding.pipeline == 1 && !is_of_data) return;
  const auto norm =
      std::find_if(step.ops.begin(), step.ops.end(), [](const Op& op) { return op.is(ops::kGlobalNorm); });
  if (norm == step.ops.end()) return;
  const Collectives collectives(sharding, rank);
  std::vector<Op> sum{*norm};
  sum[0].def = &ops::kSquareSum;
  std::erase_if(sum[0].inputs, [&](TensorId id) {
    const Tensor& gradient = step.tensor(id);
    const bool is_tied = std::any_of(shared.tied.begin(), shared.tied.end(), [&](const std::string& weight) {
      return gradient.name == "d_" + weight;
    });
    // Those that are split over data-parallel ranks begin anew with each group of them.
    const int parts = program::is_split(gradient, Group::expert) ? sharding.expert
                      : program::is_split(gradient, Group::data) ? sharding.data_ranks()
                                                                 : 1;
    return (rank.tensor > 0 && !program::is_split(gradient, Group::tensor)) ||
           (is_of_data && rank.data >= parts) || (rank.pipeline > 0 && is_tied);
  });
  const TensorId square = step.add_tensor(
      {.name = "grad_square", .shape = {1}, .dtype = core::DType::f64, .full_precision = true});
  sum[0].outputs = {square};
  const auto add = [&](Group group) {
    Op op = collectives.make(ops::kAllReduce, group, sum[0], sum[0].scope);
    op.inputs = {square};
    op.outputs = {square};
    sum.push_back(std::move(op));
  };
  if (sharding.tensor > 1) add(Group::tensor);
  if (is_of_data) add(Group::data);
  if (sharding.pipeline > 1) add(Group::pipeline);
  norm->def = &ops::kNormOfSquares;
  norm->inputs = {square};
  step.ops.insert(norm, std::make_move_iterator(sum.begin()), std::make_move_iterator(sum.end()));
}

}  // namespace rooflm::passes
