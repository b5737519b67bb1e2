// Messages between ranks: they arrive, in order, by tag; who ends or hangs is named.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <latch>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/comm/host_communicator.h"
#include "core/error.h"
#include "core/system/descriptor.h"
#include "ranks/clock.h"
#include "ranks/socket_start.h"
#include "ranks/socket_transport.h"
#include "ranks/speaker.h"
#include "tests/in_process/run_ranks.h"
#include "tests/ranks/socket_ranks.h"

namespace rooflm::ranks {
namespace {

using tests::run_over_sockets;

void expect_nothing(const std::vector<std::string>& thrown) {
  for (const std::string& each : thrown) EXPECT_EQ(each, "");
}

TEST(Transport, SharesTexts) {
  expect_nothing(run_over_sockets(3, [](const auto& transport) {
    const std::string own(static_cast<std::size_t>(transport->rank()) * 100'000, 'x');  // the first has none
    const auto all = share(*transport, own);
    for (std::size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(all.at(rank).size(), rank * 100'000);
    EXPECT_EQ(most(*transport, transport->rank() == 1 ? 15 : 0), 15);
    EXPECT_EQ(from_rank(*transport, 2, transport->rank() + 0.5), 2.5);
  }));
}

/// Sent before anybody waits, and waited for in another order of tags.
TEST(Transport, KeepsWhatNobodyWaitsForYet) {
  expect_nothing(run_over_sockets(2, [](const auto& transport) {
    const auto number = [&](Tag tag) {
      std::int32_t value = 0;
      const Incoming incoming{0, std::as_writable_bytes(std::span(&value, 1))};
      transport->exchange(tag, {}, {&incoming, 1});
      return value;
    };
    if (transport->rank() == 0) {
      for (const std::int32_t value : {1, 2, 3}) {
        const Tag tag = value == 2 ? 101 : 100;
        transport->send(1, tag, std::as_bytes(std::span(&value, 1)));
      }
    } else {
      EXPECT_EQ(number(101), 2);
      EXPECT_EQ(number(100), 1);
      EXPECT_EQ(number(100), 3);
    }
  }));
}

/// They go in pieces, and one has more of them than another.
TEST(Transport, SharesLongTexts) {
  expect_nothing(run_over_sockets(3, [](const auto& transport) {
    const auto text_of = [](int rank) {
      return std::string((std::size_t{1} << 20U) * static_cast<std::size_t>(rank) + 3,
                         static_cast<char>('a' + rank));
    };
    const auto all = share(*transport, text_of(transport->rank()));
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(all.at(static_cast<std::size_t>(rank)), text_of(rank));
  }));
}

/// Of a tag, also when one is still arriving while others are waited for already.
TEST(Transport, KeepsTheOrderOfLongMessages) {
  expect_nothing(run_over_sockets(2, [](const auto& transport) {
    constexpr std::size_t kLong = 4 << 20;
    for (int round = 0; round < 10; ++round) {
      std::vector<std::byte> large(kLong), small(16);
      if (transport->rank() == 0) {
        const std::vector<Outgoing> out = {{1, large}, {1, small}};
        transport->exchange(kGroups, out, {});
      } else {
        transport->look();  // may begin to read
        const std::vector<Incoming> in = {{0, large}, {0, small}};
        transport->exchange(kGroups, {}, in);
      }
    }
  }));
}

TEST(Transport, NamesARankThatHasEnded) {
  std::latch joined(3);  // or it fails while the others still start
  const auto thrown = run_over_sockets(3, [&joined](const auto& transport) {
    transport->set_step(12);
    transport->set_op("all_reduce in h.3/gradients");
    joined.arrive_and_wait();
    if (transport->rank() == 1) throw core::InputError("no such shard");
    meet(*transport);
  });
  EXPECT_EQ(thrown[1], "no such shard");
  for (const std::size_t rank : {0U, 2U}) {
    EXPECT_NE(thrown[rank].find("rank 1"), std::string::npos) << thrown[rank];
    EXPECT_NE(thrown[rank].find("no such shard"), std::string::npos) << thrown[rank];
    EXPECT_NE(thrown[rank].find("at step 12, all_reduce in h.3/gradients"), std::string::npos)
        << thrown[rank];
  }
}

/// Also where nothing is heard of it any more, and others stay.
TEST(Transport, DoesNotWaitForARankThatHasLeft) {
  const auto begin = std::chrono::steady_clock::now();
  const auto thrown = run_over_sockets(3, [](const auto& transport) {
    meet(*transport);
    if (transport->rank() == 2) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    transport->look();
    meet(*transport);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::duration<double>(tests::kPatient / 2));
  EXPECT_NE(thrown[0].find("rank 2"), std::string::npos) << thrown[0];
  EXPECT_EQ(thrown[2], "");
}

/// Of ranks of one terminal: the one that failed, or of those that lost one that says nothing the first.
TEST(Speaker, OneOfSeveralTells) {
  for (const bool says_why : {true, false}) {
    std::latch joined(4);
    std::array<std::string, 4> ends;
    run_over_sockets(4, [&](const auto& transport) {
      joined.arrive_and_wait();
      const auto rank = static_cast<std::size_t>(transport->rank());
      if (rank == 1 && says_why) throw core::InputError("no such shard");
      if (rank == 1) return;
      try {
        meet(*transport);
      } catch (const RankLost& lost) {
        try {
          give_up(*transport, lost);
        } catch (const ToldByAnother&) {
          ends.at(rank) = "told";
        } catch (const RankLost&) {
          ends.at(rank) = "tells";
        }
      }
    });
    EXPECT_EQ(ends, (std::array<std::string, 4>{says_why ? "told" : "tells", "", "told", "told"}));
  }
}

TEST(Transport, NamesARankThatHangs) {
  const auto hang = [](const auto& transport) {
    if (transport->rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(900));
    meet(*transport);  // what the other sent before it gave up has arrived
    meet(*transport);
  };
  const auto thrown = run_over_sockets(2, hang, tests::kImpatient);
  EXPECT_NE(thrown[0].find("has waited 0.3 s for rank 1"), std::string::npos) << thrown[0];
  EXPECT_NE(thrown[1].find("rank 0"), std::string::npos) << thrown[1];
}

/// On a crowded machine a thread may get no processor for as long as the patience of these tests, and counts
/// as silent then: that it is heard out once of a few times shows that it can be.
TEST(Transport, WaitsLongerWhereItIsToldToForARankThatWorks) {
  std::vector<std::string> thrown;
  for (int attempt = 0; attempt < 8; ++attempt) {
    const auto work = [](const auto& transport) {
      const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(700);
      volatile double sum = 0;
      while (transport->rank() == 1 && std::chrono::steady_clock::now() < until) sum = sum + 1;
      const Patience patience(transport.get());
      meet(*transport);
    };
    thrown = run_over_sockets(2, work, tests::kImpatient);
    if (std::ranges::all_of(thrown, &std::string::empty)) return;
  }
  expect_nothing(thrown);
}

TEST(Transport, DoesNotWaitLongerForARankThatDoesNothing) {
  const auto idle = [](const auto& transport) {
    if (transport->rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    const Patience patience(transport.get());
    meet(*transport);
  };
  const auto thrown = run_over_sockets(2, idle, tests::kImpatient);
  EXPECT_NE(thrown[0].find("waits for rank 1"), std::string::npos) << thrown[0];
  EXPECT_NE(thrown[0].find("which has done nothing for 0.3 s"), std::string::npos) << thrown[0];
}

/// Nobody waits for anybody: a rank that does nothing is found by those that look around, which live by that.
/// On a crowded machine one of those may get no processor for as long, and be found first: not every time.
TEST(Transport, FindsARankThatDoesNothingWithoutWaitingForIt) {
  std::string said;
  for (int attempt = 0; attempt < 8 && said.find("rank 2") == std::string::npos; ++attempt) {
    std::atomic<bool> is_found = false;
    const auto thrown = run_over_sockets(
        3,
        [&](const auto& transport) {
          for (int i = 0; i < 1000 && !is_found; ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
            if (transport->rank() == 2) continue;
            try {
              transport->look_around();
            } catch (const RankLost&) {
              is_found = true;
              throw;
            }
          }
        },
        tests::kImpatient);
    said = thrown[0].empty() ? thrown[1] : thrown[0];
  }
  EXPECT_NE(said.find("rank 2"), std::string::npos) << said;
  EXPECT_NE(said.find("has done nothing for 0.3 s"), std::string::npos) << said;
}

/// Threads of one process have one clock.
TEST(Clock, OffsetIsWithinItsUncertainty) {
  expect_nothing(run_over_sockets(3, [](const auto& transport) {
    const ClockOffset measured = measure_clock_offset(*transport);
    EXPECT_LE(std::abs(measured.ns), measured.uncertainty_ns);
    EXPECT_EQ(measured.uncertainty_ns > 0, !transport->is_first());
    EXPECT_EQ(clock_offset(*transport).ns, 0);
  }));
}

/// A connection of somebody who knows no key. Sends what it is given, and stays open.
core::Descriptor call(const Place& place, const std::string& says) {
  core::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(place.port));
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::send(socket.get(), says.data(), says.size(), MSG_NOSIGNAL), static_cast<ssize_t>(says.size()));
  return socket;
}

/// Strangers are there before the other rank: silent ones, others that speak another protocol, a rank of
/// another size without a proof, and one that announces a long message at once.
TEST(Transport, StrangersAreInNobodysWay) {
  Place place = tests::first_place(2);
  place.start_patience_s = 4;  // shorter than the wait for a silent stranger
  std::string rank_of_99(152, '\0');
  rank_of_99.replace(0, 8, "rooflmR2");
  rank_of_99[8] = 1;
  rank_of_99[12] = 99;
  std::vector<core::Descriptor> strangers;
  for (const std::string& says :
       {std::string(), rank_of_99, std::string("GET / HTTP/1.1\r\nHost: rank\r\n\r\n"),
        std::string(4096, '\xff'), rank_of_99 + std::string(16, '\x7f'), std::string()})
    strangers.push_back(call(place, says));
  Place other = place;
  other.rank = 1;
  other.listener = -1;
  std::jthread thread([&] {
    const auto transport = join(other);
    EXPECT_EQ(share(*transport, "b"), (std::vector<std::string>{"a", "b"}));
    transport->leave();
  });
  const auto transport = join(place);
  EXPECT_EQ(share(*transport, "a"), (std::vector<std::string>{"a", "b"}));
  transport->leave();
}

TEST(Transport, AnotherKeyIsTurnedAwayAndTold) {
  Place place = tests::first_place(2);
  place.start_patience_s = 1;
  Place other = place;
  other.rank = 1;
  other.listener = -1;
  other.job = "another";
  const auto why_not = [](const Place& own) {
    try {
      join(own);
    } catch (const core::Unavailable& error) {
      return std::string(error.what());
    }
    return std::string("joined");
  };
  std::string others;
  std::jthread thread([&] { others = why_not(other); });
  const std::string firsts = why_not(place);
  thread.join();
  EXPECT_NE(firsts.find("1 came without the key"), std::string::npos) << firsts;
  EXPECT_NE(others.find("ROOFLM_JOB"), std::string::npos) << others;
}

/// A length alone takes no memory, and one that no message has is an error.
TEST(Transport, LengthsAreNotBelieved) {
  Place two;
  two.size = 2;
  std::array<int, 2> pair{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()), 0);
  Connections connections;
  connections.sockets.resize(2);
  connections.sockets[1] = core::Descriptor(pair[0]);
  connections.hosts = {"first\x1b[2J", "second"};
  const core::Descriptor other(pair[1]);
  const auto transport = talk_over(two, std::move(connections));
  EXPECT_EQ(transport->name_of(0), "rank 0 (first\\x1b[2J)");
  const auto announce = [&](std::int64_t tag, std::uint64_t bytes) {
    const std::array<std::uint64_t, 2> header = {static_cast<std::uint64_t>(tag), bytes};
    EXPECT_EQ(::send(other.get(), header.data(), sizeof header, 0), static_cast<ssize_t>(sizeof header));
  };
  announce(kShared, std::uint64_t{1} << 39U);
  transport->look();  // half a terabyte would be no memory
  std::array<char, 100> some{};
  EXPECT_EQ(::send(other.get(), some.data(), some.size(), 0), 100);
  transport->look();

  std::array<int, 2> second{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, second.data()), 0);
  Connections more;
  more.sockets.resize(2);
  more.sockets[1] = core::Descriptor(second[0]);
  more.hosts = {"a", "b"};
  const core::Descriptor liar(second[1]);
  const auto told = talk_over(two, std::move(more));
  const std::array<std::uint64_t, 2> header = {kShared, std::uint64_t{1} << 60U};
  EXPECT_EQ(::send(liar.get(), header.data(), sizeof header, 0), static_cast<ssize_t>(sizeof header));
  EXPECT_THROW(told->look(), RankLost);
}

TEST(Transport, RefusesAnotherNumberOfRanks) {
  Place place = tests::first_place(2);
  Place other = place;
  other.rank = 1;
  other.listener = -1;
  other.size = 3;
  other.start_patience_s = 0.5;
  std::jthread thread([&] { EXPECT_THROW(join(other), core::Unavailable); });
  EXPECT_THROW(join(place), core::UsageError);
}

/// What processes get has the bits of threads, which tests hold to one rank; sizes leave last parts short and
/// empty.
TEST(HostCommunicator, GivesTheBitsOfThreads) {
  const program::Mesh mesh{.data = 3};
  for (const std::int64_t elements : {1, 20, 100, 10'000}) {
    const auto run = [&](int rank, backends::comm::Communicator& communicator) {
      std::vector<float> x(static_cast<std::size_t>(elements));
      for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = 1.0F / (static_cast<float>(i) + 3.0F * static_cast<float>(rank) + 1.1F);
      const program::Part own = program::part_of(elements, 3, rank, program::kPartUnit);
      std::vector<float> part(static_cast<std::size_t>(own.size()) + 1, 0.1F), whole(x.size());
      backends::comm::Transfer t{
          .from = x.data(), .to = part.data(), .elements = elements, .cut = {.unit = program::kPartUnit}};
      communicator.reduce_scatter(program::Group::data, {&t, 1}, true);
      t.from = part.data();
      t.to = whole.data();
      communicator.all_gather(program::Group::data, {&t, 1});
      t.from = t.to = x.data();
      communicator.all_reduce(program::Group::data, {&t, 1});
      whole.insert(whole.end(), x.begin(), x.end());
      t.to = whole.data();
      communicator.pass_on(program::Group::data, {&t, 1});
      return whole;
    };
    std::vector<std::vector<float>> threads(3), processes(3);
    backends::comm::run_ranks(mesh, [&](int rank, const auto& communicator) {
      threads[static_cast<std::size_t>(rank)] = run(rank, *communicator);
    });
    expect_nothing(run_over_sockets(3, [&](const auto& transport) {
      const auto communicator = backends::comm::make_host_communicator(transport, mesh);
      processes[static_cast<std::size_t>(transport->rank())] = run(transport->rank(), *communicator);
    }));
    EXPECT_EQ(processes, threads) << elements;
  }
}

}  // namespace
}  // namespace rooflm::ranks
