// Pipeline parallelism: consecutive layers on different ranks.
#include "compile/passes/shard_pipeline.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "compile/passes/words.h"
#include "core/scope.h"

namespace rooflm::passes {
namespace {

using compile::PipelineSchedule;
using compile::Sharding;

/// Maps ops to parts of the model.
class Parts {
 public:
  Parts(const Sharding& sharding, std::int64_t layers_per_part)
      : parts_(sharding.parts()), layers_per_part_(layers_per_part), before_(sharding.short_ends ? 1 : 0) {}
  [[nodiscard]] std::int64_t count() const { return parts_; }
  [[nodiscard]] std::int64_t of(const Op& op) const {
    const core::Scope scope(op.scope);
    if (const auto layer = scope.layer()) return (*layer + before_) / layers_per_part_;
    return scope.block() == "embedding" ? 0 : parts_ - 1;
  }

 private:
  std::int64_t parts_, layers_per_part_;
  std::int64_t before_;  ///< by how many layers the first part is smaller
};

std::int64_t layers_of(const Program& program) {
  std::int64_t layers = 0;
  for (const Op& op : program.ops) {
    if (const auto layer = core::Scope(op.scope).layer()) layers = std::max(layers, *layer + 1);
  }
  return layers;
}

/// Emits the parts of one stage with their receives and sends.
class StageCutter {
 public:
  StageCutter(const Program& whole, const Parts& parts, const Sharding& sharding,
              const program::Coordinates& rank)
      : whole_(&whole),
        parts_(parts),
        stages_(sharding.pipeline),
        stage_(rank.pipeline),
        renamed_(whole.tensors.size(), program::kNone),
        made_by_(whole.tensors.size(), -1) {}

  void run() {
    find_crossings();
    add_persistent();
    for (std::int64_t part = stage_; part < parts_.count(); part += stages_) write_part(part);
  }
  Program take() { return std::move(cut_); }
  [[nodiscard]] std::vector<std::string> tied() const { return tied_; }

 private:
  /// For each part but the last, the tensor that the next part reads.
  void find_crossings() {
    crossing_.assign(static_cast<std::size_t>(parts_.count() - 1), program::kNone);
    for (const Op& op : whole_->ops) {
      const std::int64_t part = parts_.of(op);
      for (const TensorId id : op.inputs) {
        const std::int64_t maker = id == program::kNone ? -1 : made_by_[static_cast<std::size_t>(id)];
        if (maker < 0 || maker == part) continue;
        TensorId& crossing = crossing_.at(static_cast<std::size_t>(maker));
        if (maker + 1 != part || (crossing != program::kNone && crossing != id)) {
          throw std::logic_error("a pipeline hands on one tensor from part to part, not " +
                                 whole_->tensor(id).name);
        }
        crossing = id;
      }
      for (const TensorId id : op.outputs) made_by_[static_cast<std::size_t>(id)] = part;
    }
  }

  /// Adds the weights and inputs that this stage uses, in order.
  void add_persistent() {
    std::vector<bool> is_used(whole_->tensors.size(), false);
    std::vector<bool> is_used_elsewhere(whole_->tensors.size(), false);
    for (const Op& op : whole_->ops) {
      std::vector<bool>& used = parts_.of(op) % stages_ == stage_ ? is_used : is_used_elsewhere;
      for (const TensorId id : op.inputs) {
        if (id != program::kNone) used[static_cast<std::size_t>(id)] = true;
      }
    }
    for (std::size_t i = 0; i < is_used.size(); ++i) {
      const Role role = whole_->tensors[i].role;
      if (is_used[i] && (role == Role::weight || role == Role::input))
        renamed_[i] = cut_.add_tensor(whole_->tensors[i]);
      if (is_used[i] && is_used_elsewhere[i] && role == Role::weight)
        tied_.push_back(whole_->tensors[i].name);
    }
  }

  void write_part(std::int64_t part) {
    if (part > 0) receive(part);
    for (const Op& op : whole_->ops) {
      if (parts_.of(op) != part) continue;
      Op own = op;
      for (auto* operands : {&own.inputs, &own.outputs}) {
        for (TensorId& id : *operands) id = own_tensor(id);
      }
      cut_.ops.push_back(std::move(own));
    }
    if (part + 1 < parts_.count()) send(part);
  }

  TensorId own_tensor(TensorId id) {
    if (id == program::kNone) return id;
    TensorId& own = renamed_[static_cast<std::size_t>(id)];
    if (own == program::kNone) own = cut_.add_tensor(whole_->tensor(id));
    return own;
  }

  void receive(std::int64_t part) {
    const TensorId id = crossing_[static_cast<std::size_t>(part - 1)];
    const program::Tensor& tensor = whole_->tensor(id);
    Op op = message(ops::kReceive, part - 1, part - 1);
    op.attrs.set("elements", tensor.shape.numel());
    renamed_[static_cast<std::size_t>(id)] = cut_.append(std::move(op), tensor.name, {tensor.shape}).at(0);
  }
  void send(std::int64_t part) {
    Op op = message(ops::kSend, part, part + 1);
    op.inputs = {own_tensor(crossing_[static_cast<std::size_t>(part)])};
    cut_.ops.push_back(std::move(op));
  }
  [[nodiscard]] Op message(const program::OpDef& def, std::int64_t channel, std::int64_t other_part) const {
    Op op;
    op.def = &def;
    op.scope = "pipeline";
    op.attrs = Attributes{{"group", static_cast<std::int64_t>(program::Group::pipeline)},
                          {"parts", std::int64_t{stages_}},
                          {"index", std::int64_t{stage_}},
                          {"peer", other_part % stages_},
                          {"channel", channel}};
    return op;
  }

  const Program* whole_;
  Parts parts_;
  int stages_, stage_;
  Program cut_;
  std::vector<TensorId> renamed_;
  std::vector<std::int64_t> made_by_;  ///< by tensor: the part that writes it; -1 for weights and inputs
  std::vector<TensorId> crossing_;
  std::vector<std::string> tied_;
};

/// The ops of one part of the model and one micro-batch, forward or backward.
struct Block {
  bool is_backward = false;
  std::int64_t chunk = 0;  ///< index among the stage's parts
  int micro_batch = 0;
  bool operator<(const Block& other) const {
    return std::tie(is_backward, chunk, micro_batch) <
           std::tie(other.is_backward, other.chunk, other.micro_batch);
  }
};

/// The part of an op. A send belongs to the sending part, a receive to the receiving one. Activations go from
/// part c to part c + 1, their gradients back.
std::int64_t part_with_messages(const Parts& parts, const Op& op) {
  if (!op.is(ops::kSend) && !op.is(ops::kReceive)) return parts.of(op);
  const std::int64_t channel = op.attrs.integer("channel");
  const bool is_back = channel < 0;
  const std::int64_t from = is_back ? -1 - channel : channel;
  return op.is(ops::kSend) == is_back ? from + 1 : from;
}

/// The k-th forward or backward block of a stage. With several parts per stage, micro-batches pass through
/// one part after the other in groups of as many as there are stages (Narayanan et al., 2021).
Block block_at(const Sharding& s, bool is_backward, int k) {
  if (s.interleave == 1) return {.is_backward = is_backward, .chunk = 0, .micro_batch = k};
  const int group = s.pipeline * s.interleave;
  const int chunk = k / s.pipeline % s.interleave;
  return {.is_backward = is_backward,
          .chunk = is_backward ? s.interleave - 1 - chunk : chunk,
          .micro_batch = k / group * s.pipeline + k % s.pipeline};
}

std::vector<Block> schedule_of(const Sharding& s, int stage, int micro_batches) {
  const int count = micro_batches * s.interleave;
  int ahead = s.interleave == 1 ? s.pipeline - stage - 1
                                : 2 * (s.pipeline - stage - 1) + (s.interleave - 1) * s.pipeline;
  if (s.schedule == PipelineSchedule::gpipe) ahead = count;
  ahead = std::min(ahead, count);
  std::vector<Block> order;
  for (int k = 0; k < ahead; ++k) order.push_back(block_at(s, false, k));
  for (int k = 0; k < count; ++k) {
    if (ahead + k < count) order.push_back(block_at(s, false, ahead + k));
    order.push_back(block_at(s, true, k));
  }
  return order;
}

}  // namespace

Stage cut_stage(Program& forward, const Sharding& sharding, const program::Coordinates& rank) {
  const std::int64_t layers = layers_of(forward);
  const std::int64_t layers_per_part = sharding.layers_per_part(layers);
  if (layers_per_part * sharding.parts() != layers + (sharding.short_ends ? 2 : 0))
    throw std::logic_error("the parts of a pipeline have unequal layers");
  if (sharding.pipeline == 1) return {.layers_per_part = layers_per_part, .tied = {}};
  StageCutter cutter(forward, Parts(sharding, layers_per_part), sharding, rank);
  cutter.run();
  forward = cutter.take();
  return {.layers_per_part = layers_per_part, .tied = cutter.tied()};
}

void order_pipeline(Program& step, const Sharding& sharding, const program::Coordinates& rank,
                    int micro_batches, const Stage& stage) {
  if (sharding.pipeline == 1) return;
  const Parts parts(sharding, stage.layers_per_part);
  std::map<Block, std::vector<Op>> blocks;
  for (Op& op : step.ops) {
    const Block block{.is_backward = op.phase == Phase::backward,
                      .chunk = part_with_messages(parts, op) / sharding.pipeline,
                      .micro_batch = op.micro_batch};
    blocks[block].push_back(std::move(op));
  }
  step.ops.clear();
  for (const Block& block : schedule_of(sharding, rank.pipeline, micro_batches)) {
    std::vector<Op>& ops = blocks[block];
    std::move(ops.begin(), ops.end(), std::back_inserter(step.ops));
    ops.clear();
  }
}

}  // namespace rooflm::passes
