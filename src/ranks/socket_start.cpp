// How ranks that talk over TCP find each other: rank 0 listens where all know, each other rank at a port of
// its own, which rank 0 tells to all.
#include "ranks/socket_start.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "core/error.h"
#include "ranks/transport.h"

namespace rooflm::ranks {
namespace {

using Clock = std::chrono::steady_clock;
using core::Descriptor;

constexpr std::array<char, 8> kMagic = {'r', 'o', 'o', 'f', 'l', 'm', 'R', '1'};

/// What a rank says first on each connection.
struct Hello {
  std::array<char, 8> magic = kMagic;
  std::int32_t rank = 0, size = 0;
  std::uint32_t address = 0;  ///< network order, filled in by rank 0
  std::int32_t port = 0;      ///< where it listens, host order
  std::array<char, 64> job{}, host{};
};

void copy_text(std::array<char, 64>& to, const std::string& text) {
  std::memcpy(to.data(), text.data(), std::min(text.size(), to.size() - 1));
}

Hello hello_of(const Place& place, int port) {
  Hello hello{.rank = place.rank, .size = place.size, .port = port};
  copy_text(hello.job, place.job);
  copy_text(hello.host, host_name());
  return hello;
}

class Starter {
 public:
  explicit Starter(const Place& place)
      : place_(place),
        deadline_(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(place.start_patience_s))),
        hellos_(static_cast<std::size_t>(place.size)) {
    connections_.sockets.resize(hellos_.size());
  }

  Connections run() {
    if (place_.rank == 0) {
      begin_as_first();
    } else {
      begin_as_other();
    }
    for (const Hello& hello : hellos_) connections_.hosts.emplace_back(hello.host.data());
    return std::move(connections_);
  }

 private:
  void begin_as_first() {
    const Descriptor listener = listen_as_first();
    hellos_.front() = hello_of(place_, 0);
    accept_from(listener, 1);
    for (std::size_t rank = 1; rank < hellos_.size(); ++rank) {
      write(connections_.sockets[rank], std::as_bytes(std::span(hellos_)));
    }
  }

  void begin_as_other() {
    Descriptor& first = connections_.sockets.front();
    first = connect_to(resolve(), fmt::format("rank 0 at {}:{}", place_.address, place_.port));
    sockaddr_in own{};
    socklen_t length = sizeof own;
    ::getsockname(first.get(), reinterpret_cast<sockaddr*>(&own), &length);
    own.sin_port = 0;
    const Descriptor listener = listen_at(own);
    greet(first, hello_of(place_, port_of(listener)));
    read_table(first);
    for (std::size_t rank = 1; rank < static_cast<std::size_t>(place_.rank); ++rank) {
      sockaddr_in other{};
      other.sin_family = AF_INET;
      other.sin_addr.s_addr = hellos_[rank].address;
      other.sin_port = htons(static_cast<std::uint16_t>(hellos_[rank].port));
      connections_.sockets[rank] =
          connect_to(other, fmt::format("rank {} ({})", rank, hellos_[rank].host.data()));
      greet(connections_.sockets[rank], hello_of(place_, 0));
    }
    accept_from(listener, static_cast<std::size_t>(place_.rank) + 1);
  }

  void greet(const Descriptor& socket, const Hello& hello) const {
    write(socket, std::as_bytes(std::span(&hello, 1)));
  }

  /// Takes the connections of all ranks from `first` on.
  void accept_from(const Descriptor& listener, std::size_t first) {
    std::size_t missing = hellos_.size() - first;
    while (missing > 0) {
      if (!wait_for(listener, POLLIN)) throw_missing(first);
      sockaddr_in from{};
      socklen_t length = sizeof from;
      Descriptor socket(::accept4(listener.get(), reinterpret_cast<sockaddr*>(&from), &length, SOCK_CLOEXEC));
      if (socket.get() < 0) continue;
      Hello hello;
      if (!read(socket, std::as_writable_bytes(std::span(&hello, 1))) || !is_ours(hello)) continue;
      const auto rank = static_cast<std::size_t>(hello.rank);
      if (rank < first || rank >= hellos_.size() || connections_.sockets[rank].get() >= 0) {
        throw core::UsageError(fmt::format("two processes are rank {} of {}: each needs a RANK of its own",
                                           hello.rank, place_.size));
      }
      hello.address = from.sin_addr.s_addr;
      if (place_.rank == 0) hellos_[rank] = hello;
      set_up(socket);
      connections_.sockets[rank] = std::move(socket);
      --missing;
    }
  }

  /// Of this job; whatever else comes to the port is turned away.
  [[nodiscard]] bool is_ours(const Hello& hello) const {
    if (hello.magic != kMagic || std::string_view(hello.job.data()) != place_.job) return false;
    if (hello.size == place_.size) return true;
    throw core::UsageError(fmt::format("rank {} ({}) was started as one of {}, rank {} as one of {}",
                                       hello.rank, hello.host.data(), hello.size, place_.rank, place_.size));
  }

  void read_table(const Descriptor& first) {
    if (!read(first, std::as_writable_bytes(std::span(hellos_))) || hellos_.front().magic != kMagic) {
      throw core::Unavailable(
          fmt::format("rank {}: rank 0 at {}:{} gave no answer: it has ended, waits for other ranks, or is "
                      "no rooflm of this "
                      "job",
                      place_.rank, place_.address, place_.port));
    }
  }

  [[nodiscard]] sockaddr_in resolve() const {
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int error = ::getaddrinfo(place_.address.c_str(), nullptr, &hints, &found);
    if (error != 0) {
      throw core::Unavailable(fmt::format("MASTER_ADDR={}: {}", place_.address, ::gai_strerror(error)));
    }
    sockaddr_in address{};
    std::memcpy(&address, found->ai_addr, sizeof address);
    ::freeaddrinfo(found);
    address.sin_port = htons(static_cast<std::uint16_t>(place_.port));
    return address;
  }

  [[nodiscard]] Descriptor listen_as_first() const {
    if (place_.listener >= 0) return Descriptor(place_.listener);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = resolve().sin_addr.s_addr;
    // The name of a host may stand for an address that is not of an interface.
    if (address.sin_addr.s_addr != htonl(INADDR_LOOPBACK)) address.sin_addr.s_addr = htonl(INADDR_ANY);
    address.sin_port = htons(static_cast<std::uint16_t>(place_.port));
    return listen_at(address);
  }

  [[nodiscard]] Descriptor listen_at(const sockaddr_in& address) const {
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int yes = 1;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(socket.get(), place_.size) != 0) {
      throw core::Unavailable(fmt::format("rank {} cannot listen at port {}: {}; another MASTER_PORT?",
                                          place_.rank, ntohs(address.sin_port), std::strerror(errno)));
    }
    return socket;
  }

  static int port_of(const Descriptor& listener) {
    sockaddr_in address{};
    socklen_t length = sizeof address;
    ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length);
    return ntohs(address.sin_port);
  }

  /// Tries again and again: the other may not be there yet.
  [[nodiscard]] Descriptor connect_to(const sockaddr_in& address, const std::string& whom) const {
    constexpr std::chrono::milliseconds kPause{20};
    while (true) {
      Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      int error = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0
                      ? 0
                      : errno;
      if (error == EINPROGRESS) {
        socklen_t length = sizeof error;
        const bool has_answer = wait_for(socket, POLLOUT);
        ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
        if (!has_answer) error = ETIMEDOUT;
      }
      if (error == 0) {
        set_up(socket);
        return socket;
      }
      if (Clock::now() >= deadline_) {
        throw core::Unavailable(fmt::format(
            "rank {} cannot reach {}: {}; is it started, and does a firewall between the hosts let "
            "their ports through?",
            place_.rank, whom, std::strerror(error)));
      }
      std::this_thread::sleep_for(kPause);
    }
  }

  /// Small messages go out at once; reads while starting end with the deadline.
  void set_up(const Descriptor& socket) const {
    const int yes = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  }

  [[nodiscard]] bool wait_for(const Descriptor& socket, short event) const {
    pollfd waited{.fd = socket.get(), .events = event, .revents = 0};
    while (true) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
      const int ready = ::poll(&waited, 1, static_cast<int>(std::max<long>(0, left)));
      if (ready >= 0 || errno != EINTR) return ready > 0;
    }
  }

  [[nodiscard]] bool read(const Descriptor& socket, std::span<std::byte> to) const {
    while (!to.empty()) {
      if (!wait_for(socket, POLLIN)) return false;
      const ssize_t got = ::recv(socket.get(), to.data(), to.size(), MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) return false;
      if (got > 0) to = to.subspan(static_cast<std::size_t>(got));
    }
    return true;
  }

  void write(const Descriptor& socket, std::span<const std::byte> from) const {
    while (!from.empty()) {
      const ssize_t sent = wait_for(socket, POLLOUT)
                               ? ::send(socket.get(), from.data(), from.size(), MSG_DONTWAIT | MSG_NOSIGNAL)
                               : -1;
      if (sent < 0 && errno != EINTR && errno != EAGAIN) {
        throw core::Unavailable(
            fmt::format("rank {}: another rank has ended while all were starting", place_.rank));
      }
      if (sent > 0) from = from.subspan(static_cast<std::size_t>(sent));
    }
  }

  [[noreturn]] void throw_missing(std::size_t first) const {
    std::vector<std::size_t> missing;
    for (std::size_t rank = first; rank < hellos_.size(); ++rank) {
      if (connections_.sockets[rank].get() < 0) missing.push_back(rank);
    }
    throw core::Unavailable(fmt::format(
        "rank {} ({}): of {} ranks these did not come within {:.0f} s: {}. Are they started, with the same "
        "MASTER_ADDR ({}) and MASTER_PORT ({})? Does a firewall between the hosts let their ports through?",
        place_.rank, host_name(), place_.size, place_.start_patience_s, fmt::join(missing, ", "),
        place_.address, place_.port));
  }

  Place place_;
  Clock::time_point deadline_;
  std::vector<Hello> hellos_;
  Connections connections_;
};

}  // namespace

Connections connect_all(const Place& place) { return Starter(place).run(); }

}  // namespace rooflm::ranks
