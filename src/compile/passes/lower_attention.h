// How attention is computed: one matmul per head, batched matmuls, or one flash kernel.
#pragma once

#include <string_view>

#include "core/named.h"
#include "program/program.h"

namespace rooflm::passes {

using core::name_of;

/// looped: one small matmul per batch element and head, as in the Eigen port of llm.c. batched: one batched
/// matmul. flash: one kernel that never materialises T x T.
enum class AttentionKind : std::uint8_t { looped, batched, flash };
constexpr auto names_of(AttentionKind) {
  return core::named<AttentionKind>("attention", {{AttentionKind::looped, "looped"},
                                                  {AttentionKind::batched, "batched"},
                                                  {AttentionKind::flash, "flash"}});
}

/// Replaces every `attention` op. Looped and batched: split_heads (scope qkv), matmul (qk), causal_softmax
/// (softmax), matmul and merge_heads (v). Run before differentiate: gradient rules belong to the emitted ops.
void lower_attention(program::Program& program, AttentionKind kind);

}  // namespace rooflm::passes
