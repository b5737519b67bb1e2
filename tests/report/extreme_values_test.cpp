// Numbers that only a record of others holds: beyond every integer, infinite, or too near to tell apart.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "report/charts/axis_ticks.h"
#include "report/charts/chart.h"
#include "report/charts/svg.h"
#include "report/page/json_parts.h"
#include "report/views/view.h"

namespace rooflm::report {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kLargest = std::numeric_limits<double>::max();

Chart chart_at(const std::vector<double>& values) {
  Chart chart{.id = "c", .title = "c", .kind = ChartKind::line};
  for (const double value : values) series_named(chart, "s").points.push_back({.x = value, .y = value});
  return chart;
}

TEST(ExtremeValues, WholeNumbersThatNoIntegerHoldsStayNumbers) {
  EXPECT_EQ(std::get<std::int64_t>(whole(-2.5)), -2);
  EXPECT_EQ(std::get<std::int64_t>(whole(-0x1p63)), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(std::get<double>(whole(0x1p63)), 0x1p63);
  EXPECT_EQ(std::get<double>(whole(kInfinite)), kInfinite);
  EXPECT_TRUE(std::holds_alternative<double>(whole(std::numeric_limits<double>::quiet_NaN())));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(whole(std::nullopt)));
}

TEST(ExtremeValues, AnIndexOfNoCategoryIsNoCategory) {
  Chart chart = chart_at({-1, 0, 1, kLargest, kInfinite});
  chart.x.categories = {"a", "b"};
  const auto points = json_chart(chart).at("series").at(0).at("points");
  EXPECT_EQ(points.at(0).at(0), -1);
  EXPECT_EQ(points.at(1).at(0), "a");
  EXPECT_EQ(points.at(2).at(0), "b");
  EXPECT_EQ(points.at(3).at(0), kLargest);
  EXPECT_TRUE(points.at(4).at(0).is_null());
}

TEST(ExtremeValues, AxesEnd) {
  for (const std::vector<double>& values : {std::vector{1e300},
                                            {-kLargest, kLargest},
                                            {0, 1e-320},
                                            {1e16, 1e16 + 2},
                                            {kInfinite, 1},
                                            {-kInfinite}}) {
    for (const bool is_log : {false, true}) {
      Chart chart = chart_at(values);
      chart.x.is_log = chart.y.is_log = is_log;
      EXPECT_LT(svg_of(chart).size(), 20000U);
    }
  }
  EXPECT_EQ(linear_ticks(1e300, 1e300, 5, "s").size(), 1U);
  EXPECT_EQ(linear_ticks(0, 10, 5, "s").size(), 6U);
}

}  // namespace
}  // namespace rooflm::report
