// Whole tensors from the parts that ranks have of them.
#pragma once

#include <span>
#include <string>

#include "core/file.h"
#include "engines/tensor_store.h"
#include "program/groups.h"
#include "ranks/transport.h"

namespace rooflm::train {

/// On the first rank: asks all ranks for their parts of a tensor and puts them together, fp32. `rank` is
/// where this one is. Throws ranks::RankLost, and std::logic_error when elements are missing.
void gather_parts(ranks::Transport& ranks, const engines::TensorStore& store,
                  const program::Coordinates& rank, const std::string& name, std::span<float> whole);
/// The first rank asks for nothing more.
void end_gathering(ranks::Transport& ranks);
/// On the others: answers until the first has all that it wants. They wait for it a little longer than it
/// waits for one of them, so that it is the one who says which rank hangs.
void serve_parts(ranks::Transport& ranks, const engines::TensorStore& store,
                 const program::Coordinates& rank);

/// To be called on the first rank after each piece of what it does between two tensors: tells the others, a
/// few times within their patience, to wait on. Throws ranks::RankLost when one has ended.
core::OnProgress make_keep_waiting(ranks::Transport& ranks);

}  // namespace rooflm::train
