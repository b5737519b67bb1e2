// Strong and weak scaling, of made-up runs whose numbers can be worked out by hand.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/views/views.h"

namespace rooflm::report {
namespace {

/// A run of `dp` ranks, of which the step and its phases took so long.
RunData ranks_run(int dp, double tokens, std::vector<std::pair<std::string, double>> phases,
                  std::optional<double> exposed_s = std::nullopt) {
  RunData run;
  run.run.kind = "step";
  run.run.status = "success";
  run.run.config.set("model", "tiny");
  run.run.config.set("device", dp == 1 ? "cuda:1" : "cuda:0");
  run.run.config.set("dp", dp);
  run.run.config.set("zero", dp > 1 ? 1 : 0);
  run.facts.push_back({.key = "tokens", .value = tokens, .unit = "tokens", .text = {}});
  if (exposed_s) run.facts.push_back({.key = "exposed_s", .value = exposed_s, .unit = "s", .text = {}});
  for (const auto& [phase, seconds] : phases)
    run.samples.push_back({.step = 0, .phase = phase, .seconds = seconds, .kind = "plain"});
  return run;
}

const Table& table_of(const View& view) {
  EXPECT_EQ(view.tables.size(), 1U);
  return view.tables.front().table;
}

TEST(Speedup, SaysWhatAStepLostAndWhere) {
  RecordSet set;
  set.files.resize(1);
  // Weak: as much for each; half of the update falls away. Strong: half for each.
  set.runs.push_back(
      ranks_run(2, 2000, {{"forward", 2.2}, {"backward", 5.0}, {"optimizer", 1.0}, {"step", 8.2}}, 1.25));
  set.runs.push_back(
      ranks_run(1, 1000, {{"forward", 2.0}, {"backward", 4.0}, {"optimizer", 2.0}, {"step", 8.0}}));
  set.runs.push_back(
      ranks_run(2, 1000, {{"forward", 1.0}, {"backward", 2.5}, {"optimizer", 1.5}, {"step", 5.0}}));
  const View view = make_view("speedup", set);
  const std::vector<Row>& rows = table_of(view).rows;
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].number("ranks"), 1);
  EXPECT_EQ(rows[0].text("kind"), "");
  EXPECT_DOUBLE_EQ(rows[0].number("speedup"), 1);
  EXPECT_NEAR(rows[0].number("lost_s"), 0, 1e-12);
  EXPECT_EQ(rows[1].text("kind"), "weak");
  EXPECT_EQ(rows[1].text("split"), "dp 2 zero 1");
  EXPECT_DOUBLE_EQ(rows[1].number("speedup"), 2 * 8.0 / 8.2);
  EXPECT_DOUBLE_EQ(rows[1].number("efficiency"), 8.0 / 8.2);
  EXPECT_NEAR(rows[1].number("lost_s"), 0.2, 1e-12);
  EXPECT_NEAR(rows[1].number("forward_lost_s"), 0.2, 1e-12);
  EXPECT_NEAR(rows[1].number("backward_lost_s"), 1.0, 1e-12);
  EXPECT_NEAR(rows[1].number("optimizer_lost_s"), -1.0, 1e-12);
  EXPECT_DOUBLE_EQ(rows[1].number("exposed_s"), 1.25);
  EXPECT_EQ(rows[2].text("kind"), "strong");
  EXPECT_DOUBLE_EQ(rows[2].number("speedup"), 8.0 / 5.0);
  EXPECT_DOUBLE_EQ(rows[2].number("efficiency"), 0.8);
  EXPECT_NEAR(rows[2].number("lost_s"), 1.0, 1e-12);
  EXPECT_EQ(*rows[2].find("exposed_s"), Cell()) << "not measured there";
  EXPECT_EQ(view.charts.size(), 1U);
}

TEST(Speedup, TheFewestRanksLoseNothing) {
  RecordSet set;
  set.files.resize(1);
  for (const double step_s : {0.1, 0.3, 0.7, 1.1, 2.3}) {
    set.runs = {ranks_run(1, 3000, {{"forward", 0.3 * step_s}, {"step", step_s}}),
                ranks_run(2, 3000, {{"forward", 0.2 * step_s}, {"step", step_s}})};
    const View view = make_view("speedup", set);
    const Row& base = table_of(view).rows.at(0);
    EXPECT_EQ(base.number("lost_s"), 0) << step_s;
    EXPECT_EQ(base.number("forward_lost_s"), 0) << step_s;
  }
}

TEST(Speedup, NeedsOneModelOnSeveralNumbersOfRanks) {
  RecordSet set;
  set.files.resize(1);
  set.runs.push_back(ranks_run(2, 1000, {{"step", 5.0}}));
  set.runs.push_back(ranks_run(2, 2000, {{"step", 9.0}}));
  set.runs.push_back(ranks_run(1, 2000, {{"step", 9.0}}));
  set.runs.back().run.config.set("model", "small");
  EXPECT_TRUE(make_view("speedup", set).tables.empty());
}

}  // namespace
}  // namespace rooflm::report
