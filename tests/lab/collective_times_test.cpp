// Collectives of several ranks on one clock: who waits for whom, and what is left for the transfer.
#include "lab/collective_times.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace rooflm::lab {
namespace {

using Values = std::map<std::string, double>;

std::map<std::pair<std::string, std::int64_t>, Values> rows_of(const std::vector<record::Cell>& cells) {
  std::map<std::pair<std::string, std::int64_t>, Values> rows;
  for (const record::Cell& cell : cells) {
    if (cell.value) rows[{cell.series, cell.row}][cell.col] = *cell.value;
  }
  return rows;
}

CollectiveCall call(int rank, std::int64_t step, std::int64_t start_us, std::int64_t end_us) {
  return {.step = step,
          .rank = rank,
          .ranks = 2,
          .group = static_cast<std::int32_t>(program::Group::data),
          .bytes = 1000,
          .start_ns = start_us * 1000,
          .end_ns = end_us * 1000};
}

/// Rank 1 is late in the first step, rank 0 a little in the second.
TEST(CollectiveTimes, WaitingIsApartFromTransfer) {
  const std::vector<RankTimes> ranks = {{.step_s = 200e-6,
                                         .steps = 2,
                                         .calls = {call(0, 3, 0, 50), call(0, 4, 110, 120)},
                                         .exposed = {{0, 50'000}, {110'000, 120'000}}},
                                        {.step_s = 200e-6,
                                         .steps = 2,
                                         .calls = {call(1, 3, 40, 50), call(1, 4, 100, 120)},
                                         .exposed = {{40'000, 50'000}, {106'000, 114'000}}}};
  const std::vector<std::string> parts = {"h.*/gradients"};
  auto rows = rows_of(collective_cells(ranks, parts));
  const Values& all = rows.at({"collectives", 0});
  EXPECT_DOUBLE_EQ(all.at("calls_per_step"), 1);
  EXPECT_DOUBLE_EQ(all.at("time_us"), (50.0 + 10 + 10 + 20) / 4);
  EXPECT_DOUBLE_EQ(all.at("waiting_us"), (40.0 + 10) / 4);
  EXPECT_DOUBLE_EQ(all.at("transfer_us"), 10);
  EXPECT_NEAR(all.at("busbw"), 1000 / 10e-6, 1);
  const Values& first = rows.at({"ranks", 0});
  EXPECT_DOUBLE_EQ(first.at("waiting_us"), 20);
  EXPECT_DOUBLE_EQ(first.at("transfer_us"), 10);
  EXPECT_DOUBLE_EQ(first.at("own_us"), 170);
  EXPECT_EQ(first.at("hidden_us"), 0) << "no rest of rounding";
  EXPECT_DOUBLE_EQ(first.at("last"), 0.5);
  const Values& second = rows.at({"ranks", 1});
  EXPECT_DOUBLE_EQ(second.at("waiting_us"), (110.0 - 106) / 2)
      << "what was beside computation does not count";
  EXPECT_DOUBLE_EQ(second.at("transfer_us"), (10.0 + 114 - 110) / 2);
  EXPECT_DOUBLE_EQ(second.at("own_us"), 200 - (10.0 + 8) / 2);
  EXPECT_DOUBLE_EQ(second.at("hidden_us"), (20.0 - 8) / 2);
}

/// The second stage is there before the first one has sent; of a message that came before, nothing is
/// waiting.
TEST(CollectiveTimes, AReceiveWaitsUntilTheMessageIsSent) {
  const auto message = [](int rank, int peer, std::int32_t op, std::int32_t micro_batch,
                          std::int64_t start_us, std::int64_t end_us) {
    CollectiveCall own = call(rank, 0, start_us, end_us);
    own.op = op;
    own.peer = peer;
    own.micro_batch = micro_batch;
    own.part = op == kSendCall ? 1 : 0;
    return own;
  };
  const std::vector<RankTimes> ranks = {
      {.step_s = 1e-3,
       .steps = 1,
       .calls = {message(0, 1, kSendCall, 0, 70, 72), message(0, 1, kSendCall, 1, 90, 92)},
       .exposed = {{70'000, 72'000}, {90'000, 92'000}}},
      {.step_s = 1e-3,
       .steps = 1,
       .calls = {message(1, 0, kReceiveCall, 0, 10, 80), message(1, 0, kReceiveCall, 1, 100, 104)},
       .exposed = {{10'000, 80'000}, {100'000, 104'000}}}};
  const std::vector<std::string> parts = {"h.1/receive", "h.0/send"};
  auto rows = rows_of(collective_cells(ranks, parts));
  EXPECT_DOUBLE_EQ(rows.at({"collectives", 0}).at("waiting_us"), 60.0 / 2);
  EXPECT_DOUBLE_EQ(rows.at({"collectives", 0}).at("transfer_us"), (10.0 + 4) / 2);
  EXPECT_DOUBLE_EQ(rows.at({"collectives", 1}).at("waiting_us"), 0);
  EXPECT_FALSE(rows.at({"collectives", 1}).contains("busbw"));
  EXPECT_DOUBLE_EQ(rows.at({"ranks", 1}).at("waiting_us"), 60);
  EXPECT_DOUBLE_EQ(rows.at({"ranks", 1}).at("transfer_us"), 14);
  EXPECT_DOUBLE_EQ(rows.at({"ranks", 0}).at("transfer_us"), 4);
  EXPECT_FALSE(rows.at({"ranks", 0}).contains("last")) << "nobody waited in a collective";
}

/// Two groups of two: what other teams do at that time does not count.
TEST(CollectiveTimes, TeamsWaitForTheirOwn) {
  std::vector<RankTimes> ranks(4);
  for (int rank = 0; rank < 4; ++rank) {
    CollectiveCall own = call(rank, 0, rank < 2 ? 0 : 1000, rank < 2 ? 10 : 1010);
    own.team = rank < 2 ? 0 : 2;
    ranks[static_cast<std::size_t>(rank)] = {.step_s = 1, .steps = 1, .calls = {own}, .exposed = {}};
  }
  const std::vector<std::string> parts = {"loss"};
  const auto rows = rows_of(collective_cells(ranks, parts));
  EXPECT_DOUBLE_EQ(rows.at({"collectives", 0}).at("waiting_us"), 0);
  EXPECT_DOUBLE_EQ(rows.at({"collectives", 0}).at("transfer_us"), 10);
}

}  // namespace
}  // namespace rooflm::lab
