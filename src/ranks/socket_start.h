// How ranks that talk over TCP find each other (for this room's sources).
#pragma once

#include <string>
#include <vector>

#include "core/system/descriptor.h"
#include "ranks/place.h"

namespace rooflm::ranks {

/// What a rank has when all are there, by rank. Its own socket is closed.
struct Connections {
  std::vector<core::Descriptor> sockets;  ///< blocking, without delay
  std::vector<std::string> hosts;
};
Connections connect_all(const Place& place);

}  // namespace rooflm::ranks
