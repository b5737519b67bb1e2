// Which call recorded each node of a graph that a program captured and replays. Private to the room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "inject/stream_format.h"

namespace rooflm::foreign {

/// When a node was captured, and by which thread.
struct CapturedCall {
  std::uint64_t time_ns = 0;
  std::uint32_t thread = 0;
  std::uint64_t graph = 0;  ///< the one that is replayed
};

/// For rows that are nodes of a graph: the call, between the begin and the end of a capture, that recorded
/// them. A graph belongs to the first capture, not taken yet, whose calls started as many kernels, copies and
/// fills in the same order as it has nodes, in the order of their numbers; rows of graphs without one are
/// left out.
std::unordered_map<std::size_t, CapturedCall> captured_calls(
    const std::vector<inject::Row>& rows, const std::unordered_map<std::uint32_t, std::string>& texts);

}  // namespace rooflm::foreign
