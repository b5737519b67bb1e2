// The reference kernels: every op but `attention`, in fp32, fp64, bf16 and fp16, by Eigen and plain loops.
// Formulas and operands are those of program/ops/.
#pragma once

#include <span>

#include "backends/cpu/resources.h"

namespace rooflm::backends::cpu::reference {

// matmul.cpp
Kernel make_matmul(const OpView& v);
// bias.cpp
Kernel make_bias_add(const OpView& v);
Kernel make_bias_backward(const OpView& v);
// embedding.cpp
Kernel make_embedding(const OpView& v);
Kernel make_embedding_backward(const OpView& v);
Kernel make_add_positions(const OpView& v);
Kernel make_add_positions_backward(const OpView& v);
Kernel make_embedding_positions(const OpView& v);
// layernorm.cpp
Kernel make_layernorm(const OpView& v);
Kernel make_layernorm_backward(const OpView& v);
Kernel make_add_layernorm(const OpView& v);
// rmsnorm.cpp
Kernel make_rmsnorm(const OpView& v);
Kernel make_rmsnorm_backward(const OpView& v);
Kernel make_add_rmsnorm(const OpView& v);
// gelu.cpp
Kernel make_gelu(const OpView& v);
Kernel make_gelu_backward(const OpView& v);
Kernel make_matmul_gelu(const OpView& v);
Kernel make_matmul_gelu_backward(const OpView& v);
// swiglu.cpp
Kernel make_swiglu(const OpView& v);
Kernel make_swiglu_backward(const OpView& v);
// add.cpp
Kernel make_add(const OpView& v);
// rope.cpp
Kernel make_rope(const OpView& v);
// heads.cpp
Kernel make_split_heads(const OpView& v);
Kernel make_join_heads(const OpView& v);
Kernel make_merge_heads(const OpView& v);
Kernel make_unmerge_heads(const OpView& v);
// softmax.cpp
Kernel make_causal_softmax(const OpView& v);
Kernel make_causal_softmax_backward(const OpView& v);
// attention.cpp
Kernel make_flash_attention(const OpView& v);
Kernel make_flash_attention_backward(const OpView& v);
// cross_entropy.cpp
Kernel make_cross_entropy(const OpView& v);
Kernel make_cross_entropy_backward(const OpView& v);
Kernel make_cross_entropy_with_gradient(const OpView& v);
Kernel make_mean(const OpView& v);
// cast.cpp
Kernel make_cast(const OpView& v);
// loss_scale.cpp
Kernel make_loss_scale(const OpView& v);
// optimizer.cpp
Kernel make_global_norm(const OpView& v);
Kernel make_adamw(const OpView& v);
Kernel make_sgd(const OpView& v);

/// The table: one row per op.
std::span<const MakerRow> kernels();

}  // namespace rooflm::backends::cpu::reference
