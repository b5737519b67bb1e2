// What PyTorch's caching allocator holds for a step.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace rooflm::perfmodel {

/// Whose memory is whose: of one stream, nothing of it is used by another.
enum class Stream : std::uint8_t { compute, gather, reduce };

struct ReservedBytes {
  double compute = 0, gather = 0, reduce = 0;  ///< by stream
  std::vector<Stream> streams{};               ///< by tensor, that of the op which first writes it
  [[nodiscard]] double total() const { return compute + gather + reduce; }
};

/// Bytes that the allocator has reserved after one step of the program, persistent tensors apart: its tensors
/// are allocated when their first op runs and freed after their last, in the order of the program, each in
/// the smallest free block that is large enough, else at the end; free neighbours become one (PyTorch,
/// c10/cuda/CUDACachingAllocator.cpp, with expandable_segments, which torchtitan's run_train.sh sets). Memory
/// of one stream is not used by another: what FSDP2 gathers and what it reduces has a pool each
/// (_fsdp_collectives.py). Nothing is given back.
ReservedBytes reserved_bytes(const program::Program& program);

}  // namespace rooflm::perfmodel
