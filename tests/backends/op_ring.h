// Ring attention on one machine: the blocks of all ranks, one after the other, and the attention of the whole
// sequence that they are together.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/backend.h"
#include "core/dtype.h"
#include "program/attributes.h"
#include "program/pieces.h"
#include "tests/backends/op_cases.h"

namespace rooflm::tests {

/// The whole attention and its gradient, and those of the ranks that share the sequences.
struct Ring {
  Case whole, blocks;
  program::TensorId qkv = 0, dy = 0, y = 0, lse = 0, dqkv = 0;
  struct Rank {
    program::TensorId qkv = 0, dy = 0, keys_values = 0, y = 0, lse = 0, dq = 0, d_keys_values = 0, dqkv = 0;
  };
  std::vector<Rank> ranks;
};

constexpr std::int64_t kBatch = 2, kHeads = 4, kKvHeads = 2;

/// Attributes of attention with heads of that size.
program::Attributes heads(std::int64_t dim);

/// Of `parts` ranks that share sequences of `seq` tokens.
Ring ring_of(std::int64_t parts, std::int64_t seq, std::int64_t dim, core::DType dtype);

/// The rank's rows of [B, T, width].
std::vector<double> own_rows(const std::vector<double>& whole, std::int64_t seq,
                             const program::Pieces& pieces);

/// Outputs and gradients of all ranks against those of the whole sequence.
void expect_whole(const Ring& ring, std::int64_t seq, backends::Backend& reference, backends::Backend& tested,
                  double tolerance);

}  // namespace rooflm::tests
