// Every op that a program can contain. The file named above each group, in program/ops/, defines the ops and
// gives their formulas.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>

#include "program/program.h"

namespace rooflm::program::ops {

// matmul.cpp
extern const OpDef kMatmul, kMatmulGelu, kMatmulGeluBackward, kBiasAdd, kBiasBackward;
// grouped_matmul.cpp
extern const OpDef kGroupedMatmul, kGroupedMatmulWeight, kGroupedBiasAdd, kGroupedBiasBackward;
// experts.cpp
extern const OpDef kRoute, kRouteBackward, kDispatch, kGatherRows, kGatherRowsBackward;
extern const OpDef kCombine, kCombineBackward, kBalanceBias;
// embedding.cpp
extern const OpDef kEmbedding, kEmbeddingBackward, kAddPositions, kAddPositionsBackward, kEmbeddingPositions;
// layernorm.cpp
extern const OpDef kLayerNorm, kLayerNormBackward, kAddLayerNorm;
// rmsnorm.cpp
extern const OpDef kRmsNorm, kRmsNormBackward, kAddRmsNorm;
// gelu.cpp
extern const OpDef kGelu, kGeluBackward;
// swiglu.cpp
extern const OpDef kSwiGlu, kSwiGluBackward;
// activate.cpp
extern const OpDef kActivate, kActivateBackward;
// scale_cap.cpp
extern const OpDef kScaleCap, kScaleCapBackward, kGateRows, kGateRowsBackward;
// head_norm.cpp
extern const OpDef kHeadNorm, kHeadNormBackward;
// add.cpp
extern const OpDef kAdd;
// rope.cpp
extern const OpDef kRope;
// heads.cpp
extern const OpDef kSplitHeads, kJoinHeads, kMergeHeads, kUnmergeHeads;
// softmax.cpp
extern const OpDef kCausalSoftmax, kCausalSoftmaxBackward;
// attention.cpp
extern const OpDef kAttention, kFlashAttention, kFlashAttentionBackward;
// latent_attention.cpp
extern const OpDef kLatentAttention, kLatentAttentionBackward;
// ring.cpp
extern const OpDef kTakeKeysValues, kAttentionBlock, kJoinBlocks, kAttentionBlockBackward, kJoinGradients;
// cache.cpp
extern const OpDef kAppendCache, kDecodeAttention, kPagedAttention, kLastRows, kPickRows;
// latent_cache.cpp
extern const OpDef kAppendLatents, kDecodeLatentAttention;
// argmax.cpp
extern const OpDef kArgmax;
// cross_entropy.cpp
extern const OpDef kCrossEntropy, kCrossEntropyBackward, kCrossEntropyWithGradient, kMean;
// columns.cpp
extern const OpDef kAddColumns, kTakeColumns;
// dora.cpp
extern const OpDef kRowSquares, kInverseNorms, kSetScales, kSetScalesBackward;
extern const OpDef kScaleColumns, kScaleColumnsBackward;
// cast.cpp
extern const OpDef kCast;
// fp8.cpp
extern const OpDef kFp8Cast, kSwiGluFp8, kSwiGluBackwardFp8, kFp8Scales;
extern const OpDef kLayerNormFp8, kAddLayerNormFp8, kRmsNormFp8, kAddRmsNormFp8;
// loss_scale.cpp
extern const OpDef kLossScale;
// optimizer.cpp
extern const OpDef kGlobalNorm, kSquareSum, kNormOfSquares, kAdamW, kAdamW8Bit, kSgd, kLion;
// matrix_optimizer.cpp
extern const OpDef kMomentum, kNormalize, kMatrixPolynomial;
// collectives.cpp
extern const OpDef kAllReduce, kAllGather, kReduceScatter, kSend, kReceive, kPassOn, kBarrier;
// exchange.cpp
extern const OpDef kExchangeRows, kReturnRows;
extern const OpDef kOwnPart, kForEachRank;

/// All of the above, for tests and tables. The build generates the list from these declarations.
std::span<const OpDef* const> all();

/// Sizes of a matmul, c [batch, m, n] (+)= op(a) op(b) of k terms, and how a and b are stored.
struct Product {
  std::int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false, accumulate = false, looped = false;
  std::int64_t batch = 1;
};
/// The attributes of that matmul.
Attributes matmul_attributes(const Product& product);
/// The attributes of a grouped_matmul of so many rows [rows, k] and weights.
Attributes grouped_matmul(std::int64_t experts, std::int64_t rows, std::int64_t n, std::int64_t k,
                          bool trans_b);
/// A matmul, one matrix or batched, or one of the rows of experts.
bool is_matmul(const Op& op);

/// Throws core::UsageError "OP in SCOPE: MESSAGE".
[[noreturn]] void refuse(const Op& op, const std::string& message);

/// Refuses the op unless `holds`. `message` is a callable, so the text is built only on failure.
template <std::invocable Message>
void expect(bool holds, const Op& op, Message&& message) {
  if (!holds) refuse(op, message());
}

}  // namespace rooflm::program::ops
