// How attention is computed: one matmul per head, batched matmuls, or one flash kernel.
#pragma once

#include <string_view>

#include "program/program.h"

namespace rooflm::passes {

/// looped: one small matmul per batch element and head, as in the Eigen port of llm.c. batched: one batched
/// matmul. flash: one kernel that never materialises T x T.
enum class AttentionKind : std::uint8_t { looped, batched, flash };
std::string_view name_of(AttentionKind kind);
/// Throws core::UsageError with a suggestion.
AttentionKind parse_attention(std::string_view name);

/// Replaces every `attention` op. Looped and batched: split_heads (scope qkv), matmul (qk), causal_softmax
/// (softmax), matmul and merge_heads (v). Run before differentiate: gradient rules belong to the emitted ops.
void lower_attention(program::Program& program, AttentionKind kind);

}  // namespace rooflm::passes
