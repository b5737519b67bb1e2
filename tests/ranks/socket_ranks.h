// Ranks that talk over sockets, each a thread of one process.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ranks/transport.h"

namespace rooflm::tests {

/// A socket that listens at a port of this host that nobody uses; it belongs to who takes the place.
inline ranks::Place first_place(int size) {
  ranks::Place place{.size = size, .carrier = ranks::Carrier::sockets, .address = "127.0.0.1", .job = "test"};
  place.listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ::bind(place.listener, reinterpret_cast<sockaddr*>(&address), length);
  ::listen(place.listener, size + 16);  // and strangers
  ::getsockname(place.listener, reinterpret_cast<sockaddr*>(&address), &length);
  place.port = ntohs(address.sin_port);
  return place;
}

/// Seconds that ranks wait for each other where nobody is to hang, and where somebody does.
inline constexpr double kPatient = 20, kImpatient = 0.3;

/// Runs body(transport) for each rank; what each threw, "" for nothing.
inline std::vector<std::string> run_over_sockets(
    int size, const std::function<void(const std::shared_ptr<ranks::Transport>&)>& body,
    double patience_s = kPatient) {
  ranks::Place place = first_place(size);
  place.patience_s = patience_s;
  place.start_patience_s = 20;
  std::vector<std::string> thrown(static_cast<std::size_t>(size));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) {
    ranks::Place own = place;
    own.rank = own.local_rank = rank;
    if (rank > 0) own.listener = -1;
    threads.emplace_back([own, &body, &thrown] {
      std::shared_ptr<ranks::Transport> transport;
      try {
        transport = ranks::join(own);
        body(transport);
        transport->leave();
      } catch (const std::exception& error) {
        if (transport != nullptr) transport->abandon(error.what());
        thrown[static_cast<std::size_t>(own.rank)] = error.what();
      }
    });
  }
  threads.clear();
  return thrown;
}

}  // namespace rooflm::tests
