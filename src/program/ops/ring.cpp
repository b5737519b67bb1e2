// Ring attention: attention over sequences whose tokens are spread over several ranks (Liu et al., 2023), as
// emitted by passes::ring_attention. Shapes: B sequences, T tokens of this rank (program/pieces.h), H query
// heads, K key/value heads, head size D. Attributes: heads, kv_heads, head_dim; of blocks also parts, index
// (of this rank) and from (the rank whose keys and values are used). With the flag `repeated` keys_values has
// one key and value head per query head, 2 H D (planned only).
//   take_keys_values          keys_values [B, T, 2 K D] = those of qkv [B, T, (H + 2K) D]
//   attention_block           attention of this rank's queries to the keys of the rank `from`:
//                             qkv, keys_values -> y [B, T, H D], lse [B, H, T]; 0 and -inf for a query that
//                             sees none of the keys
//   join_blocks               merges y_1, lse_1 of all blocks so far with y_2, lse_2 of one more:
//                             lse = log(e^lse_1 + e^lse_2), y = e^(lse_1 - lse) y_1 + e^(lse_2 - lse) y_2
//   attention_block_backward  dy, qkv, keys_values, y, lse (of all blocks) -> dq [B, T, H D], d_keys_values
//                             [B, T, 2 K D]; optional inputs 5 and 6 are the outputs, accumulated in place
//   join_gradients            qkv, dq, d_keys_values -> dqkv [B, T, (H + 2K) D] = dq and d_keys_values,
//                             concatenated
#include "program/ops/ring_sizes.h"

namespace rooflm::program::ops {
namespace {

std::vector<Tensor> infer_take(const Program& p, const Op& op) {
  return {{.shape = RingSizes(p, op, 0).keys_values()}};
}

std::vector<Tensor> infer_block(const Program& p, const Op& op) {
  const RingSizes s(p, op, 0);
  return {{.shape = s.queries()}, {.shape = {s.batch, s.heads, s.seq}, .full_precision = true}};
}

/// As flash_attention: two matmuls of 2D FLOP per score, counted in full. Half of the scores are below the
/// diagonal, whichever rank the keys belong to.
Cost cost_block(const Program& p, const Op& op) {
  const RingSizes s(p, op, 0);
  return {.matmul_flop = 4 * s.scores() * s.head_dim, .elementwise_flop = 5 * s.scores()};
}

std::vector<Tensor> infer_join_blocks(const Program& p, const Op& op) {
  return {{.shape = p.shape(op.inputs.at(0))}, {.shape = p.shape(op.inputs.at(1)), .full_precision = true}};
}

/// Two multiply-adds per element, and the weights of both blocks.
Cost cost_join_blocks(const Program& p, const Op& op) {
  return {.elementwise_flop = 4 * p.shape(op.inputs.at(0)).numel()};
}

std::vector<Tensor> infer_block_backward(const Program& p, const Op& op) {
  const RingSizes s(p, op, 1);
  expect(op.inputs.size() == 5 ||
             (op.inputs.size() == 7 && op.inputs[5] == op.outputs.at(0) && op.inputs[6] == op.outputs.at(1)),
         op, [] { return "adds to its own outputs"; });
  return {{.shape = s.queries(), .full_precision = true}, {.shape = s.keys_values(), .full_precision = true}};
}

/// As flash_attention_backward.
Cost cost_block_backward(const Program& p, const Op& op) {
  const RingSizes s(p, op, 1);
  return {.matmul_flop = 8 * s.scores() * s.head_dim, .elementwise_flop = 8 * s.scores()};
}

std::vector<Tensor> infer_join_gradients(const Program& p, const Op& op) {
  return {{.shape = RingSizes(p, op, 0).all()}};
}

Cost cost_ring_copy(const Program&, const Op&) { return {}; }

}  // namespace

const OpDef kTakeKeysValues{
    .name = "take_keys_values", .work = Work::copy, .infer = infer_take, .cost = cost_ring_copy};
const OpDef kAttentionBlock{
    .name = "attention_block", .work = Work::attention, .infer = infer_block, .cost = cost_block};
const OpDef kJoinBlocks{.name = "join_blocks", .infer = infer_join_blocks, .cost = cost_join_blocks};
const OpDef kAttentionBlockBackward{.name = "attention_block_backward",
                                    .work = Work::attention,
                                    .infer = infer_block_backward,
                                    .cost = cost_block_backward};
const OpDef kJoinGradients{
    .name = "join_gradients", .work = Work::copy, .infer = infer_join_gradients, .cost = cost_ring_copy};

}  // namespace rooflm::program::ops
