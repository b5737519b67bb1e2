// Asynchronous tensor parallelism: ranks exchange rows while their matmuls run.
#include "compile/planned/async_tensor.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "compile/passes/op_like.h"
#include "compile/passes/words.h"
#include "compile/planned/collective_copies.h"
#include "core/scope.h"

namespace rooflm::passes {
namespace {

std::vector<Tensor> infer_as_they_are(const Program& p, const Op& op) {
  std::vector<Tensor> outputs;
  outputs.reserve(op.outputs.size());
  for (const TensorId id : op.outputs) outputs.push_back({.shape = p.shape(id), .role = p.tensor(id).role});
  return outputs;
}

Cost cost_nothing(const Program&, const Op&) { return {}; }
Cost cost_place(const Program& p, const Op& op) {
  const std::int64_t bytes = p.tensor(op.inputs.at(0)).bytes();
  return {.bytes_read = bytes, .bytes_written = bytes};
}

bool is_row_exchange(const Program& p, const Op& op, const program::OpDef& def) {
  return op.is(def) && program::group_of(op) == program::Group::tensor && op.outputs.size() == 1 &&
         p.shape(op.outputs[0]).rank() > 1 && core::Scope(op.scope).layer();
}

/// Whether the op is a single matmul whose rows are in their natural order. Those of fp8 have slot offsets.
bool is_by_rows(const Op& op) {
  const bool is_whole = op.output_offset.empty() && (op.input_offset.empty() || op.input_offset[0] == 0);
  return op.is(ops::kMatmul) && op.attrs.integer("batch") == 1 && !op.attrs.flag("trans_a") && is_whole &&
         !op.attrs.has("a_stride");
}

class AsyncWriter {
 public:
  AsyncWriter(Program& step, int parts) : step_(&step), parts_(parts) {}

  void run() {
    find_pairs();
    std::vector<Op> all = std::move(step_->ops);
    step_->ops.clear();
    for (std::size_t i = 0; i < all.size(); ++i) {
      Op& op = all[i];
      if (gathers_.contains(i)) {
        if (is_by_position(op.outputs[0])) by_position_[op.outputs[0]] = program::kNone;
        begin_gather(op);
      } else if (const auto gather = consumers_.find(i); gather != consumers_.end()) {
        consume(op);
      } else if (producers_.contains(i)) {
        produce(op);
      } else if (scatters_.contains(i)) {
        sum(op);
      } else if (!is_held(op)) {
        order_rows(op);
        step_->ops.push_back(std::move(op));
      }
    }
  }

 private:
  /// Finds the matmul that follows each all_gather, and the matmul before each reduce_scatter.
  void find_pairs() {
    const std::vector<Op>& all = step_->ops;
    std::map<TensorId, std::size_t> gathered;  // gathers whose matmul is still to come
    std::map<TensorId, std::size_t> made;      // matmul results that nothing has read yet
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Op& op = all[i];
      if (is_by_rows(op) && gathered.contains(op.inputs[0]) && is_divisible(op)) {
        gathers_.insert(gathered.at(op.inputs[0]));
        consumers_[i] = gathered.at(op.inputs[0]);
        gathered.erase(op.inputs[0]);
      }
      const bool scatters = is_row_exchange(*step_, op, ops::kReduceScatter);
      if (scatters && made.contains(op.inputs[0])) {
        producers_.insert(made.at(op.inputs[0]));
        scatters_.insert(i);
      }
      for (const TensorId id : op.inputs) {
        if (!op.is(kRearrange)) gathered.erase(id);
        made.erase(id);
      }
      for (const TensorId id : op.outputs) made.erase(id);
      if (is_row_exchange(*step_, op, ops::kAllGather)) gathered[op.outputs[0]] = i;
      // The gradient of a layer's input is a sum of several matmuls in PyTorch; here it is one.
      const bool is_alone = op.phase == Phase::forward || op.recomputed;
      if (is_alone && is_by_rows(op) && is_divisible(op) && !consumers_.contains(i)) made[op.outputs[0]] = i;
    }
  }

  [[nodiscard]] bool is_divisible(const Op& op) const { return op.attrs.integer("m") % parts_ == 0; }

  TensorId signal() { return step_->add_tensor({.name = "arrival", .shape = {1}, .role = Role::workspace}); }

  /// Rows of another rank, in flight.
  TensorId copy_rows(const Op& like, std::vector<TensorId> inputs, std::int64_t bytes) {
    const TensorId arrival = signal();
    Op op = op_like(like, kCopyRows, std::move(inputs), {arrival});
    op.attrs = Attributes{{"group", static_cast<std::int64_t>(program::Group::tensor)},
                          {"parts", std::int64_t{parts_}},
                          {"bytes", bytes}};
    op.lane = program::Lane::copy;
    step_->ops.push_back(std::move(op));
    return arrival;
  }

  void begin_gather(const Op& op) {
    const TensorId own = op.inputs[0];
    const TensorId whole = op.outputs[0];
    Op place = op_like(op, kPlaceRows, {own}, {whole});
    place.attrs = Attributes{};
    step_->ops.push_back(std::move(place));
    for (int i = 1; i < parts_; ++i)
      arrivals_[whole].push_back(copy_rows(op, {own}, step_->tensor(own).bytes()));
  }

  /// The part of a matmul that computes the rows of one rank.
  void matmul(const Op& op, int part) {
    const std::int64_t rows = op.attrs.integer("m") / parts_;
    Op own = op;
    own.attrs.set("m", rows);
    own.input_offset.resize(op.inputs.size(), 0);
    own.input_offset[0] = part * rows * op.attrs.integer("k");
    own.output_offset.assign(op.outputs.size(), 0);
    own.output_offset[0] = part * rows * op.attrs.integer("n");
    step_->ops.push_back(std::move(own));
  }

  void consume(const Op& op) {
    const std::vector<TensorId> arrivals = std::move(arrivals_[op.inputs[0]]);
    arrivals_.erase(op.inputs[0]);
    matmul(op, 0);
    for (int i = 1; i < parts_; ++i) {
      Op wait = op_like(op, kRowsArrived, {arrivals.at(static_cast<std::size_t>(i) - 1)}, {signal()});
      wait.attrs = Attributes{};
      step_->ops.push_back(std::move(wait));
      matmul(op, i);
    }
    const auto held = held_.find(op.inputs[0]);
    if (held == held_.end()) return;
    for (Op& later : held->second) step_->ops.push_back(std::move(later));
    held_.erase(held);
  }

  /// Whether the op is held back: it copies rows that have not arrived and waits for the matmul.
  bool is_held(Op& op) {
    if (!op.is(kRearrange) || op.inputs.size() != 1 || !arrivals_.contains(op.inputs[0])) return false;
    held_[op.inputs[0]].push_back(std::move(op));
    return true;
  }

  /// Ranks hold positions of all sequences, so the rows of several sequences arrive position by position.
  /// (Narrower rows are transposed by a separate op, which also orders them.)
  [[nodiscard]] bool is_by_position(TensorId whole) const {
    const Tensor& tensor = step_->tensor(whole);
    return tensor.shape.rank() > 2 && tensor.shape[0] > 1 && core::size_of(tensor.dtype) > 1;
  }

  /// A matmul that sums over rows (a weight gradient) needs them sequence by sequence, like its other
  /// operand. The first such matmul copies them.
  void order_rows(Op& op) {
    if (!op.is(ops::kMatmul) || !op.attrs.flag("trans_a")) return;
    for (TensorId& id : op.inputs) {
      const auto found = by_position_.find(id);
      if (found == by_position_.end()) continue;
      if (found->second == program::kNone) {
        Tensor rows = step_->tensor(id);
        rows.name += ".rows";
        found->second = step_->add_tensor(std::move(rows));
        Op copy = op_like(op, kRearrange, {id}, {found->second});
        copy.attrs = Attributes{};
        step_->ops.push_back(std::move(copy));
      }
      id = found->second;
    }
  }

  void produce(const Op& op) {
    const std::int64_t bytes = step_->tensor(op.outputs[0]).bytes() / parts_;
    for (int i = 1; i < parts_; ++i) {
      matmul(op, i);
      sent_[op.outputs[0]].push_back(copy_rows(op, {}, bytes));
    }
    matmul(op, 0);
  }

  void sum(const Op& op) {
    std::vector<TensorId> inputs = std::move(sent_[op.inputs[0]]);
    sent_.erase(op.inputs[0]);
    inputs.insert(inputs.begin(), op.inputs[0]);
    Op add = op_like(op, kSumRows, std::move(inputs), op.outputs);
    add.attrs = Attributes{};
    step_->ops.push_back(std::move(add));
  }

  Program* step_;
  int parts_;
  std::set<std::size_t> gathers_, producers_, scatters_;
  std::map<std::size_t, std::size_t> consumers_;        ///< matmul by the gather that it follows
  std::map<TensorId, std::vector<TensorId>> arrivals_;  ///< by the gathered tensor
  std::map<TensorId, std::vector<TensorId>> sent_;      ///< by the tensor to be reduced
  std::map<TensorId, std::vector<Op>> held_;
  std::map<TensorId, TensorId> by_position_;  ///< by gathered tensor: its copy sequence by sequence, or kNone
};

}  // namespace

const program::OpDef kPlaceRows{
    .name = "place_rows", .work = program::Work::copy, .infer = infer_as_they_are, .cost = cost_place};
const program::OpDef kCopyRows{
    .name = "copy_rows", .work = program::Work::copy, .infer = infer_as_they_are, .cost = cost_nothing};
const program::OpDef kRowsArrived{
    .name = "rows_arrived", .work = program::Work::copy, .infer = infer_as_they_are, .cost = cost_nothing};
const program::OpDef kSumRows{
    .name = "sum_rows", .work = program::Work::copy, .infer = infer_as_they_are, .cost = cost_nothing};

void async_tensor(Program& step, const compile::Sharding& sharding) {
  if (sharding.tensor > 1) AsyncWriter(step, sharding.tensor).run();
}

}  // namespace rooflm::passes
