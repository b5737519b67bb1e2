// Messages through MPI, which knows the ways between hosts of a cluster.
#pragma once

#include <memory>
#include <string>

#include "ranks/transport.h"

namespace rooflm::ranks {

/// Throws as `join`; core::Unavailable where Open MPI is not here.
std::unique_ptr<Transport> join_by_mpi(const Place& place);

/// Why ranks cannot talk through MPI here; "" when they can.
std::string missing_mpi();

}  // namespace rooflm::ranks
