// Sizes of ring attention, which its ops and the pass that writes them share.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

#include "core/checked.h"
#include "program/ops.h"

namespace rooflm::program::ops {

/// Of the input `qkv` [B, T, (H + 2K) D] of an op with the attributes heads, kv_heads and head_dim; refuses
/// the op when that has another shape.
struct RingSizes {
  std::int64_t batch, seq, heads, kv_heads, head_dim;
  std::int64_t passed_heads;  ///< of keys_values: those of all query heads with the flag `repeated`
  RingSizes(const Program& p, const Op& op, std::size_t qkv)
      : batch(p.shape(op.inputs.at(qkv))[0]),
        seq(p.shape(op.inputs.at(qkv))[1]),
        heads(op.attrs.integer("heads")),
        kv_heads(op.attrs.integer("kv_heads")),
        head_dim(op.attrs.integer("head_dim")),
        passed_heads(op.attrs.flag("repeated") ? heads : kv_heads) {
    const core::Shape& given = p.shape(op.inputs[qkv]);
    expect(given == all(), op, [&] { return fmt::format("wants {}, got {}", all().str(), given.str()); });
  }
  [[nodiscard]] core::Shape queries() const { return {batch, seq, heads * head_dim}; }
  [[nodiscard]] core::Shape keys_values() const { return {batch, seq, 2 * passed_heads * head_dim}; }
  [[nodiscard]] core::Shape all() const { return {batch, seq, (heads + 2 * kv_heads) * head_dim}; }
  [[nodiscard]] core::Count scores() const { return core::Count(batch) * heads * seq * seq; }
};

}  // namespace rooflm::program::ops
