// The list of all ops, and the check that their shape rules share.
#include <array>

#include "core/error.h"
#include "program/ops.h"

namespace rooflm::program::ops {

std::span<const OpDef* const> all() {
  static constexpr std::array kAll = {&kMatmul,
                                      &kMatmulGelu,
                                      &kMatmulGeluBackward,
                                      &kBiasAdd,
                                      &kBiasBackward,
                                      &kEmbedding,
                                      &kEmbeddingBackward,
                                      &kAddPositions,
                                      &kAddPositionsBackward,
                                      &kEmbeddingPositions,
                                      &kLayerNorm,
                                      &kLayerNormBackward,
                                      &kAddLayerNorm,
                                      &kRmsNorm,
                                      &kRmsNormBackward,
                                      &kAddRmsNorm,
                                      &kGelu,
                                      &kGeluBackward,
                                      &kSwiGlu,
                                      &kSwiGluBackward,
                                      &kAdd,
                                      &kRope,
                                      &kSplitHeads,
                                      &kJoinHeads,
                                      &kMergeHeads,
                                      &kUnmergeHeads,
                                      &kCausalSoftmax,
                                      &kCausalSoftmaxBackward,
                                      &kAttention,
                                      &kFlashAttention,
                                      &kFlashAttentionBackward,
                                      &kCrossEntropy,
                                      &kCrossEntropyBackward,
                                      &kCrossEntropyWithGradient,
                                      &kMean,
                                      &kCast,
                                      &kGlobalNorm,
                                      &kLossScale,
                                      &kAdamW,
                                      &kSgd};
  return kAll;
}

void expect(bool holds, const Op& op, const std::string& message) {
  if (!holds) throw core::UsageError(std::string(op.def->name) + " in " + op.scope + ": " + message);
}

}  // namespace rooflm::program::ops
