// Whether the other ranks of a job are alive.
#include "ranks/pulse.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <stop_token>

#include "core/error.h"

namespace rooflm::ranks {
namespace {

using Clock = std::chrono::steady_clock;

/// Of the time between two looks; the thread of the pulse itself uses less.
constexpr double kLeastShare = 0.05;

struct Message {
  std::uint64_t job = 0;
  std::int32_t rank = 0;
};

std::int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

/// Seconds of processors that this process has used, in itself and in the system.
double processor_s() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

/// Bytes that it had read from disks and written to them; 0 where the system does not count them.
std::uint64_t disk_bytes() {
  std::ifstream file("/proc/self/io");
  std::uint64_t sum = 0;
  std::string key;
  for (std::uint64_t value = 0; file >> key >> value;) {
    if (key == "read_bytes:" || key == "write_bytes:") sum += value;
  }
  return sum;
}

}  // namespace

Pulse::Pulse(int rank, int ranks, bool is_one_host)
    : rank_(rank),
      socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
      heard_ns_(static_cast<std::size_t>(ranks)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(is_one_host ? INADDR_LOOPBACK : INADDR_ANY);
  socklen_t length = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (socket_.get() < 0 || ::bind(socket_.get(), any, length) != 0 ||
      ::getsockname(socket_.get(), any, &length) != 0) {
    throw core::Unavailable(
        fmt::format("no UDP port for the pulse of rank {}: {}", rank, std::strerror(errno)));
  }
  port_ = ntohs(address.sin_port);
}

Pulse::~Pulse() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  // Something arrives, so that the thread waits no longer.
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  own.sin_port = htons(static_cast<std::uint16_t>(port_));
  static_cast<void>(
      ::sendto(socket_.get(), "", 0, MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&own), sizeof own));
}

void Pulse::begin(const std::vector<sockaddr_in>& others, std::uint64_t job,
                  std::chrono::milliseconds pause) {
  others_ = others;
  job_ = job;
  thread_ = std::jthread([this, pause](const std::stop_token& stopped) {
    double processor = processor_s();
    std::uint64_t bytes = disk_bytes();
    auto since = Clock::now();
    tell();  // so that others know that they hear this rank
    while (!stopped.stop_requested()) {
      pollfd arrives{.fd = socket_.get(), .events = POLLIN, .revents = 0};
      ::poll(&arrives, 1, static_cast<int>(pause.count()));
      listen();
      const double passed_s = std::chrono::duration<double>(Clock::now() - since).count();
      if (Clock::now() - since < pause) continue;
      const double used_s = processor_s() - processor;
      const std::uint64_t moved = disk_bytes() - bytes;
      const bool has_worked = has_worked_.exchange(false);
      if (is_waiting_ || has_worked || used_s > kLeastShare * passed_s || moved > 0) tell();
      processor += used_s;
      bytes += moved;
      since = Clock::now();
    }
  });
}

void Pulse::tell() {
  const Message message{.job = job_, .rank = rank_};
  for (std::size_t i = 0; i < others_.size(); ++i) {
    if (static_cast<int>(i) == rank_ || others_[i].sin_port == 0) continue;
    // What is lost on its way is followed by another.
    static_cast<void>(::sendto(socket_.get(), &message, sizeof message, MSG_NOSIGNAL,
                               reinterpret_cast<const sockaddr*>(&others_[i]), sizeof others_[i]));
  }
}

void Pulse::listen() {
  Message message;
  const std::int64_t now_ns = steady_ns();
  while (::recv(socket_.get(), &message, sizeof message, 0) == sizeof message) {
    const bool is_ours =
        message.job == job_ && message.rank >= 0 && static_cast<std::size_t>(message.rank) < heard_ns_.size();
    if (is_ours) heard_ns_[static_cast<std::size_t>(message.rank)] = now_ns;
  }
  listened_ns_ = now_ns;
}

double Pulse::silent_s(int rank) const {
  const std::int64_t heard_ns = heard_ns_[static_cast<std::size_t>(rank)];
  return heard_ns == 0 ? -1 : 1e-9 * static_cast<double>(listened_ns_ - heard_ns);
}

}  // namespace rooflm::ranks
