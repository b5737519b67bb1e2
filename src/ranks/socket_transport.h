// Messages over TCP, from each rank to each other.
#pragma once

#include <memory>

#include "ranks/transport.h"

namespace rooflm::ranks {

/// Rank 0 listens at the place's address, tells all where the others are, and each connects to each. Throws
/// as `join`.
std::unique_ptr<Transport> join_by_sockets(const Place& place);

}  // namespace rooflm::ranks
