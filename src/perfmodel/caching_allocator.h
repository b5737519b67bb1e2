// What PyTorch's caching allocator holds for a step.
#pragma once

#include <cstdint>
#include <vector>

#include "compile/passes/lifetime.h"
#include "program/program.h"

namespace rooflm::perfmodel {

/// Whose memory is whose: of one stream, nothing of it is used by another.
enum class Stream : std::uint8_t { compute, gather, reduce };

struct ReservedBytes {
  double compute = 0, gather = 0, reduce = 0;  ///< by stream
  std::vector<Stream> streams{};               ///< by tensor, that of the op which first writes it
  [[nodiscard]] double total() const { return compute + gather + reduce; }
};

/// What PyTorch holds longer than the ops of the program read it.
struct HeldTensors {
  /// Selective checkpointing without torch.compile: the outputs of all ops that its policy saves, read or
  /// not, until the layer's backward pass ends (torch/utils/checkpoint.py, _CachingTorchDispatchMode). Of
  /// torchtitan's policy `op` that is the last matmul of a layer, which `every_other` does not keep.
  bool has_unread_saves = false;
  /// FSDP does not free the weights of the last layer between its passes (apply_fsdp of torchtitan's
  /// parallelize_llama.py).
  bool keeps_last_layer = false;
};

/// The lifetimes of passes::find_lifetimes, but: gathered weights of a unit are freed together
/// (FSDPParamGroup::reshard), 16-bit parts of weights live only while they are gathered (foreach_all_gather),
/// and what `held` says.
std::vector<passes::Lifetime> held_lifetimes(const program::Program& program, const HeldTensors& held);

/// Bytes that the allocator has reserved after one step of the program, persistent tensors apart: its tensors
/// are allocated when their first op runs and freed after their last, in the order of the program, each in
/// the smallest free block that is large enough, else at the end; free neighbours become one (PyTorch,
/// c10/cuda/CUDACachingAllocator.cpp, with expandable_segments, which torchtitan's run_train.sh sets). Memory
/// of one stream is not used by another: what FSDP2 gathers and what it reduces has a pool each
/// (_fsdp_collectives.py). Nothing is given back.
ReservedBytes reserved_bytes(const program::Program& program, const std::vector<passes::Lifetime>& lifetimes);

}  // namespace rooflm::perfmodel
