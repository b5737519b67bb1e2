// How attention is computed: one matmul per head, batched matmuls, or one flash kernel.
#include "compile/passes/lower_attention.h"

#include <string>
#include <utility>
#include <vector>

#include "compile/passes/words.h"
#include "core/error.h"
#include "program/builder.h"
#include "program/scores.h"

namespace rooflm::passes {
namespace {

/// Query heads that share a key/value head are contiguous, so grouped-query attention is B*K matmuls [(H/K)
/// T, D] x [D, T].
void lower_to_matmuls(program::Builder& b, const Op& op, bool looped) {
  const auto& attrs = op.attrs;
  const std::int64_t heads = attrs.integer("heads");
  const std::int64_t kv_heads = attrs.integer("kv_heads");
  const std::int64_t head_dim = attrs.integer("head_dim");
  const auto& qkv_shape = b.program().shape(op.inputs.at(0));
  const std::int64_t batch = qkv_shape[0];
  const std::int64_t seq = qkv_shape[1];
  const std::int64_t rows = heads / kv_heads * seq;  // rows of all queries that share a key/value head
  const auto matmul_attrs = [&](std::int64_t n, std::int64_t k, bool trans_b) {
    return ops::matmul_attributes(
        {.m = rows, .n = n, .k = k, .trans_b = trans_b, .looped = looped, .batch = batch * kv_heads});
  };
  const Attributes packed{{"heads", heads}, {"kv_heads", kv_heads}, {"head_dim", head_dim}};
  const auto outer = b.scope(op.scope);
  std::vector<TensorId> qkv;
  {
    const auto scope = b.scope("qkv");
    qkv = b.ops(ops::kSplitHeads, {op.inputs[0]}, packed, "q");
  }
  TensorId p = program::kNone;  // [B, H, T, T]
  {
    const auto scope = b.scope("qk");
    p = b.op(ops::kMatmul, {qkv[0], qkv[1]}, matmul_attrs(seq, head_dim, true), "scores",
             {{batch, heads, seq, seq}});
  }
  {
    const auto scope = b.scope("softmax");
    const auto scores = program::Scores::of(attrs);
    Attributes softmax{{"scale", scores.scale}, {"looped", looped}, {"batch", batch * kv_heads}};
    if (scores.window > 0) softmax.set("window", scores.window);
    if (scores.chunk > 0) softmax.set("chunk", scores.chunk);
    if (scores.temperature > 0) softmax.set("temperature", scores.temperature);
    if (scores.temperature > 0) softmax.set("floor", scores.floor);
    if (scores.cap > 0) softmax.set("cap", scores.cap);
    if (scores.alibi) softmax.set("alibi", true);
    if (attrs.has("slopes")) softmax.set("slopes", scores.slopes);
    std::vector<TensorId> inputs = {p};
    if (const TensorId sinks = program::sinks_of(op); sinks != program::kNone) inputs.push_back(sinks);
    p = b.op(ops::kCausalSoftmax, inputs, softmax, "p");
  }
  const auto scope = b.scope("v");
  const TensorId y = b.op(ops::kMatmul, {p, qkv[2]}, matmul_attrs(head_dim, seq, false), "y",
                          {{batch, heads, seq, head_dim}});
  b.op_into(ops::kMergeHeads, {y}, packed, op.outputs);
}

void lower_to_flash(program::Program& program, Op& op) {
  const core::Shape y = program.shape(op.outputs.at(0));
  op.outputs.push_back(program.add_tensor(
      {.name = "lse", .shape = {y[0], op.attrs.integer("heads"), y[1]}, .full_precision = true}));
  op.def = &ops::kFlashAttention;
  op.scope += "/flash";
}

void lower_all_to_matmuls(program::Program& program, bool looped) {
  std::vector<Op> old = std::exchange(program.ops, {});
  program.ops.reserve(old.capacity());
  program::Builder builder(program);
  for (Op& op : old) {
    if (op.is(ops::kAttention)) {
      lower_to_matmuls(builder, op, looped);
    } else {
      program.ops.push_back(std::move(op));
    }
  }
}

}  // namespace

void lower_attention(program::Program& program, AttentionKind kind) {
  if (kind != AttentionKind::flash) return lower_all_to_matmuls(program, kind == AttentionKind::looped);
  for (Op& op : program.ops) {
    if (op.is(ops::kAttention)) lower_to_flash(program, op);
  }
}

}  // namespace rooflm::passes
