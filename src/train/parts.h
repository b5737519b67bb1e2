// Gathers whole tensors from the parts on ranks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"
#include "engines/tensor_store.h"
#include "program/groups.h"
#include "ranks/transport.h"

namespace rooflm::train {

/// On the first rank: asks all ranks for their parts of a tensor and puts them together, fp32. `rank` is
/// where this one is. Throws ranks::RankLost, and std::logic_error when elements are missing.
void gather_parts(ranks::Transport& ranks, const engines::TensorStore& store,
                  const program::Coordinates& rank, const std::string& name, std::span<float> whole);
/// Rank 0 needs nothing more.
void end_gathering(ranks::Transport& ranks);
/// On the others: answers until the first has all that it wants. They wait for it a little longer than it
/// waits for one of them, so that it is the one who says which rank hangs.
void serve_parts(ranks::Transport& ranks, const engines::TensorStore& store,
                 const program::Coordinates& rank);

/// To be called after each piece of what others wait for: the first rank tells all others, one of the others
/// the first, a few times within their patience, to wait on. Throws ranks::RankLost when one has ended.
core::OnProgress make_keep_waiting(ranks::Transport& ranks);

/// When all ranks have done their part of something, each in its own time: the numbers of all on the first,
/// in their order, which passes on to the others that they are to wait on; none on the others, which go on at
/// once.
std::vector<std::uint64_t> collect(ranks::Transport& ranks, std::uint64_t own);
/// The first rank lets the others go on, which wait for that.
void release(ranks::Transport& ranks);
void wait_for_release(ranks::Transport& ranks);

/// Elements [begin, begin + count) of a whole tensor.
struct Run {
  std::int64_t begin = 0, count = 0;
};
/// What this rank tells of a tensor, in the order of its elements: none of what it has not, and of what
/// another rank has alike and tells.
std::vector<Run> runs_of(const engines::TensorStore& store, const program::Coordinates& rank,
                         const std::string& name);

}  // namespace rooflm::train
