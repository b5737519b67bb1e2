// Helpers shared by the makers of fast kernels.
#pragma once

#include "backends/cpu/fast/attention.h"
#include "backends/cpu/resources.h"
#include "core/dtype.h"
#include "program/pieces.h"
#include "program/scores.h"

namespace rooflm::backends::cpu::fast {

using core::DType;

/// Calls make(S{}) with the storage type of `dtype`; returns an empty Kernel unless that is fp32 or bf16.
template <class Make>
Kernel with_storage(DType dtype, Make&& make) {
  if (dtype == DType::f32) return make(float{});
  if (dtype == DType::bf16) return make(core::Bf16{});
  return {};
}

/// Whether the reference kernels alone compute the op's scores: its chunks, or what grows with positions.
inline bool has_reference_scores(const OpView& v) {
  return v.op.attrs.has("chunk") || v.op.attrs.has("temperature");
}

/// `qkv`: the shape of packed projections [B, T, (H + 2K) D].
inline AttentionShape attention_shape(const OpView& v, const core::Shape& qkv) {
  const auto scores = program::Scores::of(v.op.attrs);
  return {.batch = qkv[0],
          .seq = qkv[1],
          .heads = v.integer("heads"),
          .kv_heads = v.integer("kv_heads"),
          .head_dim = v.integer("head_dim"),
          .scale = v.op.attrs.has("scale") ? static_cast<float>(scores.scale) : 0,
          .window = scores.window,
          .cap = static_cast<float>(scores.cap),
          .alibi = scores.alibi,
          .slopes = scores.slopes};
}
/// The same for attention_block: its queries see keys of the rank `from`.
inline AttentionShape block_shape(const OpView& v, const core::Shape& qkv) {
  AttentionShape shape = attention_shape(v, qkv);
  const auto seen = program::SeenKeys::of(v.integer("index"), v.integer("from"), shape.seq);
  shape.causal = seen.causal;
  shape.first_query = seen.first_query;
  shape.keys = seen.keys;
  return shape;
}

}  // namespace rooflm::backends::cpu::fast
