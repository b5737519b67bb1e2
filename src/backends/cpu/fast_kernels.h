// The fast kernels of the CPU: rows that bind the functions of fast/ to ops, for fp32 and bf16.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <span>

#include "backends/cpu/resources.h"
#include "core/dtype.h"

namespace rooflm::backends::cpu {

/// Every maker returns an empty Kernel for dtypes that its function does not handle, or where this machine
/// cannot: the reference kernel takes over.
namespace fast {

// fast_kernels_products.cpp
Kernel make_matmul(const OpView& v);
Kernel make_matmul_gelu(const OpView& v);
Kernel make_matmul_gelu_backward(const OpView& v);
Kernel make_bias_backward(const OpView& v);
Kernel make_rope(const OpView& v);
Kernel make_flash_attention(const OpView& v);
Kernel make_flash_attention_backward(const OpView& v);
// fast_kernels_norms.cpp
Kernel make_layernorm(const OpView& v);
Kernel make_add_layernorm(const OpView& v);
Kernel make_layernorm_backward(const OpView& v);
Kernel make_rmsnorm(const OpView& v);
Kernel make_add_rmsnorm(const OpView& v);
Kernel make_rmsnorm_backward(const OpView& v);
// fast_kernels_tokens.cpp
Kernel make_embedding(const OpView& v);
Kernel make_embedding_backward(const OpView& v);
Kernel make_add_positions_backward(const OpView& v);
Kernel make_cross_entropy(const OpView& v);
Kernel make_cross_entropy_backward(const OpView& v);
Kernel make_cross_entropy_with_gradient(const OpView& v);
// fast_kernels_elementwise.cpp
Kernel make_add(const OpView& v);
Kernel make_cast(const OpView& v);
Kernel make_gelu(const OpView& v);
Kernel make_gelu_backward(const OpView& v);
Kernel make_swiglu(const OpView& v);
Kernel make_swiglu_backward(const OpView& v);
// fast_kernels_optimizer.cpp
Kernel make_global_norm(const OpView& v);
Kernel make_adamw(const OpView& v);
Kernel make_sgd(const OpView& v);

/// Calls make(S{}) with the storage type of `dtype`; empty when that is neither fp32 nor bf16.
template <class Make>
Kernel with_storage(core::DType dtype, Make&& make) {
  if (dtype == core::DType::f32) return make(float{});
  if (dtype == core::DType::bf16) return make(core::Bf16{});
  return {};
}

/// Whether all of these inputs / outputs have that dtype; absent inputs count as having it.
inline bool inputs_are(const OpView& v, std::initializer_list<std::size_t> which, core::DType dtype) {
  return std::all_of(which.begin(), which.end(),
                     [&](std::size_t i) { return !v.has_in(i) || v.in(i).dtype == dtype; });
}
inline bool outputs_are(const OpView& v, std::initializer_list<std::size_t> which, core::DType dtype) {
  return std::all_of(which.begin(), which.end(), [&](std::size_t i) { return v.out(i).dtype == dtype; });
}

}  // namespace fast

/// The table: ops that have a fast kernel.
std::span<const MakerRow> fast_kernels();

}  // namespace rooflm::backends::cpu
