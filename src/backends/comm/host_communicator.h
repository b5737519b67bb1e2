// Collectives between processes, on memory of the host.
#pragma once

#include <memory>

#include "backends/comm/communicator.h"
#include "program/groups.h"
#include "ranks/transport.h"

namespace rooflm::backends::comm {

/// The rank of the transport in that mesh. Sums are taken in the order of ranks, so that all carriers give
/// the same bits. `send` keeps a copy and does not wait. Throws ranks::RankLost.
std::shared_ptr<Communicator> make_host_communicator(std::shared_ptr<ranks::Transport> transport,
                                                     const program::Mesh& mesh);

}  // namespace rooflm::backends::comm
