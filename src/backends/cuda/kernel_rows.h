// The kernels of NVIDIA GPUs: rows that bind cuBLASLt and the launchers of kernels/ to ops, for fp32,
// bf16 and fp16.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>

#include "backends/backend.h"
#include "backends/cuda/context.h"
#include "core/dtype.h"
#include "program/program.h"

namespace rooflm::backends::cuda {

/// An op as a kernel maker reads it.
struct OpView {
  const program::Program& program;
  const program::Op& op;
  std::shared_ptr<Context> context;

  [[nodiscard]] bool has_in(std::size_t i) const {
    return i < op.inputs.size() && op.inputs[i] != program::kNone;
  }
  [[nodiscard]] const program::Tensor& in(std::size_t i) const { return program.tensor(op.inputs.at(i)); }
  [[nodiscard]] const program::Tensor& out(std::size_t i) const { return program.tensor(op.outputs.at(i)); }
  [[nodiscard]] std::int64_t integer(std::string_view name) const { return op.attrs.integer(name); }
  [[nodiscard]] float number(std::string_view name) const {
    return static_cast<float>(op.attrs.number(name));
  }
  [[nodiscard]] bool accumulates() const { return op.attrs.flag("accumulate"); }
};

/// Whether all of these inputs / outputs have that dtype; absent inputs count as having it.
inline bool inputs_are(const OpView& v, std::initializer_list<std::size_t> which, core::DType dtype) {
  return std::all_of(which.begin(), which.end(),
                     [&](std::size_t i) { return !v.has_in(i) || v.in(i).dtype == dtype; });
}
inline bool outputs_are(const OpView& v, std::initializer_list<std::size_t> which, core::DType dtype) {
  return std::all_of(which.begin(), which.end(), [&](std::size_t i) { return v.out(i).dtype == dtype; });
}

/// A 16-bit float.
inline bool is_half(core::DType dtype) { return dtype == core::DType::bf16 || dtype == core::DType::f16; }
/// What the launchers of kernels/ take for activations.
inline bool is_storage(core::DType dtype) { return dtype == core::DType::f32 || is_half(dtype); }

/// Rows of a tensor whose last dimension is the row.
inline std::int64_t rows_of(const program::Tensor& tensor) { return tensor.shape.numel() / tensor.shape[-1]; }

/// Operands as what they hold.
inline const float* floats(const void* data) { return static_cast<const float*>(data); }
inline float* floats(void* data) { return static_cast<float*>(data); }
inline const std::int32_t* ids(const void* data) { return static_cast<const std::int32_t*>(data); }

/// Returns an empty Kernel when it does not handle the op's dtypes.
using Maker = Kernel (*)(const OpView&);

/// One op and the maker of its kernel.
struct MakerRow {
  const program::OpDef* op;
  Maker make;
};

// rows_products.cpp
Kernel make_matmul(const OpView& v);
Kernel make_matmul_gelu(const OpView& v);
Kernel make_matmul_gelu_backward(const OpView& v);
Kernel make_bias_add(const OpView& v);
Kernel make_bias_backward(const OpView& v);
// rows_elementwise.cpp
Kernel make_add(const OpView& v);
Kernel make_cast(const OpView& v);
Kernel make_gelu(const OpView& v);
Kernel make_gelu_backward(const OpView& v);
Kernel make_swiglu(const OpView& v);
Kernel make_swiglu_backward(const OpView& v);
// rows_norms.cpp
Kernel make_layernorm(const OpView& v);
Kernel make_add_layernorm(const OpView& v);
Kernel make_layernorm_backward(const OpView& v);
Kernel make_rmsnorm(const OpView& v);
Kernel make_add_rmsnorm(const OpView& v);
Kernel make_rmsnorm_backward(const OpView& v);
// rows_heads.cpp
Kernel make_split_heads(const OpView& v);
Kernel make_join_heads(const OpView& v);
Kernel make_merge_heads(const OpView& v);
Kernel make_unmerge_heads(const OpView& v);
Kernel make_rope(const OpView& v);
// rows_attention.cpp
Kernel make_cudnn_attention(const OpView& v);
Kernel make_cudnn_attention_backward(const OpView& v);
Kernel make_flash_attention(const OpView& v);
Kernel make_flash_attention_backward(const OpView& v);
// rows_tokens.cpp
Kernel make_embedding(const OpView& v);
Kernel make_embedding_backward(const OpView& v);
Kernel make_add_positions(const OpView& v);
Kernel make_add_positions_backward(const OpView& v);
// rows_loss.cpp
Kernel make_causal_softmax(const OpView& v);
Kernel make_causal_softmax_backward(const OpView& v);
Kernel make_cross_entropy(const OpView& v);
Kernel make_cross_entropy_backward(const OpView& v);
Kernel make_cross_entropy_with_gradient(const OpView& v);
Kernel make_mean(const OpView& v);
// rows_optimizer.cpp
Kernel make_global_norm(const OpView& v);
Kernel make_loss_scale(const OpView& v);
Kernel make_adamw(const OpView& v);
Kernel make_sgd(const OpView& v);

/// The table: one row per op, and before it those that take some of its shapes.
std::span<const MakerRow> kernel_rows();

}  // namespace rooflm::backends::cuda
