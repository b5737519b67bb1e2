// Plans take the times of collectives from a record of `rooflm comm`.
#include "perfmodel/link_calibration.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/error.h"
#include "record/writer.h"
#include "tests/record/record_testing.h"

namespace rooflm::perfmodel {
namespace {

/// A row of comm: an all_gather among so many ranks.
void add_row(std::vector<record::Cell>& cells, int row, int ranks, int hosts, double size, double time_us) {
  const auto text = [&](const char* col, const char* value) {
    cells.push_back({.series = "comm", .row = row, .col = col, .value = {}, .text = value, .unit = {}});
  };
  const auto number = [&](const char* col, double value) {
    cells.push_back({.series = "comm", .row = row, .col = col, .value = value, .text = {}, .unit = {}});
  };
  text("op", "all_gather");
  text("status", "success");
  text("place", "out");
  number("ranks", ranks);
  number("hosts", hosts);
  number("time_us", time_us);
  number("busbw", size * (ranks - 1) / ranks / (time_us * 1e-6));
}

Cluster cluster() {
  Cluster cluster{.per_node = 8};
  cluster.inside = {.byte_per_s = 100e9, .share = 0.8, .base_s = 1e-6, .step_s = 2e-6};
  return cluster;
}

class Links : public testing::Test {
 protected:
  void write(const std::vector<record::Cell>& cells) const {
    record::Writer writer(path_, "comm", true);
    writer.add(cells);
    writer.finish();
  }
  record::TemporaryFolder folder_;  // its own: tests run beside each other
  std::filesystem::path path_ = folder_ / "links.rooflm";
};

TEST_F(Links, AreThoseThatWereMeasured) {
  for (const int ranks : {2, 4}) {
    std::vector<record::Cell> cells;
    add_row(cells, 0, ranks, 1, 1e6, 50);
    add_row(cells, 1, ranks, 1, 1e9, 40e3);
    write(cells);
    Cluster own = cluster();
    ASSERT_TRUE(take_links(record::Reader(path_), own));
    EXPECT_EQ(own.basis, Basis::calibrated);
    for (const auto& [bytes, seconds] : {std::pair{1e6, 50e-6}, {1e9, 40e-3}}) {
      EXPECT_NEAR(collective_seconds(own, Collective::all_gather, bytes, {.size = ranks}), seconds, 1e-9)
          << ranks;
    }
    EXPECT_DOUBLE_EQ(collective_seconds(own, Collective::reduce_scatter, 1e6, {.size = ranks}),
                     collective_seconds(cluster(), Collective::reduce_scatter, 1e6, {.size = ranks}));
  }
}

TEST_F(Links, OfSeveralHostsAreRefused) {
  std::vector<record::Cell> cells;
  add_row(cells, 0, 2, 2, 1e6, 50);
  write(cells);
  Cluster own = cluster();
  EXPECT_THROW(take_links(record::Reader(path_), own), core::InputError);
}

TEST_F(Links, OverAnotherCarrierThanPlannedAreNoted) {
  std::vector<record::Cell> cells;
  add_row(cells, 0, 2, 1, 1e6, 50);
  cells.push_back({.series = "comm", .row = 0, .col = "carrier", .value = {}, .text = "sockets", .unit = {}});
  write(cells);
  Cluster own = cluster();
  EXPECT_EQ(take_links(record::Reader(path_), own), std::vector<std::string>());
  own.inside.name = "NVLink 4";
  EXPECT_EQ(take_links(record::Reader(path_), own),
            std::vector<std::string>{"collectives measured over sockets, planned for NVLink 4"});
}

TEST_F(Links, ARecordWithoutThemLeavesAllAsItWas) {
  write({});
  Cluster own = cluster();
  EXPECT_FALSE(take_links(record::Reader(path_), own));
  EXPECT_TRUE(own.inside.measured.empty());
}

}  // namespace
}  // namespace rooflm::perfmodel
