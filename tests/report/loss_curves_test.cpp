// Losses of training runs beside each other.
#include "report/runs/loss_curves.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace rooflm::report {
namespace {

constexpr int kSteps = 400;
constexpr double kTokens = 1000;  // of a step

/// Loss a + b / step, `scale` times as high, reached with `pace` times the tokens.
LossCurve curve(const std::string& name, double scale, double pace = 1, double step_s = 0.01) {
  LossCurve made{.name = name, .tokens_per_step = kTokens, .step_s = step_s, .steps = {}, .losses = {}};
  for (int step = 1; step <= kSteps; ++step) {
    made.steps.push_back(step);
    made.losses.push_back(scale * (2 + 40 / (step / pace + 10)));
  }
  return made;
}

TEST(LossCurves, EqualCurvesDifferByNothingAndNeedTheSameTokens) {
  const std::vector<LossCurve> curves = {curve("a", 1), curve("b", 1, 1, 0.005)};
  const Table losses = loss_table(curves);
  ASSERT_EQ(losses.rows.size(), 10U);
  for (const Row& row : losses.rows) EXPECT_EQ(row.number("difference"), 0);
  EXPECT_DOUBLE_EQ(losses.rows.back().number("tokens"), kSteps * kTokens);
  const Table equal = equal_loss_table(curves);
  ASSERT_EQ(equal.rows.size(), 1U);
  EXPECT_DOUBLE_EQ(equal.rows[0].number("tokens_ratio"), 1);
  EXPECT_DOUBLE_EQ(equal.rows[0].number("time_ratio"), 0.5);
  EXPECT_DOUBLE_EQ(equal.rows[0].number("largest_difference"), 0);
}

TEST(LossCurves, DifferencesAreSharesOfTheFirst) {
  const std::vector<LossCurve> curves = {curve("a", 1), curve("b", 1.01), curve("c", 0.98)};
  const Table losses = loss_table(curves);
  ASSERT_EQ(losses.rows.size(), 20U);
  EXPECT_NEAR(losses.rows[3].number("difference"), 0.01, 1e-12);
  EXPECT_NEAR(losses.rows[13].number("difference"), -0.02, 1e-12);
  const Table equal = equal_loss_table(curves);
  EXPECT_NEAR(equal.rows[0].number("largest_difference"), 0.01, 1e-12);
  EXPECT_NEAR(equal.rows[1].number("largest_difference"), -0.02, 1e-12);
}

TEST(LossCurves, ASlowerLearnerNeedsMoreTokensToTheLossThatBothReach) {
  const std::vector<LossCurve> curves = {curve("a", 1), curve("b", 1, 1.25, 0.008)};
  const Row row = equal_loss_table(curves).rows.at(0);
  // b at its end is where a was after 1 / 1.25 of the tokens; steps of b are 1.25 times as fast.
  EXPECT_DOUBLE_EQ(row.number("tokens"), kSteps * kTokens);
  EXPECT_NEAR(row.number("tokens_ratio"), 1.25, 0.01);
  EXPECT_NEAR(row.number("time_ratio"), 1.0, 0.01);
  EXPECT_LT(equal_loss_table(curves).rows[0].number("largest_difference"), 0.1);
  // The other way round, too: the higher loss is what is reached.
  const std::vector<LossCurve> turned = {curves[1], curves[0]};
  EXPECT_NEAR(equal_loss_table(turned).rows.at(0).number("tokens_ratio"), 0.8, 0.01);
}

TEST(LossCurves, TokensCountNotSteps) {
  LossCurve half = curve("half", 1, 2);  // twice the steps for the same loss,
  half.tokens_per_step = kTokens / 2;    // of half the tokens
  const std::vector<LossCurve> curves = {curve("a", 1), half};
  const Table losses = loss_table(curves);
  ASSERT_EQ(losses.rows.size(), 10U);
  EXPECT_DOUBLE_EQ(losses.rows.back().number("tokens"), kSteps * kTokens / 2);
  EXPECT_NEAR(losses.rows.back().number("difference"), 0, 1e-3);
  EXPECT_NEAR(equal_loss_table(curves).rows.at(0).number("tokens_ratio"), 1, 0.02);
}

TEST(LossCurves, OneRunHasNothingBesideIt) {
  const std::vector<LossCurve> curves = {curve("a", 1)};
  EXPECT_TRUE(loss_table(curves).rows.empty());
  EXPECT_TRUE(equal_loss_table(curves).rows.empty());
}

TEST(LossCurves, OnlyTrainingThatLoggedItsLossHasOne) {
  RecordSet set;
  set.files.resize(2);
  set.files[0].name = "a.rooflm";
  set.runs.resize(2);
  for (std::size_t i = 0; i < 2; ++i) {
    set.runs[i].file = i;
    set.runs[i].run.kind = "train";
    for (const auto& [key, value] : {std::pair{"tokens", 64.0}, {"train_s", 5.0}, {"trained_steps", 10.0}}) {
      set.runs[i].facts.push_back({.key = key, .value = value, .unit = {}, .text = {}});
    }
  }
  for (const auto& [row, value] : {std::pair{3, 2.0}, {1, 4.0}, {2, std::nan("")}}) {
    set.files[0].cells.push_back({.series = record::kTrainingSeries,
                                  .row = row,
                                  .col = "loss",
                                  .value = value,
                                  .text = {},
                                  .unit = {}});
  }
  const auto curves = loss_curves(set);
  ASSERT_EQ(curves.size(), 1U);
  EXPECT_EQ(curves[0].name, "a.rooflm");
  EXPECT_EQ(curves[0].steps, (std::vector<double>{1, 3}));
  EXPECT_EQ(curves[0].losses, (std::vector<double>{4, 2}));
  EXPECT_DOUBLE_EQ(curves[0].step_s, 0.5);
}

}  // namespace
}  // namespace rooflm::report
