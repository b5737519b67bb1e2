// Every op in small programs: the one list that gradient checks and comparisons between kernels share.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "program/ops.h"
#include "program/program.h"
#include "program/scores.h"

namespace rooflm::tests {

/// Extents that the cases are built with (the letters of docs/design.md).
struct Sizes {
  std::string name;
  std::int64_t batch, seq, channels, width, heads, kv_heads, head_dim, vocab, padded_vocab;
};
/// Nothing is a multiple of anything: for gradient checks.
inline const Sizes kTiny{"tiny", 2, 5, 7, 9, 4, 2, 6, 11, 13};
/// Odd, and longer than the tiles and lanes of fast kernels.
inline const Sizes kOdd{"odd", 3, 37, 67, 131, 6, 3, 10, 211, 223};
/// As in a small GPT-2.
inline const Sizes kTypical{"typical", 2, 64, 256, 512, 4, 2, 64, 500, 512};

/// A forward program without the ops that lead to it: tensors of role activation that no op writes are its
/// inputs.
struct Case {
  std::string name;
  program::Program program;
  /// What a loss may depend on; empty when the case has no gradient.
  std::vector<program::TensorId> outputs;
  /// int32 tensors and the number their values stay below.
  std::map<program::TensorId, std::int64_t> id_limits;
  /// Contents that must not be random.
  std::map<program::TensorId, std::vector<double>> values;
};

/// Ops of steps that are split over ranks: tests/engines/sharded_test.cpp runs them.
inline bool is_of_split_steps(const program::OpDef& def) {
  namespace ops = program::ops;
  return def.work == program::Work::collective || &def == &ops::kOwnPart || &def == &ops::kForEachRank ||
         &def == &ops::kTakeKeysValues || &def == &ops::kAttentionBlock || &def == &ops::kJoinBlocks ||
         &def == &ops::kAttentionBlockBackward || &def == &ops::kJoinGradients;
}

/// Ops that no GPU has kernels for.
inline bool is_of_processors(const program::Op& op) { return !program::processors_only(op).empty(); }

/// Together the cases and their backward programs hold every op but `attention` and those of split steps.
std::vector<Case> all_cases(const Sizes& sizes);

/// A case of all_cases by name; std::out_of_range when there is none.
Case find_case(const Sizes& sizes, const std::string& name);

/// "adamw" or "sgd clipped copies" with the weight that has a copy of `dtype`, bf16 or fp16, in halves and
/// its gradient in `dtype`, as passes/compact_state.h makes them; the gradients of both are the same numbers
/// then.
struct CompactUpdate {
  Case plain, compact;
};
CompactUpdate compact_update(const std::string& optimizer, core::DType dtype);

/// Appends the backward program for the loss sum over outputs of <projection, output>. Returns gradients by
/// tensor; the projections are the gradients of the outputs. The loss of cross_entropy is its own root: its
/// projection is grad_scale for every row.
std::map<program::TensorId, program::TensorId> append_backward(Case& c);

}  // namespace rooflm::tests
