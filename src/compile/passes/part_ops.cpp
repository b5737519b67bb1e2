// Ops of a rank that has a part of the vocabulary.
#include "compile/passes/part_ops.h"

#include <utility>
#include <vector>

#include "compile/passes/words.h"

namespace rooflm::passes {
namespace {

/// The same op on a part. It has no plain form on the whole table.
OpDef of_part(OpDef def) {
  def.plain = nullptr;
  return def;
}

std::vector<Tensor> infer_join_losses(const Program& p, const Op& op) {
  return {{.shape = p.shape(op.inputs.at(0)), .full_precision = true},
          {.shape = p.shape(op.inputs.at(1)), .full_precision = true}};
}

/// 3 per element: exp, sum, and the final subtraction.
program::Cost cost_join_losses(const Program& p, const Op& op) {
  return {.elementwise_flop = 3 * p.shape(op.inputs.at(2)).numel()};
}

/// Pairs: an op on the whole, and its counterpart on a part.
using Twins = std::vector<std::pair<const OpDef*, const OpDef*>>;

void replace(Op& op, const Twins& twins) {
  for (const auto& [whole, part] : twins) {
    if (op.def != whole) continue;
    op.def = part;
    return;
  }
}

}  // namespace

const OpDef kEmbeddingOfPart = of_part(ops::kEmbedding);
const OpDef kEmbeddingBackwardOfPart = of_part(ops::kEmbeddingBackward);
const OpDef kCrossEntropyOfPart = of_part(ops::kCrossEntropy);
const OpDef kCrossEntropyBackwardOfPart = of_part(ops::kCrossEntropyBackward);
const OpDef kJoinLosses{
    .name = "join_losses", .work = program::Work::loss, .infer = infer_join_losses, .cost = cost_join_losses};

void name_part_ops(Program& step, const compile::Sharding& sharding) {
  if (!sharding.vocab_parallel) return;
  static const Twins kOfVocabulary = {{&ops::kEmbedding, &kEmbeddingOfPart},
                                      {&ops::kEmbeddingBackward, &kEmbeddingBackwardOfPart},
                                      {&ops::kCrossEntropy, &kCrossEntropyOfPart},
                                      {&ops::kCrossEntropyBackward, &kCrossEntropyBackwardOfPart}};
  for (Op& op : step.ops) {
    if (op.attrs.has("first")) replace(op, kOfVocabulary);
  }
}

}  // namespace rooflm::passes
