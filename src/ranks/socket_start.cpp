// How ranks that talk over TCP find each other: rank 0 listens where all know, each other rank at a port of
// its own, which rank 0 tells to all. On each connection both sides show that they know the job's key before
// anything else is believed: who listens sends a Challenge, who comes a Hello with a proof, who listens a
// proof.
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
#include <deque>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "ranks/proof.h"
#include "ranks/start_watch.h"
#include "ranks/transport.h"

namespace rooflm::ranks {
namespace {

using Clock = std::chrono::steady_clock;
using core::Descriptor;

constexpr std::array<char, 8> kMagic = {'r', 'o', 'o', 'f', 'l', 'm', 'R', '2'};

/// Connections of strangers, at a time, that are in nobody's way.
constexpr int kStrangers = 64;

/// What who listens says first on each connection.
struct Challenge {
  std::array<char, 8> magic = kMagic;
  Nonce nonce{};
};

/// What a rank answers.
struct Hello {
  std::array<char, 8> magic = kMagic;
  std::int32_t rank = 0, size = 0;
  std::uint32_t address = 0;  ///< network order, filled in by rank 0
  std::int32_t port = 0;      ///< where it listens, host order
  std::array<char, 64> host{};
  Nonce nonce{};
  Proof proof{};  ///< of all above
};

Hello hello_of(const Place& place, int port) {
  Hello hello{.rank = place.rank, .size = place.size, .port = port, .nonce = make_nonce()};
  const std::string host = host_name();
  std::memcpy(hello.host.data(), host.data(), std::min(host.size(), hello.host.size()));
  return hello;
}

/// As it may be shown, whatever the other said.
std::string host_of(const Hello& hello) {
  const std::string_view all(hello.host.data(), hello.host.size());
  return core::printable(all.substr(0, all.find('\0')));
}

Proof proof_of(const Hello& hello, const std::string& key, const Challenge& challenge) {
  const auto said = bytes_of(hello);
  return prove(key, "hello", {bytes_of(challenge), said.first(said.size() - sizeof hello.proof)});
}

Proof proof_of_listener(const Hello& hello, const std::string& key, const Challenge& challenge) {
  return prove(key, "welcome", {bytes_of(challenge), bytes_of(hello)});
}

/// A connection of which nobody knows yet whether it is a rank's.
struct Caller {
  Descriptor socket;
  in_addr_t address = 0;
  Challenge challenge;
  Clock::time_point since = Clock::now();
  Hello hello;
  std::size_t got = 0;
};

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
    const StartWatch watch(place_, fmt::format("all {} ranks of this job to come to {}:{}", place_.size,
                                               core::printable(place_.address), place_.port));
    if (place_.rank == 0) {
      begin_as_first();
    } else {
      begin_as_other();
    }
    for (const Hello& hello : hellos_) connections_.hosts.push_back(host_of(hello));
    return std::move(connections_);
  }

 private:
  void begin_as_first() {
    const Descriptor listener = listen_as_first();
    hellos_.front() = hello_of(place_, 0);
    accept_from(listener, 1);
    const auto table = std::as_bytes(std::span(hellos_));
    for (std::size_t rank = 1; rank < hellos_.size(); ++rank) {
      write(connections_.sockets[rank], table);
      write(connections_.sockets[rank], prove(place_.job, "table", {bytes_of(hellos_[rank].nonce), table}));
    }
  }

  void begin_as_other() {
    Descriptor& first = connections_.sockets.front();
    first = connect_to(resolve(), rank_0());
    sockaddr_in own{};
    socklen_t length = sizeof own;
    ::getsockname(first.get(), reinterpret_cast<sockaddr*>(&own), &length);
    own.sin_port = 0;
    const Descriptor listener = listen_at(own);
    read_table(first, greet(first, hello_of(place_, port_of(listener)), rank_0()));
    for (std::size_t rank = 1; rank < static_cast<std::size_t>(place_.rank); ++rank) {
      sockaddr_in other{};
      other.sin_family = AF_INET;
      other.sin_addr.s_addr = hellos_[rank].address;
      other.sin_port = htons(static_cast<std::uint16_t>(hellos_[rank].port));
      const std::string whom = fmt::format("rank {} ({})", rank, host_of(hellos_[rank]));
      connections_.sockets[rank] = connect_to(other, whom);
      static_cast<void>(greet(connections_.sockets[rank], hello_of(place_, 0), whom));
    }
    accept_from(listener, static_cast<std::size_t>(place_.rank) + 1);
  }

  [[nodiscard]] std::string name_of_this() const {
    return fmt::format("rank {} ({})", place_.rank, host_name());
  }

  [[nodiscard]] std::string rank_0() const {
    return fmt::format("rank 0 at {}:{}", core::printable(place_.address), place_.port);
  }

  /// Shows to who listens that this rank is of the job, and has it show the same; the nonce of this rank.
  [[nodiscard]] Nonce greet(const Descriptor& socket, Hello hello, const std::string& whom) const {
    Challenge challenge;
    if (!read(socket, std::as_writable_bytes(std::span(&challenge, 1))) || challenge.magic != kMagic) {
      throw core::Unavailable(fmt::format(
          "{}: {} gave no answer: it has ended, waits for other ranks, or is no rooflm of this version",
          name_of_this(), whom));
    }
    hello.proof = proof_of(hello, place_.job, challenge);
    write(socket, bytes_of(hello));
    Proof proof;
    if (!read(socket, proof) || !is_same(proof, proof_of_listener(hello, place_.job, challenge))) {
      throw core::Unavailable(fmt::format(
          "{}: {} turned this rank away: it has ended, or is of another job. All ranks of a job need the "
          "same ROOFLM_JOB, or the same job number of their starter (docs/clusters.md)",
          name_of_this(), whom));
    }
    return hello.nonce;
  }

  /// Takes the connections of all ranks from `first` on. Strangers, also silent ones, are in nobody's way.
  void accept_from(const Descriptor& listener, std::size_t first) {
    constexpr int kLookMs = 200;
    std::size_t missing = hellos_.size() - first;
    std::deque<Caller> callers;
    while (missing > 0) {
      if (Clock::now() >= deadline_) throw_missing(first);
      std::vector<pollfd> waited = {{.fd = listener.get(), .events = POLLIN, .revents = 0}};
      for (const Caller& caller : callers)
        waited.push_back({.fd = caller.socket.get(), .events = POLLIN, .revents = 0});
      ::poll(waited.data(), waited.size(), std::min(kLookMs, left_ms()));
      for (std::size_t i = 0; i < callers.size(); ++i) {
        if (waited[i + 1].revents != 0) missing -= hear(callers[i], first) ? 1U : 0U;
      }
      std::erase_if(callers, [](const Caller& caller) {
        constexpr std::chrono::seconds kSilence{5};
        return caller.socket.get() < 0 || Clock::now() - caller.since > kSilence;
      });
      if (waited.front().revents != 0) take_caller(listener, callers);
      if (callers.size() > hellos_.size() + static_cast<std::size_t>(kStrangers)) callers.pop_front();
    }
  }

  void take_caller(const Descriptor& listener, std::deque<Caller>& callers) const {
    sockaddr_in from{};
    socklen_t length = sizeof from;
    Caller caller;
    caller.socket = Descriptor(
        ::accept4(listener.get(), reinterpret_cast<sockaddr*>(&from), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (caller.socket.get() < 0) {
      // Without a descriptor for it: of a stranger there may be one.
      if (!callers.empty()) callers.pop_front();
      return;
    }
    caller.address = from.sin_addr.s_addr;
    caller.challenge.nonce = make_nonce();
    set_up(caller.socket);
    const auto sent = ::send(caller.socket.get(), &caller.challenge, sizeof caller.challenge, MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(sizeof caller.challenge)) callers.push_back(std::move(caller));
  }

  /// Reads what has come. Whether it is now a rank of this job; whoever is none is turned away.
  [[nodiscard]] bool hear(Caller& caller, std::size_t first) {
    const auto to = std::as_writable_bytes(std::span(&caller.hello, 1)).subspan(caller.got);
    const ssize_t got = ::recv(caller.socket.get(), to.data(), to.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    caller.got += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
    if (got > 0 && caller.got < sizeof caller.hello) return false;
    Descriptor socket = std::move(caller.socket);
    Hello& hello = caller.hello;
    if (got <= 0) return false;
    if (!is_same(hello.proof, proof_of(hello, place_.job, caller.challenge))) {
      ++turned_away_;
      return false;
    }
    write(socket, proof_of_listener(hello, place_.job, caller.challenge));
    if (hello.size != place_.size) {
      throw core::UsageError(fmt::format("rank {} ({}) was started as one of {}, rank {} as one of {}",
                                         hello.rank, host_of(hello), hello.size, place_.rank, place_.size));
    }
    const auto rank = static_cast<std::size_t>(hello.rank);
    if (rank < first || rank >= hellos_.size() || connections_.sockets[rank].get() >= 0) {
      throw core::UsageError(fmt::format("two processes are rank {} of {}: each needs a RANK of its own",
                                         hello.rank, place_.size));
    }
    hello.address = caller.address;
    if (place_.rank == 0) hellos_[rank] = hello;
    connections_.sockets[rank] = std::move(socket);
    return true;
  }

  void read_table(const Descriptor& first, const Nonce& nonce) {
    const auto table = std::as_writable_bytes(std::span(hellos_));
    Proof proof;
    if (!read(first, table) || !read(first, proof) ||
        !is_same(proof, prove(place_.job, "table", {bytes_of(nonce), table}))) {
      throw core::Unavailable(fmt::format("{}: {} gave no answer: it has ended, or waits for other ranks",
                                          name_of_this(), rank_0()));
    }
  }

  [[nodiscard]] sockaddr_in resolve() const {
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int error = ::getaddrinfo(place_.address.c_str(), nullptr, &hints, &found);
    if (error != 0) {
      throw core::Unavailable(
          fmt::format("MASTER_ADDR={}: {}", core::printable(place_.address), ::gai_strerror(error)));
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
        ::listen(socket.get(), place_.size + kStrangers) != 0) {
      throw core::Unavailable(fmt::format("{} cannot listen at port {}: {}; another MASTER_PORT?",
                                          name_of_this(), ntohs(address.sin_port), std::strerror(errno)));
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
        throw core::Unavailable(
            fmt::format("{} cannot reach {}: {}; is it started, and does a firewall between the hosts let "
                        "their ports through?",
                        name_of_this(), whom, std::strerror(error)));
      }
      std::this_thread::sleep_for(kPause);
    }
  }

  /// Small messages go out at once; reads while starting end with the deadline.
  void set_up(const Descriptor& socket) const {
    const int yes = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  }

  [[nodiscard]] int left_ms() const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
    return static_cast<int>(std::max<long>(0, left));
  }

  [[nodiscard]] bool wait_for(const Descriptor& socket, short event) const {
    pollfd waited{.fd = socket.get(), .events = event, .revents = 0};
    while (true) {
      const int ready = ::poll(&waited, 1, left_ms());
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
            fmt::format("{}: another rank has ended while all were starting", name_of_this()));
      }
      if (sent > 0) from = from.subspan(static_cast<std::size_t>(sent));
    }
  }

  [[noreturn]] void throw_missing(std::size_t first) const {
    std::vector<std::size_t> missing;
    for (std::size_t rank = first; rank < hellos_.size(); ++rank) {
      if (connections_.sockets[rank].get() < 0) missing.push_back(rank);
    }
    const std::string strangers =
        turned_away_ == 0 ? ""
                          : fmt::format(" {} came without the key of the job (ROOFLM_JOB).", turned_away_);
    throw core::Unavailable(fmt::format(
        "{}: of {} ranks, these did not join within {:.0f} s: {}. Are they started, with the same "
        "MASTER_ADDR ({}) and MASTER_PORT ({})? Does a firewall between the hosts let their ports through?{}",
        name_of_this(), place_.size, place_.start_patience_s, fmt::join(missing, ", "), place_.address,
        place_.port, strangers));
  }

  Place place_;
  Clock::time_point deadline_;
  std::vector<Hello> hellos_;
  std::int64_t turned_away_ = 0;  ///< connections of others
  Connections connections_;
};

}  // namespace

Connections connect_all(const Place& place) { return Starter(place).run(); }

}  // namespace rooflm::ranks
