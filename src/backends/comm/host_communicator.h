// Collectives between processes, in host memory.
#pragma once

#include <memory>

#include "backends/comm/communicator.h"
#include "program/groups.h"
#include "ranks/transport.h"

namespace rooflm::backends::comm {

/// A communicator for the transport's rank in that mesh. Sums are taken in rank order, so all transports give
/// the same bits. `send` keeps a copy and does not wait. Throws ranks::RankLost.
std::shared_ptr<Communicator> make_host_communicator(std::shared_ptr<ranks::Transport> transport,
                                                     const program::Mesh& mesh);

}  // namespace rooflm::backends::comm
