// Context parallelism: attention over sequences that are spread over several ranks.
#include "compile/passes/ring_attention.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "compile/passes/op_like.h"
#include "compile/passes/words.h"
#include "compile/planned/collective_copies.h"
#include "compile/planned/gradient_sums.h"
#include "core/error.h"
#include "program/ops/ring_sizes.h"
#include "program/pieces.h"
#include "program/scores.h"

namespace rooflm::passes {
namespace {

/// Rewrites the ops of one rank.
class RingWriter {
 public:
  RingWriter(Program& step, const compile::Sharding& sharding, const program::Coordinates& rank,
             RingKind kind)
      : step_(&step), parts_(sharding.context), index_(rank.data % sharding.context), kind_(kind) {}

  void run() {
    std::vector<Op> ops = std::move(step_->ops);
    step_->ops.clear();
    const bool gathers = kind_ == RingKind::gathered;
    for (Op& op : ops) {
      if (op.is(ops::kFlashAttention)) {
        gathers ? gathered_forward(op) : forward(op);
      } else if (op.is(ops::kFlashAttentionBackward)) {
        gathers ? gathered_backward(op) : backward(op);
      } else {
        step_->ops.push_back(std::move(op));
      }
    }
  }

 private:
  void write(Op op) { step_->ops.push_back(std::move(op)); }

  TensorId scratch(const std::string& name, const core::Shape& shape, core::DType dtype) {
    return step_->add_tensor({.name = name, .shape = shape, .dtype = dtype, .role = Role::workspace});
  }

  /// Passes `held` on: returns the tensor that the neighbour sends while the next ops run.
  TensorId passed_on(const Op& like, TensorId held) {
    const Tensor& tensor = step_->tensor(held);
    const TensorId next = scratch(tensor.name, tensor.shape, tensor.dtype);
    Op op = op_like(like, ops::kPassOn, {held}, {next});
    op.attrs = place();
    write(std::move(op));
    return next;
  }

  [[nodiscard]] Attributes place() const {
    return Attributes{{"group", static_cast<std::int64_t>(program::Group::context)},
                      {"parts", std::int64_t{parts_}},
                      {"index", std::int64_t{index_}}};
  }

  TensorId own_keys_values(const Op& op, TensorId qkv, const ops::RingSizes& sizes) {
    const TensorId held = scratch("keys_values", sizes.keys_values(), step_->tensor(qkv).dtype);
    write(op_like(op, ops::kTakeKeysValues, {qkv}, {held}));
    return held;
  }

  /// An op on the keys and values that have moved `step` steps around the ring; its attribute `from` is their
  /// rank.
  Op block_op(const Op& like, const program::OpDef& def, int step, std::vector<TensorId> inputs,
              std::vector<TensorId> outputs) {
    Op op = op_like(like, def, std::move(inputs), std::move(outputs));
    op.attrs.set("parts", std::int64_t{parts_});
    op.attrs.set("index", std::int64_t{index_});
    op.attrs.set("from", std::int64_t{(index_ - step + parts_) % parts_});
    return op;
  }

  void forward(const Op& op) {
    const TensorId qkv = op.inputs.at(0);
    const ops::RingSizes sizes(*step_, op, 0);
    const TensorId y = op.outputs.at(0);
    const TensorId lse = op.outputs.at(1);
    TensorId held = own_keys_values(op, qkv, sizes);
    for (int step = 0; step < parts_; ++step) {
      const TensorId next = step + 1 < parts_ ? passed_on(op, held) : held;
      if (step == 0) {
        write(block_op(op, ops::kAttentionBlock, step, {qkv, held}, {y, lse}));
      } else {
        const TensorId block_y = scratch("block", step_->shape(y), step_->tensor(y).dtype);
        const TensorId block_lse = scratch("block_lse", step_->shape(lse), step_->tensor(lse).dtype);
        write(block_op(op, ops::kAttentionBlock, step, {qkv, held}, {block_y, block_lse}));
        write(op_like(op, ops::kJoinBlocks, {y, lse, block_y, block_lse}, {y, lse}));
      }
      held = next;
    }
  }

  void backward(const Op& op) {
    const TensorId dy = op.inputs.at(0);
    const TensorId qkv = op.inputs.at(1);
    const TensorId y = op.inputs.at(2);
    const TensorId lse = op.inputs.at(3);
    const ops::RingSizes sizes(*step_, op, 1);
    // Sums are at least fp32.
    const core::DType own = step_->tensor(qkv).dtype;
    const core::DType sums = own == core::DType::f64 ? own : core::DType::f32;
    const TensorId dq = scratch("dq", sizes.queries(), sums);
    TensorId gradient = scratch("d_keys_values", sizes.keys_values(), sums);
    TensorId held = own_keys_values(op, qkv, sizes);
    for (int step = 0; step < parts_; ++step) {
      const TensorId next = step + 1 < parts_ ? passed_on(op, held) : held;
      std::vector<TensorId> inputs = {dy, qkv, held, y, lse};
      if (step > 0) inputs.insert(inputs.end(), {dq, gradient});
      write(block_op(op, ops::kAttentionBlockBackward, step, std::move(inputs), {dq, gradient}));
      gradient = passed_on(op, gradient);
      held = next;
    }
    write(op_like(op, ops::kJoinGradients, {qkv, dq, gradient}, op.outputs));
  }

  static Op copied(const Op& like, TensorId from, TensorId to) {
    Op op = op_like(like, kRearrange, {from}, {to});
    op.attrs = Attributes{};
    return op;
  }

  /// The tensors of all ranks, gathered.
  TensorId gathered(const Op& like, TensorId own) {
    const Tensor part = step_->tensor(own);
    const TensorId all =
        scratch("all_keys_values", part.shape.with(0, part.shape[0] * std::int64_t{parts_}), part.dtype);
    Op op = op_like(like, ops::kAllGather, {own}, {all});
    op.attrs = place();
    op.attrs.set("unit", std::int64_t{1});
    write(std::move(op));
    return all;
  }

  /// sum = `sum` + `part`.
  TensorId added(const Op& like, TensorId sum, TensorId part) {
    const Tensor old = step_->tensor(sum);
    const TensorId both = scratch(old.name, old.shape, old.dtype);
    Op op = op_like(like, kAddGradient, {sum, part}, {both});
    op.attrs = Attributes{};
    write(std::move(op));
    return both;
  }

  // A collective that is awaited at once stands right before the op that reads its result: nothing overlaps
  // it.
  void gathered_forward(Op op) {
    op.attrs.set("repeated", true);
    const TensorId qkv = op.inputs.at(0);
    const ops::RingSizes sizes(*step_, op, 0);
    const TensorId y = op.outputs.at(0);
    const TensorId lse = op.outputs.at(1);
    const TensorId own = own_keys_values(op, qkv, sizes);
    write(block_op(op, ops::kAttentionBlock, 0, {qkv, own}, {y, lse}));
    const TensorId all = gathered(op, own);
    for (int step = 1; step < parts_; ++step) {
      const TensorId block_y = scratch("block", step_->shape(y), step_->tensor(y).dtype);
      const TensorId block_lse = scratch("block_lse", step_->shape(lse), step_->tensor(lse).dtype);
      write(block_op(op, ops::kAttentionBlock, step, {qkv, all}, {block_y, block_lse}));
      write(op_like(op, ops::kJoinBlocks, {y, lse, block_y, block_lse}, {y, lse}));
    }
  }

  void gathered_backward(Op op) {
    op.attrs.set("repeated", true);
    const TensorId dy = op.inputs.at(0);
    const TensorId qkv = op.inputs.at(1);
    const TensorId y = op.inputs.at(2);
    const TensorId lse = op.inputs.at(3);
    const ops::RingSizes sizes(*step_, op, 1);
    const core::DType dtype = step_->tensor(qkv).dtype;
    const core::DType sums = dtype == core::DType::f64 ? dtype : core::DType::f32;
    TensorId dq = scratch("dq", sizes.queries(), sums);
    TensorId gradient = scratch("d_keys_values", sizes.keys_values(), sums);
    const TensorId own = own_keys_values(op, qkv, sizes);
    TensorId all = program::kNone;
    for (int step = 0; step < parts_; ++step) {
      const TensorId block_dq = scratch("block_dq", sizes.queries(), dtype);
      const TensorId block_gradient = scratch("block_d_keys_values", sizes.keys_values(), dtype);
      write(block_op(op, ops::kAttentionBlockBackward, step, {dy, qkv, step == 0 ? own : all, y, lse},
                     {block_dq, block_gradient}));
      if (step == 0) {
        write(copied(op, block_dq, dq));
        write(copied(op, block_gradient, gradient));
        all = gathered(op, own);
      } else {
        gradient = added(op, passed_on(op, gradient), block_gradient);
        dq = added(op, dq, block_dq);
      }
    }
    gradient = passed_on(op, gradient);
    write(op_like(op, ops::kJoinGradients, {qkv, dq, gradient}, op.outputs));
  }

  Program* step_;
  int parts_, index_;
  RingKind kind_;
};

/// Sets the attributes that tell ops which positions their rows have. Latent attention of a part of a text
/// has no kernel, and no rewrite.
void tell_pieces(Program& step, const program::Pieces& own) {
  for (Op& op : step.ops) {
    const bool has_positions = op.is(ops::kRope) || op.is(ops::kAddPositions) ||
                               op.is(ops::kAddPositionsBackward) || op.is(ops::kEmbeddingPositions) ||
                               op.is(ops::kLatentAttention) || op.is(ops::kLatentAttentionBackward);
    if (has_positions) own.write_to(op.attrs);
  }
}

}  // namespace

void ring_attention(Program& step, const compile::Sharding& sharding, const program::Coordinates& rank,
                    RingKind kind) {
  if (sharding.context == 1) return;
  const bool has_softmax =
      std::ranges::any_of(step.ops, [](const Op& op) { return op.is(ops::kCausalSoftmax); });
  if (has_softmax)
    throw core::UsageError(
        "--cp needs flash attention: --attention flash, or in a plan a framework that has it, such as "
        "torch-compile or megatron");
  for (const Op& op : step.ops) {
    if (program::sinks_of(op) != program::kNone)
      throw core::Unavailable("--cp: attention with sinks is not split over context-parallel ranks yet");
  }
  RingWriter(step, sharding, rank, kind).run();
  tell_pieces(step, sharding.pieces_of(rank));
}

}  // namespace rooflm::passes
