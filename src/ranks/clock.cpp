// The clocks of ranks against each other.
#include "ranks/clock.h"

#include <chrono>
#include <limits>
#include <span>

namespace rooflm::ranks {
namespace {

constexpr int kRounds = 20;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void send_time(Transport& transport, int to) {
  const std::int64_t now = now_ns();
  transport.send(to, kShared, std::as_bytes(std::span(&now, 1)));
}

std::int64_t receive_time(Transport& transport, int from) {
  std::int64_t time = 0;
  const Incoming incoming{from, std::as_writable_bytes(std::span(&time, 1))};
  transport.exchange(kShared, {}, {&incoming, 1});
  return time;
}

}  // namespace

ClockOffset measure_clock_offset(Transport& transport) {
  ClockOffset best{.ns = 0, .uncertainty_ns = std::numeric_limits<std::int64_t>::max()};
  if (transport.is_first()) {
    for (int other = 1; other < transport.size(); ++other) {
      for (int round = 0; round < kRounds; ++round) {
        static_cast<void>(receive_time(transport, other));
        send_time(transport, other);
      }
    }
    return {};
  }
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t sent = now_ns();
    send_time(transport, 0);
    const std::int64_t first = receive_time(transport, 0);
    const std::int64_t half = (now_ns() - sent + 1) / 2;
    if (half < best.uncertainty_ns) best = {.ns = first - sent - half, .uncertainty_ns = half};
  }
  return best;
}

ClockOffset clock_offset(Transport& transport) {
  return transport.hosts() == 1 ? ClockOffset{} : measure_clock_offset(transport);
}

}  // namespace rooflm::ranks
