// Context parallelism: attention over sequences whose parts are on several ranks.
#include "compile/passes/ring_attention.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "compile/passes/op_like.h"
#include "core/checked.h"
#include "core/error.h"
#include "program/groups.h"
#include "program/ops.h"

namespace rooflm::passes {
namespace {

namespace ops = program::ops;
using program::Attributes;
using program::Cost;
using program::Op;
using program::Program;
using program::Role;
using program::Tensor;
using program::TensorId;
using program::Work;

struct Sizes {
  std::int64_t batch, seq, heads, kv_heads, head_dim;
  Sizes(const Program& p, const Op& op, std::size_t qkv)
      : batch(p.shape(op.inputs.at(qkv))[0]),
        seq(p.shape(op.inputs.at(qkv))[1]),
        heads(op.attrs.integer("heads")),
        kv_heads(op.attrs.integer("kv_heads")),
        head_dim(op.attrs.integer("head_dim")) {}
  [[nodiscard]] core::Shape queries() const { return {batch, seq, heads * head_dim}; }
  [[nodiscard]] core::Shape keys_values() const { return {batch, seq, 2 * kv_heads * head_dim}; }
  [[nodiscard]] core::Shape all() const { return {batch, seq, (heads + 2 * kv_heads) * head_dim}; }
  [[nodiscard]] core::Count scores() const { return core::Count(batch) * heads * seq * seq; }
};

std::vector<Tensor> infer_take(const Program& p, const Op& op) {
  return {{.shape = Sizes(p, op, 0).keys_values()}};
}

std::vector<Tensor> infer_block(const Program& p, const Op& op) {
  const Sizes s(p, op, 0);
  return {{.shape = s.queries()}, {.shape = {s.batch, s.heads, s.seq}, .full_precision = true}};
}

/// As flash_attention: two products of 2D flop per score, counted in full.
Cost cost_block(const Program& p, const Op& op) {
  const Sizes s(p, op, 0);
  return {.matmul_flop = 4 * s.scores() * s.head_dim, .elementwise_flop = 5 * s.scores()};
}

std::vector<Tensor> infer_join(const Program& p, const Op& op) {
  return {{.shape = p.shape(op.inputs.at(0))}, {.shape = p.shape(op.inputs.at(1)), .full_precision = true}};
}

/// Two multiply-adds and the weights of both.
Cost cost_join(const Program& p, const Op& op) {
  return {.elementwise_flop = 4 * p.shape(op.inputs.at(0)).numel()};
}

std::vector<Tensor> infer_block_backward(const Program& p, const Op& op) {
  const Sizes s(p, op, 1);
  return {{.shape = s.queries(), .full_precision = true}, {.shape = s.keys_values(), .full_precision = true}};
}

/// As flash_attention_backward.
Cost cost_block_backward(const Program& p, const Op& op) {
  const Sizes s(p, op, 1);
  return {.matmul_flop = 8 * s.scores() * s.head_dim, .elementwise_flop = 8 * s.scores()};
}

std::vector<Tensor> infer_join_gradients(const Program& p, const Op& op) {
  return {{.shape = Sizes(p, op, 0).all()}};
}

std::vector<Tensor> infer_pass_on(const Program& p, const Op& op) {
  return {{.shape = p.shape(op.inputs.at(0))}};
}

Cost cost_nothing(const Program&, const Op&) { return {}; }

/// Rewrites the ops of one rank.
class RingWriter {
 public:
  RingWriter(Program& step, const compile::Sharding& sharding, const program::Coordinates& rank)
      : step_(&step), parts_(sharding.context), index_(rank.data % sharding.context) {}

  void run() {
    std::vector<Op> ops = std::move(step_->ops);
    step_->ops.clear();
    for (Op& op : ops) {
      if (op.is(ops::kFlashAttention)) {
        forward(op);
      } else if (op.is(ops::kFlashAttentionBackward)) {
        backward(op);
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

  /// What the neighbour sends while the next ops run.
  TensorId passed_on(const Op& like, TensorId held) {
    const Tensor& tensor = step_->tensor(held);
    const TensorId next = scratch(tensor.name, tensor.shape, tensor.dtype);
    Op op = op_like(like, kPassOn, {held}, {next});
    op.attrs = Attributes{{"group", static_cast<std::int64_t>(program::Group::context)},
                          {"parts", std::int64_t{parts_}},
                          {"index", std::int64_t{index_}}};
    write(std::move(op));
    return next;
  }

  TensorId own_keys_values(const Op& op, TensorId qkv, const Sizes& sizes) {
    const TensorId held = scratch("keys_values", sizes.keys_values(), step_->tensor(qkv).dtype);
    write(op_like(op, kTakeKeysValues, {qkv}, {held}));
    return held;
  }

  /// Of the keys and values that have come so many steps around the ring: the attribute `from` says whose.
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
    const Sizes sizes(*step_, op, 0);
    const TensorId y = op.outputs.at(0);
    const TensorId lse = op.outputs.at(1);
    TensorId held = own_keys_values(op, qkv, sizes);
    for (int step = 0; step < parts_; ++step) {
      const TensorId next = step + 1 < parts_ ? passed_on(op, held) : held;
      if (step == 0) {
        write(block_op(op, kAttentionBlock, step, {qkv, held}, {y, lse}));
      } else {
        const TensorId block_y = scratch("block", step_->shape(y), step_->tensor(y).dtype);
        const TensorId block_lse = scratch("block_lse", step_->shape(lse), step_->tensor(lse).dtype);
        write(block_op(op, kAttentionBlock, step, {qkv, held}, {block_y, block_lse}));
        write(op_like(op, kJoinBlocks, {y, lse, block_y, block_lse}, {y, lse}));
      }
      held = next;
    }
  }

  void backward(const Op& op) {
    const TensorId dy = op.inputs.at(0);
    const TensorId qkv = op.inputs.at(1);
    const TensorId y = op.inputs.at(2);
    const TensorId lse = op.inputs.at(3);
    const Sizes sizes(*step_, op, 1);
    // Sums are in fp32 at least.
    const core::DType own = step_->tensor(qkv).dtype;
    const core::DType sums = own == core::DType::f64 ? own : core::DType::f32;
    const TensorId dq = scratch("dq", sizes.queries(), sums);
    TensorId gradient = scratch("d_keys_values", sizes.keys_values(), sums);
    TensorId held = own_keys_values(op, qkv, sizes);
    for (int step = 0; step < parts_; ++step) {
      const TensorId next = step + 1 < parts_ ? passed_on(op, held) : held;
      std::vector<TensorId> inputs = {dy, qkv, held, y, lse};
      if (step > 0) inputs.insert(inputs.end(), {dq, gradient});
      write(block_op(op, kAttentionBlockBackward, step, std::move(inputs), {dq, gradient}));
      gradient = passed_on(op, gradient);
      held = next;
    }
    write(op_like(op, kJoinGradients, {qkv, dq, gradient}, op.outputs));
  }

  Program* step_;
  int parts_, index_;
};

}  // namespace

const program::OpDef kTakeKeysValues{
    .name = "take_keys_values", .work = Work::copy, .infer = infer_take, .cost = cost_nothing};
const program::OpDef kAttentionBlock{
    .name = "attention_block", .work = Work::attention, .infer = infer_block, .cost = cost_block};
const program::OpDef kJoinBlocks{.name = "join_blocks", .infer = infer_join, .cost = cost_join};
const program::OpDef kAttentionBlockBackward{.name = "attention_block_backward",
                                             .work = Work::attention,
                                             .infer = infer_block_backward,
                                             .cost = cost_block_backward};
const program::OpDef kJoinGradients{
    .name = "join_gradients", .work = Work::copy, .infer = infer_join_gradients, .cost = cost_nothing};
const program::OpDef kPassOn{
    .name = "pass_on", .work = Work::collective, .infer = infer_pass_on, .cost = cost_nothing};

void ring_attention(Program& step, const compile::Sharding& sharding, const program::Coordinates& rank) {
  if (sharding.context == 1) return;
  const bool has_softmax =
      std::ranges::any_of(step.ops, [](const Op& op) { return op.is(ops::kCausalSoftmax); });
  if (has_softmax)
    throw core::UsageError(
        "--cp wants flash attention: a framework that has it, as torch-compile or megatron");
  RingWriter(step, sharding, rank).run();
}

}  // namespace rooflm::passes
