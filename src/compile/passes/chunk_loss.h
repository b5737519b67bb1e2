// Chunked loss: head and loss work on a few rows at a time, so the logits [B*T, V] never exist in full.
#pragma once

#include <cstdint>

#include "program/program.h"

namespace rooflm::passes {

/// Chunks are multiples of this many rows, enough to keep tensor cores busy.
inline constexpr std::int64_t kChunkUnit = 256;

/// Rows of logits per chunk: at least kChunkUnit, beyond that at most `max_bytes` of fp32 logits.
std::int64_t chunk_rows(std::int64_t vocab, std::int64_t max_bytes = 128LL << 20U);

/// Replaces, per micro-batch, matmul -> cross_entropy -> cross_entropy_backward -> two matmuls by the same
/// ops on chunks of `rows` rows, gradients included, all at the place of the forward matmul. The ops keep
/// their phases; the weight gradient accumulates over the chunks. Rows of logits and of their gradients are
/// padded to a multiple of `padding` elements: matmuls skip the padding by their row stride, the loss ignores
/// it. Run after differentiate (or on a forward program) and before cast.
void chunk_loss(program::Program& program, std::int64_t rows, std::int64_t padding = 1);

}  // namespace rooflm::passes
