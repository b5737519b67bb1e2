// How attention is computed: single products per head, batched products, or one flash kernel.
#pragma once

#include <string_view>

#include "program/program.h"

namespace rooflm::passes {

/// looped: one small product per batch element and head, as the Eigen port of llm.c does. batched: one
/// batched product. flash: one kernel that never materialises T x T.
enum class AttentionKind : std::uint8_t { looped, batched, flash };
std::string_view name_of(AttentionKind kind);
/// Throws core::UsageError with a suggestion.
AttentionKind parse_attention(std::string_view name);

/// Replaces every `attention` op. Looped and batched: split_heads (in scope qkv), product (qk),
/// causal_softmax (softmax), product and merge_heads (v). Run before differentiate: gradient rules belong to
/// what it emits.
void lower_attention(program::Program& program, AttentionKind kind);

}  // namespace rooflm::passes
