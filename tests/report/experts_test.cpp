// The view of the load of experts, of loads whose figures can be said by hand.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "record/writer.h"
#include "report/model/run_data.h"
#include "report/views/views.h"
#include "tests/record/record_testing.h"

namespace rooflm::report {
namespace {

/// Two steps of one layer with four experts: all 25, then 70, 20, 10 and none; one of another, even layer.
RecordSet record_with_experts(const std::string& device) {
  const record::TemporaryFolder folder;
  const auto path = folder / "a.rooflm";
  record::Writer writer(path, "rooflm train");
  record::Run run{.label = "a", .kind = "train"};
  run.config.set("device", device);
  const std::int64_t id = writer.begin_run(run);
  std::vector<record::ExpertRows> rows;
  const auto add = [&](std::int64_t step, std::int64_t layer, const std::vector<std::int64_t>& counts) {
    for (std::size_t expert = 0; expert < counts.size(); ++expert) {
      rows.push_back({.step = step,
                      .layer = layer,
                      .expert = static_cast<std::int64_t>(expert),
                      .rows = counts[expert]});
    }
  };
  add(1, 0, {25, 25, 25, 25});
  add(2, 0, {70, 20, 10, 0});
  add(1, 3, {25, 25, 25, 25});
  writer.add(id, rows);
  writer.end_run(id, "success");
  writer.finish();
  return load(std::vector{path});
}

double number(const View& view, std::size_t table, std::size_t row, const char* column) {
  return view.tables.at(table).table.rows.at(row).number(column);
}

TEST(ExpertsView, SaysHowUnevenLoadsAre) {
  const View view = make_view("experts", record_with_experts("cpu"));
  ASSERT_EQ(view.tables.size(), 2U);
  // All, layer 0, layer 3.
  ASSERT_EQ(view.tables[0].table.rows.size(), 3U);
  EXPECT_DOUBLE_EQ(number(view, 0, 1, "max_over_mean"), (1 + 2.8) / 2);
  EXPECT_DOUBLE_EQ(number(view, 0, 1, "worst"), 2.8);
  // Of 0, 10, 20, 70: (-3 0 - 1 10 + 1 20 + 3 70) / (4 100) = 0.55.
  EXPECT_DOUBLE_EQ(number(view, 0, 1, "gini"), 0.55 / 2);
  EXPECT_DOUBLE_EQ(number(view, 0, 1, "idle"), 0.5);
  EXPECT_DOUBLE_EQ(number(view, 0, 2, "max_over_mean"), 1);
  EXPECT_DOUBLE_EQ(number(view, 0, 2, "gini"), 0);
  // Two ranks: the slowest have 50, 90 and 50 of 100 rows; four: 25, 70 and 25.
  ASSERT_EQ(view.tables[1].table.rows.size(), 2U);
  EXPECT_DOUBLE_EQ(number(view, 1, 0, "max_over_mean"), 190.0 / 150);
  EXPECT_DOUBLE_EQ(number(view, 1, 0, "lost_share"), 1 - 150.0 / 190);
  EXPECT_DOUBLE_EQ(number(view, 1, 1, "max_over_mean"), 120.0 / 75);
}

/// A tile of a GPU has 128 rows: each expert with rows fills one.
TEST(ExpertsView, CountsPaddedRowsOfGpus) {
  const View view = make_view("experts", record_with_experts("cuda:0"));
  EXPECT_DOUBLE_EQ(number(view, 0, 2, "padded_share"), 1 - 100.0 / 512);
  ASSERT_EQ(view.tables[1].table.rows.size(), 3U);
  EXPECT_DOUBLE_EQ(number(view, 1, 0, "groups"), 1);
  EXPECT_DOUBLE_EQ(number(view, 1, 0, "lost_share"), 1 - 300.0 / (512 + 384 + 512));
}

}  // namespace
}  // namespace rooflm::report
