// The head and the loss a few rows at a time, so that the logits [B*T, V] never exist whole.
#pragma once

#include <cstdint>

#include "program/program.h"

namespace rooflm::passes {

/// Rows that keep the matrix unit busy; chunks are multiples of it.
inline constexpr std::int64_t kChunkUnit = 256;

/// Rows of logits that fit a chunk: at least 256 rows for the matrix unit, beyond that no more than
/// `max_bytes` of fp32 logits.
std::int64_t chunk_rows(std::int64_t vocab, std::int64_t max_bytes = 128LL << 20U);

/// Replaces, per micro-batch, product -> cross_entropy -> cross_entropy_backward -> two products by the same
/// ops on `rows` rows after another, gradient included, all at the place of the forward product. The ops keep
/// their phases; the weight gradient accumulates over the chunks. Rows of logits and of their gradients are
/// padded to a multiple of `padding` elements: products step over the padding, and the loss leaves it out.
/// Run after differentiate (or on a forward program) and before cast.
void chunk_loss(program::Program& program, std::int64_t rows, std::int64_t padding = 1);

}  // namespace rooflm::passes
