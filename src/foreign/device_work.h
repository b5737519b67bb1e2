// What ran on devices, in the order in which the host asked for it. Private to the room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "foreign/foreign_run.h"

namespace rooflm::foreign {

/// A kernel, copy or memset.
struct Launched {
  std::size_t activity = 0;
  /// When its call began: its own start where no call is known, a moment before the trace where it was
  /// launched before that.
  std::int64_t asked_ns = 0;
  std::int64_t asked_until_ns = 0;  ///< when the call ended
  std::int64_t lane = 0;            ///< of the call; its own where no call is known
  std::int64_t node = -1;           ///< of a graph
  std::int64_t start_ns = 0, end_ns = 0;
  std::int64_t name = 0;
  std::int64_t kernel_ns = 0;  ///< its duration; 0 of copies and memsets
  bool is_kernel = false;
  bool is_of_graph = false;     ///< its call launched a graph
  bool is_from_before = false;  ///< launched before the trace began
};

/// By the moment of the call, those of one call by their nodes: streams run beside each other in another
/// order in each step.
std::vector<Launched> device_work(ForeignRun& run);

}  // namespace rooflm::foreign
