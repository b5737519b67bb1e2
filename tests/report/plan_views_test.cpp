// Plans in records: rows that come back, what stands on the frontier, the answer in words, the views.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "report/charts/svg.h"
#include "report/tables/plan_figures.h"
#include "report/tables/plan_rows.h"
#include "report/views/views.h"

namespace rooflm::report {
namespace {

Row plan_row(std::int64_t gpus, double step_s, double gigabytes, const char* recompute = "none") {
  Row row;
  row.set("model", std::string("gpt2"));
  row.set("device", std::string("h100-sxm"));
  row.set("gpus", gpus);
  row.set("recompute", std::string(recompute));
  row.set("status", std::string(step_s > 0 ? "planned" : "oom"));
  row.set("peak_bytes", 1e9 * gigabytes);
  row.set("memory_limit_bytes", 80e9);
  if (step_s <= 0) return row;
  row.set("step_s", step_s);
  row.set("step_low_s", 0.9 * step_s);
  row.set("step_high_s", 1.1 * step_s);
  row.set("step_kind", std::string("assumed"));
  row.set("compute_s", 0.7 * step_s);
  row.set("bubble_s", 0.3 * step_s);
  row.set("mfu", 0.5);
  row.set("tokens", 2e9);
  row.set("days", 3.0);
  row.set("days_low", 2.7);
  row.set("days_high", 3.3);
  row.set("gpu_hours", 72.0);
  return row;
}

RecordSet set_of(std::string_view series, const std::vector<Row>& rows) {
  RecordSet set;
  set.files.emplace_back().cells = cells_of_rows(series, rows);
  return set;
}

TEST(PlanRows, ComeBackFromCellsAsTheyWere) {
  Row row = plan_row(8, 0.5, 10.25);
  row.set("reason", std::string("best"));
  const std::vector<Row> back = plan_rows(set_of(record::kPlanSeries, {row}), record::kPlanSeries);
  ASSERT_EQ(back.size(), 1U);
  ASSERT_EQ(back[0].cells().size(), row.cells().size());
  for (const auto& [key, cell] : row.cells()) {
    EXPECT_EQ(back[0].number(key), row.number(key)) << key;
    EXPECT_EQ(back[0].text(key), row.text(key)) << key;
  }
  EXPECT_TRUE(std::holds_alternative<std::int64_t>(*back[0].find("gpus")));
}

TEST(PlanFigures, NamesSayWhatDiffersAndNothingElse) {
  const auto names = plan_names({plan_row(8, 1, 10), plan_row(16, 1, 10), plan_row(16, 1, 10, "full")});
  EXPECT_EQ(names, (std::vector<std::string>{"GPUs=8 recompute=none", "GPUs=16 recompute=none",
                                             "GPUs=16 recompute=full"}));
  EXPECT_EQ(plan_names({plan_row(8, 1, 10)}).front(), "gpt2 on 8 h100-sxm");
}

TEST(PlanFigures, OnTheFrontierIsWhatNothingBeatsInBoth) {
  const std::vector<Row> plans = {plan_row(8, 1, 40), plan_row(8, 2, 20), plan_row(8, 3, 30),
                                  plan_row(8, 4, 10), plan_row(8, 0, 5),  plan_row(8, 1, 40)};
  EXPECT_EQ(frontier_of(plans), (std::vector<std::size_t>{3, 1, 0}));
}

TEST(PlanFigures, TheAnswerIsOfTheFirstThatFits) {
  const RecordSet fits = set_of(record::kPlanSeries, {plan_row(1, 0, 200), plan_row(8, 0.5, 25)});
  EXPECT_EQ(
      answer_plan(fits),
      "GPUs=8: It fits: peak memory per rank is 25.0 GB of 80.0 GB. A step takes 500 ms (450 ms to 550 ms, "
      "assumed), 50.0% MFU; compute takes 70.0% of it; bubble 30.0%. 2.00 G tokens take 3.000 days (2.700 "
      "to 3.300) and 72 GPU-hours.");
  EXPECT_EQ(answer_plan(set_of(record::kPlanSeries, {plan_row(1, 0, 200)})),
            "It does not fit: peak memory per rank is 200 GB of 80.0 GB.");
  EXPECT_EQ(answer_plan({}), "");
}

const Chart* find_chart(const View& view, std::string_view id) {
  for (const Chart& chart : view.charts)
    if (chart.id == id) return &chart;
  return nullptr;
}

TEST(PlanViews, PartsOfAStepAddUpToIt) {
  const View view =
      make_view("plan_time", set_of(record::kPlanSeries, {plan_row(8, 0.5, 25), plan_row(16, 0.3, 20)}));
  const Chart* chart = find_chart(view, "plan.parts");
  ASSERT_NE(chart, nullptr);
  double first_s = 0;
  for (const Series& series : chart->series) first_s += series.points.at(0).y;
  EXPECT_DOUBLE_EQ(first_s, 0.5);
  EXPECT_EQ(chart->series.size(), 2U) << "parts that no plan has are left out";
  EXPECT_EQ(chart->x.categories, (std::vector<std::string>{"GPUs=8", "GPUs=16"}));
}

TEST(PlanViews, MemoryStandsAgainstWhatTheDeviceHas) {
  Row role = plan_row(8, 0, 0);
  role.set("ranks", std::string("every rank"));
  role.set("weight_bytes", 20e9);
  role.set("activation_bytes", 30e9);
  role.set("peak_bytes", 50e9);
  const View view = make_view("plan_memory", set_of(record::kPlanMemorySeries, {role}));
  const Chart* chart = find_chart(view, "plan.memory");
  ASSERT_NE(chart, nullptr);
  ASSERT_TRUE(chart->limit.has_value());
  EXPECT_EQ(chart->limit->y, 80e9);
  double sum = 0;
  for (const Series& series : chart->series) sum += series.points.at(0).y;
  EXPECT_EQ(sum, 50e9);
  // The line is above the bar, and inside the picture.
  EXPECT_NE(svg_of(*chart).find("class=\"limit\""), std::string::npos);
}

TEST(PlanViews, CurvesOfScalingHaveTheIdealBesideThem) {
  Row one = plan_row(8, 1, 25);
  Row two = plan_row(32, 0.3, 25);
  one.set("speed_up", 1.0);
  two.set("speed_up", 3.5);
  const View view = make_view("plan_scaling", set_of(record::kPlanSeries, {one, two}));
  const Chart* chart = find_chart(view, "plan.speed_up");
  ASSERT_NE(chart, nullptr);
  ASSERT_EQ(chart->series.size(), 2U);
  EXPECT_EQ(chart->series[0].points[1].y, 3.5);
  EXPECT_EQ(chart->series[1].points[1].y, 4);
  EXPECT_TRUE(make_view("plan_scaling", set_of(record::kPlanSeries, {plan_row(8, 1, 25)})).charts.empty());
}

TEST(PlanViews, PointsOfASearchSayWhichSplitTheyAre) {
  Row best = plan_row(8, 1, 40);
  best.set("tp", std::int64_t{2});
  best.set("reason", std::string("best"));
  Row other = plan_row(8, 2, 50);
  other.set("tp", std::int64_t{4});
  other.set("reason", std::string("100.0 % slower"));
  const View view = make_view("plan_search", set_of(record::kPlanSearchSeries, {best, other}));
  const Chart* chart = find_chart(view, "plan.frontier");
  ASSERT_NE(chart, nullptr);
  ASSERT_EQ(chart->series.size(), 3U);
  EXPECT_EQ(chart->series[0].points.at(0).label, "tp2");
  EXPECT_EQ(chart->series[1].points.at(0).label, "tp4");
  std::vector<std::string> keys;
  for (const Column& column : view.tables.at(0).table.columns) keys.push_back(column.key);
  EXPECT_EQ(keys, (std::vector<std::string>{"split", "status", "step_s", "reason", "step_low_s",
                                            "step_high_s", "peak_bytes", "bubble_s"}));
}

TEST(PlanViews, APlanBesideAMeasurementIsDrawnInSeconds) {
  Row time;
  time.set("run", std::string("gpt2"));
  time.set("what", std::string("matmul"));
  time.set("unit", std::string("s"));
  time.set("measured", 0.5);
  time.set("planned", 0.25);
  Row memory = time;
  memory.set("what", std::string("memory"));
  memory.set("unit", std::string("byte"));
  Row step = time;
  step.set("what", std::string("step_s"));
  step.set("error", -0.5);
  EXPECT_EQ(answer_plan(set_of(record::kPlanAgainstSeries, {time, step})),
            "gpt2: planned 250 ms a step, measured 500 ms (-50.0%).");
  const View view = make_view("plan_against", set_of(record::kPlanAgainstSeries, {time, memory}));
  const Chart* chart = find_chart(view, "plan.against");
  ASSERT_NE(chart, nullptr);
  EXPECT_EQ(chart->x.categories, std::vector<std::string>{"matmul"});
  EXPECT_EQ(view.tables.at(0).table.rows.size(), 2U);
}

}  // namespace
}  // namespace rooflm::report
