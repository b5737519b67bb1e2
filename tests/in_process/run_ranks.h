// All ranks in one process, one thread each.
#pragma once

#include <functional>
#include <memory>

#include "backends/comm/communicator.h"
#include "program/groups.h"

namespace rooflm::backends::comm {

/// Runs body(rank, communicator) for all ranks of a mesh, each on its own thread, and waits for them. If a
/// rank throws, the others end at their next collective; the first exception is rethrown.
void run_ranks(const program::Mesh& mesh,
               const std::function<void(int rank, const std::shared_ptr<Communicator>& communicator)>& body);

}  // namespace rooflm::backends::comm
