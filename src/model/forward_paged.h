// Emits the forward pass of any rows of texts whose keys and values are in blocks.
#pragma once

#include <cstdint>

#include "model/config.h"
#include "program/program.h"

namespace rooflm::model {

/// A pool of keys and values, and what one run computes of it.
struct PagedSize {
  std::int64_t rows = 0;       ///< N: tokens of a run, of any texts
  std::int64_t results = 0;    ///< R: those of them whose next token is asked for
  std::int64_t blocks = 0;     ///< S, of the pool
  std::int64_t block = 0;      ///< G: positions of a block
  std::int64_t positions = 0;  ///< P: most tokens of a text
  /// M, of a text's table.
  [[nodiscard]] std::int64_t table() const { return (positions + block - 1) / block; }
};

/// Processes "tokens" [N, 1] at the positions "first" [N] of texts with the tables "blocks" [N, M], all
/// int32, as program/ops/cache.cpp has it. Result "logits" [R, 1, V] fp32 of the rows "picked" [R]
/// int32. Caches are "h.N.keys" and "h.N.values" [S, K, G, D]. Throws core::UsageError as model::decode,
/// core::Unavailable where attention keeps no keys and values of heads (but compressed ones).
program::Program paged_step(const ModelConfig& config, const PagedSize& size);

}  // namespace rooflm::model
