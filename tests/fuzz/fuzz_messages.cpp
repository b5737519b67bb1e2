// Fuzz target: what a broken or hostile rank sends after it has proved that it is of the job.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <stdexcept>

#include "ranks/socket_start.h"
#include "ranks/socket_transport.h"
#include "tests/fuzz/scratch.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rooflm;
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) std::abort();
  const core::Descriptor hostile(ends[1]);
  // What does not fit the socket is not sent.
  if (::send(hostile.get(), data, size, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) return 0;
  ::shutdown(hostile.get(), SHUT_WR);
  ranks::Connections connections;
  connections.sockets.resize(2);
  connections.sockets[1] = core::Descriptor(ends[0]);
  connections.hosts = {"here", "there"};
  const auto transport =
      ranks::talk_over({.size = 2, .carrier = ranks::Carrier::sockets}, std::move(connections));
  try {
    std::array<std::byte, 4> got{};
    for (const ranks::Tag tag : {ranks::kGroups, ranks::kStop}) {
      const std::array in{ranks::Incoming{1, got}};
      transport->exchange(tag, {}, in);
    }
    transport->look();
    static_cast<void>(ranks::share(*transport, "own"));
  } catch (const ranks::RankLost& error) {
    constexpr std::size_t kLongest = std::size_t{1} << 19U;  // a reason, each byte escaped
    if (std::string_view(error.what()).size() > kLongest) std::abort();
  } catch (const std::logic_error&) {  // another length than is waited for
  }
  return 0;
}
