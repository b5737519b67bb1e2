// Messages over TCP, from each rank to each other.
#pragma once

#include <memory>

#include "ranks/socket_start.h"
#include "ranks/transport.h"

namespace rooflm::ranks {

/// Rank 0 listens at the place's address, tells all where the others are, and each connects to each. Throws
/// as `join`.
std::unique_ptr<Transport> join_by_sockets(const Place& place);
/// The second half of it: messages over connections that are there.
std::unique_ptr<Transport> talk_over(const Place& place, Connections connections);

}  // namespace rooflm::ranks
