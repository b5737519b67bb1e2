// All ranks in one process, a thread each.
#pragma once

#include <functional>
#include <memory>

#include "backends/comm/communicator.h"
#include "program/groups.h"

namespace rooflm::backends::comm {

/// Runs body(rank, communicator) for all ranks of a mesh, each in a thread of its own, and waits for them. A
/// rank that throws ends the others at their next collective; what the first one threw is thrown again.
void run_ranks(const program::Mesh& mesh,
               const std::function<void(int rank, const std::shared_ptr<Communicator>& communicator)>& body);

}  // namespace rooflm::backends::comm
