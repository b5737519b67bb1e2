// Whether ranks hear that others are alive.
#include "ranks/pulse.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace rooflm::ranks {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kPause{50}, kLook{5};

/// Waits until the condition holds, at most ten seconds; whether it does.
template <class Condition>
bool comes(const Condition& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(kLook);
  }
  return condition();
}

/// Pulses of two ranks that know each other's ports; each takes the other for one of `jobs`.
std::vector<std::unique_ptr<Pulse>> two(const std::vector<std::uint64_t>& jobs) {
  std::vector<std::unique_ptr<Pulse>> pulses;
  std::vector<sockaddr_in> addresses(2);
  for (int rank = 0; rank < 2; ++rank) {
    pulses.push_back(std::make_unique<Pulse>(rank, 2, true));
    sockaddr_in& address = addresses[static_cast<std::size_t>(rank)];
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(pulses.back()->port()));
  }
  for (std::size_t rank = 0; rank < 2; ++rank) pulses[rank]->begin(addresses, jobs[rank], kPause);
  return pulses;
}

TEST(Pulse, ARankThatWaitsIsHeardUntilItDoesNot) {
  const auto pulses = two({7, 7});
  pulses[1]->set_waiting(true);
  ASSERT_TRUE(comes([&] { return pulses[0]->silent_s(1) >= 0; }));
  EXPECT_TRUE(comes([&] { return pulses[0]->silent_s(1) < 0.06; }));
  pulses[1]->set_waiting(false);
  EXPECT_TRUE(comes([&] { return pulses[0]->silent_s(1) > 0.3; })) << "nothing works here";
}

TEST(Pulse, ARankThatWorksIsHeard) {
  const auto pulses = two({7, 7});
  const auto until = std::chrono::steady_clock::now() + milliseconds(5000);
  volatile double sum = 0;
  while (std::chrono::steady_clock::now() < until && pulses[0]->silent_s(1) < 0) sum = sum + 1;
  EXPECT_GE(pulses[0]->silent_s(1), 0);
}

TEST(Pulse, OfAnotherJobNothingIsHeard) {
  const auto pulses = two({7, 8});
  pulses[0]->set_waiting(true);
  pulses[1]->set_waiting(true);
  std::this_thread::sleep_for(5 * kPause);
  EXPECT_LT(pulses[0]->silent_s(1), 0);
  EXPECT_LT(pulses[1]->silent_s(0), 0);
}

}  // namespace
}  // namespace rooflm::ranks
