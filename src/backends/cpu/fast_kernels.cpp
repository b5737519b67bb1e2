// The table of the fast kernels of the CPU. Ops that are not here are copies, run once a step, are fused
// away, or belong to attention that keeps its scores: the reference runs them.
#include "backends/cpu/fast_kernels.h"

#include <array>

#include "program/ops.h"

namespace rooflm::backends::cpu {

std::span<const MakerRow> fast_kernels() {
  namespace ops = program::ops;
  static constexpr std::array kRows = {
      MakerRow{&ops::kMatmul, fast::make_matmul},
      MakerRow{&ops::kMatmulGelu, fast::make_matmul_gelu},
      MakerRow{&ops::kMatmulGeluBackward, fast::make_matmul_gelu_backward},
      MakerRow{&ops::kBiasBackward, fast::make_bias_backward},
      MakerRow{&ops::kEmbedding, fast::make_embedding},
      MakerRow{&ops::kEmbeddingBackward, fast::make_embedding_backward},
      MakerRow{&ops::kEmbeddingPositions, fast::make_embedding},
      MakerRow{&ops::kAddPositionsBackward, fast::make_add_positions_backward},
      MakerRow{&ops::kLayerNorm, fast::make_layernorm},
      MakerRow{&ops::kLayerNormBackward, fast::make_layernorm_backward},
      MakerRow{&ops::kAddLayerNorm, fast::make_add_layernorm},
      MakerRow{&ops::kRmsNorm, fast::make_rmsnorm},
      MakerRow{&ops::kRmsNormBackward, fast::make_rmsnorm_backward},
      MakerRow{&ops::kAddRmsNorm, fast::make_add_rmsnorm},
      MakerRow{&ops::kGelu, fast::make_gelu},
      MakerRow{&ops::kGeluBackward, fast::make_gelu_backward},
      MakerRow{&ops::kSwiGlu, fast::make_swiglu},
      MakerRow{&ops::kSwiGluBackward, fast::make_swiglu_backward},
      MakerRow{&ops::kAdd, fast::make_add},
      MakerRow{&ops::kRope, fast::make_rope},
      MakerRow{&ops::kFlashAttention, fast::make_flash_attention},
      MakerRow{&ops::kFlashAttentionBackward, fast::make_flash_attention_backward},
      MakerRow{&ops::kCrossEntropy, fast::make_cross_entropy},
      MakerRow{&ops::kCrossEntropyBackward, fast::make_cross_entropy_backward},
      MakerRow{&ops::kCrossEntropyWithGradient, fast::make_cross_entropy_with_gradient},
      MakerRow{&ops::kCast, fast::make_cast},
      MakerRow{&ops::kGlobalNorm, fast::make_global_norm},
      MakerRow{&ops::kAdamW, fast::make_adamw},
      MakerRow{&ops::kSgd, fast::make_sgd},
  };
  return kRows;
}

}  // namespace rooflm::backends::cpu
