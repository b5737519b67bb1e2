// The table of the reference kernels.
#include "backends/cpu/reference/kernels.h"

#include <array>

#include "program/ops.h"

namespace rooflm::backends::cpu::reference {

std::span<const MakerRow> kernels() {
  namespace ops = program::ops;
  static constexpr std::array kRows = {
      MakerRow{&ops::kMatmul, make_matmul},
      MakerRow{&ops::kMatmulGelu, make_matmul_gelu},
      MakerRow{&ops::kMatmulGeluBackward, make_matmul_gelu_backward},
      MakerRow{&ops::kBiasAdd, make_bias_add},
      MakerRow{&ops::kBiasBackward, make_bias_backward},
      MakerRow{&ops::kEmbedding, make_embedding},
      MakerRow{&ops::kEmbeddingBackward, make_embedding_backward},
      MakerRow{&ops::kAddPositions, make_add_positions},
      MakerRow{&ops::kAddPositionsBackward, make_add_positions_backward},
      MakerRow{&ops::kEmbeddingPositions, make_embedding_positions},
      MakerRow{&ops::kLayerNorm, make_layernorm},
      MakerRow{&ops::kLayerNormBackward, make_layernorm_backward},
      MakerRow{&ops::kAddLayerNorm, make_add_layernorm},
      MakerRow{&ops::kRmsNorm, make_rmsnorm},
      MakerRow{&ops::kRmsNormBackward, make_rmsnorm_backward},
      MakerRow{&ops::kAddRmsNorm, make_add_rmsnorm},
      MakerRow{&ops::kGelu, make_gelu},
      MakerRow{&ops::kGeluBackward, make_gelu_backward},
      MakerRow{&ops::kSwiGlu, make_swiglu},
      MakerRow{&ops::kSwiGluBackward, make_swiglu_backward},
      MakerRow{&ops::kAdd, make_add},
      MakerRow{&ops::kRope, make_rope},
      MakerRow{&ops::kSplitHeads, make_split_heads},
      MakerRow{&ops::kJoinHeads, make_join_heads},
      MakerRow{&ops::kMergeHeads, make_merge_heads},
      MakerRow{&ops::kUnmergeHeads, make_unmerge_heads},
      MakerRow{&ops::kCausalSoftmax, make_causal_softmax},
      MakerRow{&ops::kCausalSoftmaxBackward, make_causal_softmax_backward},
      MakerRow{&ops::kFlashAttention, make_flash_attention},
      MakerRow{&ops::kFlashAttentionBackward, make_flash_attention_backward},
      MakerRow{&ops::kCrossEntropy, make_cross_entropy},
      MakerRow{&ops::kCrossEntropyBackward, make_cross_entropy_backward},
      MakerRow{&ops::kCrossEntropyWithGradient, make_cross_entropy_with_gradient},
      MakerRow{&ops::kMean, make_mean},
      MakerRow{&ops::kCast, make_cast},
      MakerRow{&ops::kGlobalNorm, make_global_norm},
      MakerRow{&ops::kLossScale, make_loss_scale},
      MakerRow{&ops::kAdamW, make_adamw},
      MakerRow{&ops::kSgd, make_sgd},
  };
  return kRows;
}

}  // namespace rooflm::backends::cpu::reference
