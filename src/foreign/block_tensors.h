// The blocks of an allocator in one step, as tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "record/rows.h"

namespace rooflm::foreign {

/// What a program keeps from step to step, by device and address: "cuda:0", 139872...
struct BlockOwner {
  std::string role{}, name{};  ///< "weight", "gradient", "optimizer_state", "buffer"; "h.0.attn.weight"
};
struct BlockOwners {
  using Places = std::map<std::pair<std::string, std::int64_t>, BlockOwner>;
  Places at_begin{}, at_end{};  ///< of the step
};

/// Names the blocks of `events`, which are of one step and in its order: each is a tensor, made by the op
/// that took it and alive until that which gave it back. Blocks that nobody owns are activations (taken in
/// the forward pass), their gradients (in the backward pass), workspace (given back by the op that took it,
/// or taken by an optimizer), or "other" when they were there before the step, which is op -1.
std::vector<record::Tensor> name_blocks(std::vector<record::MemoryEvent>& events,
                                        const std::vector<record::Op>& ops, const BlockOwners& owners);

}  // namespace rooflm::foreign
