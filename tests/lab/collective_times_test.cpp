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
  const std::vector<RankTimes> ranks = {
      {.step_s = 200e-6, .steps = 2, .calls = {call(0, 3, 0, 50), call(0, 4, 110, 120)}},
      {.step_s = 200e-6,
       .messages_s = 5e-6,
       .steps = 2,
       .calls = {call(1, 3, 40, 50), call(1, 4, 100, 120)}}};
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
  EXPECT_DOUBLE_EQ(first.at("last"), 0.5);
  const Values& second = rows.at({"ranks", 1});
  EXPECT_DOUBLE_EQ(second.at("waiting_us"), 5);
  EXPECT_DOUBLE_EQ(second.at("own_us"), 200 - 5 - 15);
}

/// Two groups of two: what other teams do at that time does not count.
TEST(CollectiveTimes, TeamsWaitForTheirOwn) {
  std::vector<RankTimes> ranks(4);
  for (int rank = 0; rank < 4; ++rank) {
    CollectiveCall own = call(rank, 0, rank < 2 ? 0 : 1000, rank < 2 ? 10 : 1010);
    own.team = rank < 2 ? 0 : 2;
    ranks[static_cast<std::size_t>(rank)] = {.step_s = 1, .steps = 1, .calls = {own}};
  }
  const std::vector<std::string> parts = {"loss"};
  const auto rows = rows_of(collective_cells(ranks, parts));
  EXPECT_DOUBLE_EQ(rows.at({"collectives", 0}).at("waiting_us"), 0);
  EXPECT_DOUBLE_EQ(rows.at({"collectives", 0}).at("transfer_us"), 10);
}

}  // namespace
}  // namespace rooflm::lab
