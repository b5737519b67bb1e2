// Sizes of ring attention, shared by its ops and the pass that emits them.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

#include "core/checked.h"
#include "program/ops.h"

namespace rooflm::program::ops {

/// The sizes in `qkv` [B, T, (H + 2K) D], given the attributes heads, kv_heads and head_dim. Refuses the op
/// if the shape does not match.
struct RingSizes {
  std::int64_t batch, seq, heads, kv_heads, head_dim;
  std::int64_t passed_heads;  ///< heads in keys_values: H with the flag `repeated`, else K
  RingSizes(const Program& p, const Op& op, std::size_t qkv)
      : batch(p.shape(op.inputs.at(qkv))[0]),
        seq(p.shape(op.inputs.at(qkv))[1]),
        heads(op.attrs.integer("heads")),
        kv_heads(op.attrs.integer("kv_heads")),
        head_dim(op.attrs.integer("head_dim")),
        passed_heads(op.attrs.flag("repeated") ? heads : kv_heads) {
    const core::Shape& given = p.shape(op.inputs[qkv]);
    expect(given == all(), op, [&] { return fmt::format("expected {}, got {}", all().str(), given.str()); });
  }
  [[nodiscard]] core::Shape queries() const { return {batch, seq, heads * head_dim}; }
  [[nodiscard]] core::Shape keys_values() const { return {batch, seq, 2 * passed_heads * head_dim}; }
  [[nodiscard]] core::Shape all() const { return {batch, seq, (heads + 2 * kv_heads) * head_dim}; }
  [[nodiscard]] core::Count scores() const { return core::Count(batch) * heads * seq * seq; }
};

}  // namespace rooflm::program::ops
