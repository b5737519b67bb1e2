// Expert parallelism: ranks have some of the experts of each layer.
#include "compile/passes/shard_experts.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "compile/passes/op_like.h"
#include "compile/passes/words.h"

namespace rooflm::passes {
namespace {

using program::Shard;

class ExpertSplitter {
 public:
  ExpertSplitter(Program& forward, const compile::Sharding& sharding, const program::Coordinates& rank)
      : forward_(&forward),
        ranks_(sharding.expert),
        index_((rank.data * sharding.tensor + rank.tensor) / sharding.expert_tensor % sharding.expert),
        room_(sharding.has_exact_rows ? sharding.expert_imbalance : sharding.expert),
        imbalance_(sharding.expert_imbalance) {}

  void run() {
    std::vector<Op> all = std::move(forward_->ops);
    forward_->ops.clear();
    for (Op& op : all) write(std::move(op));
  }

 private:
  void write(Op op) {
    if (op.is(ops::kGatherRows)) return send(std::move(op));
    if (op.is(ops::kCombine)) return take_back(std::move(op));
    bool is_of_rows = false;
    bool is_by_expert = false;
    for (TensorId& id : op.inputs) {
      is_of_rows = is_of_rows || wide_.contains(id);
      const auto found = replaced_.find(id);
      if (found == replaced_.end()) continue;
      is_by_expert = is_by_expert || forward_->tensor(id).dtype == core::DType::i32;  // offsets
      id = found->second;
      is_of_rows = true;
    }
    if (is_of_rows) widen(op, is_by_expert);
    forward_->ops.push_back(std::move(op));
  }

  /// The rows of all ranks, of this rank's experts; an op that knows the rows of each has weights by expert.
  void widen(Op& op, bool is_by_expert) {
    for (const TensorId id : op.outputs) {
      Tensor& tensor = forward_->tensor(id);
      tensor.shape = tensor.shape.with(0, times(room_, tensor.shape[0]));
      wide_.insert(id);
    }
    if (!is_by_expert) return;
    for (const TensorId id : op.inputs) {
      if (forward_->tensor(id).role == Role::weight) split(forward_->tensor(id));
    }
    if (!op.is(ops::kGroupedMatmul)) return;
    const core::Shape& weights = forward_->shape(op.inputs[1]);
    const std::int64_t rows = times(imbalance_ / room_, forward_->shape(op.inputs[0])[0]);
    op.attrs = ops::grouped_matmul(weights[0], rows, weights[1], weights[2], op.attrs.flag("trans_b"));
    op.attrs.set("rows", rows);
  }

  static std::int64_t times(double factor, std::int64_t rows) {
    return std::llround(factor * static_cast<double>(rows));
  }

  void split(Tensor& weight) const {
    if (program::is_split(weight, Group::expert)) return;
    weight.shards.push_back(
        {.group = Group::expert, .axis = 0, .index = index_, .parts = ranks_, .whole = weight.shape});
    weight.shape = program::shape_of(weight.shards.back());
  }

  [[nodiscard]] Op collective(const Op& like, const program::OpDef& def, std::vector<TensorId> inputs,
                              std::vector<TensorId> outputs) const {
    Op op = op_like(like, def, std::move(inputs), std::move(outputs));
    op.attrs = {{"group", static_cast<std::int64_t>(Group::expert)},
                {"parts", std::int64_t{ranks_}},
                {"index", std::int64_t{index_}}};
    return op;
  }

  /// Rows leave for the ranks of their experts.
  void send(Op gather) {
    active_ = gather.attrs.integer("active");
    const TensorId rows = gather.outputs.at(0);
    const TensorId offsets = offsets_of(gather);
    rows_ = forward_->shape(rows)[0];
    const std::int64_t experts = forward_->shape(offsets).numel() - 1;
    Tensor counts{.name = "counts", .shape = {ranks_, experts + 1}, .dtype = core::DType::i32};
    Tensor received = forward_->tensor(rows);
    received.name += ".received";
    received.shape = received.shape.with(0, times(room_, rows_));
    counts_ = forward_->add_tensor(std::move(counts));
    const TensorId arrived = forward_->add_tensor(std::move(received));
    const TensorId own = forward_->add_tensor(
        {.name = "own_offsets", .shape = {experts / ranks_ + 1}, .dtype = core::DType::i32});
    Op all = collective(gather, ops::kAllGather, {offsets}, {counts_});
    all.attrs.set("unit", experts + 1);
    Op exchange = collective(gather, ops::kExchangeRows, {rows, counts_}, {arrived, own});
    exchange.attrs.set("active", active_);
    if (room_ != ranks_) exchange.attrs.set("room", forward_->shape(arrived)[0]);
    forward_->ops.push_back(std::move(gather));
    forward_->ops.push_back(std::move(all));
    forward_->ops.push_back(std::move(exchange));
    replaced_[rows] = arrived;
    replaced_[offsets] = own;
  }

  /// The third output of the `dispatch` that made the order of the rows.
  [[nodiscard]] TensorId offsets_of(const Op& gather) const {
    const auto& all = forward_->ops;
    const auto dispatch = std::find_if(all.rbegin(), all.rend(), [&](const Op& op) {
      return op.is(ops::kDispatch) && op.outputs[0] == gather.inputs.at(1);
    });
    return dispatch == all.rend() ? program::kNone : dispatch->outputs.at(2);
  }

  /// What became of the rows comes back.
  void take_back(Op combine) {
    const TensorId rows = combine.inputs.at(0);
    Tensor back = forward_->tensor(rows);
    back.name += ".returned";
    back.shape = back.shape.with(0, rows_);
    const TensorId returned = forward_->add_tensor(std::move(back));
    Op back_again = collective(combine, ops::kReturnRows, {rows, counts_}, {returned});
    back_again.attrs.set("active", active_);
    if (room_ != ranks_) back_again.attrs.set("own_rows", rows_);
    forward_->ops.push_back(std::move(back_again));
    combine.inputs[0] = returned;
    forward_->ops.push_back(std::move(combine));
  }

  Program* forward_;
  int ranks_, index_;
  double room_, imbalance_;  ///< of rows that arrive, by those that are sent: what fits, and what comes
  std::int64_t rows_ = 0;    ///< R
  std::int64_t active_ = 1;  ///< experts of a token
  TensorId counts_ = program::kNone;
  std::map<TensorId, TensorId> replaced_;
  std::set<TensorId> wide_;  ///< with room for the rows of all ranks
};

}  // namespace

void shard_experts(Program& forward, const compile::Sharding& sharding, const program::Coordinates& rank) {
  if (sharding.expert > 1) ExpertSplitter(forward, sharding, rank).run();
}

}  // namespace rooflm::passes
