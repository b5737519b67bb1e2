// Counts of casts to fp8: of numbers whose fate is known, and of a training run.
#include "lab/micro/format_training.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace rooflm::lab {
namespace {

TEST(Fp8Counts, SayWhatBecomesOfEachElement) {
  // e4m3 ends at 448, is normal from 2^-6 on, and rounds half of 2^-9 to 0.
  const std::vector<float> values = {0, 448, 449, -1000, 0x1p-6F, 0x1p-7F, 0x1p-9F, 0x1p-10F, -0x1.01p-10F};
  const CastCount count = count_cast(values, 1, false);
  EXPECT_EQ(count.elements, 9);
  EXPECT_EQ(count.saturated, 2);
  EXPECT_EQ(count.underflowed, 1);
  EXPECT_EQ(count.subnormal, 3);
  // e5m2 ends at 57344, is normal from 2^-14 on, and holds none of these three exactly.
  const CastCount wide = count_cast(std::vector<float>{449, 1000, -57345}, 1, true);
  EXPECT_EQ(wide.saturated, 1);
  EXPECT_EQ(wide.underflowed + wide.subnormal, 0);
  const double error = 1 + 24.0 * 24.0 + 1;
  EXPECT_DOUBLE_EQ(wide.error_squares, error);
}

TEST(Fp8Counts, ScaleBeforeTheyRound) {
  const std::vector<float> values = {0x1p-10F, 100};
  const CastCount count = count_cast(values, 8, false);
  EXPECT_EQ(count.saturated, 1);
  EXPECT_EQ(count.subnormal, 1);
  EXPECT_EQ(count.underflowed, 0);
  EXPECT_DOUBLE_EQ(count.error_squares, (100 - 56) * (100 - 56));
}

using Row = std::map<std::string, record::Cell>;

std::map<std::int64_t, Row> rows_of(const std::vector<record::Cell>& cells, const std::string& series) {
  std::map<std::int64_t, Row> rows;
  for (const record::Cell& cell : cells) {
    if (cell.series == series) rows[cell.row][cell.col] = cell;
  }
  return rows;
}

Point small_point(std::int64_t d_ff) {
  record::Config config;
  for (const auto& [key, value] : std::map<std::string, record::Config::Value>{{"arch", "llama"},
                                                                               {"layers", 1},
                                                                               {"heads", 2},
                                                                               {"d_model", 32},
                                                                               {"d_ff", d_ff},
                                                                               {"vocab", 64},
                                                                               {"batch", 2},
                                                                               {"seq", 16},
                                                                               {"dtype", "fp8"},
                                                                               {"device", "cpu"}}) {
    config.set(key, value);
  }
  return make_points(std::vector{config}).front();
}

TEST(Fp8Counts, OfATrainingRunHaveEachOperandAndEachStep) {
  constexpr int kSteps = 3;
  const std::vector<record::Cell> cells = fp8_cells(small_point(48), kSteps, {});
  const auto operands = rows_of(cells, "fp8");
  EXPECT_EQ(operands.size(), 4U * 3);  // qkv, proj, fc1, fc2: x, w and dy
  std::map<std::string, double> elements;
  for (const auto& [number, row] : operands) {
    elements[row.at("operand").text] += row.at("elements").value.value();
    EXPECT_EQ(row.at("format").text, "e4m3");
    EXPECT_GT(row.at("error_rms").value.value(), 0.001) << number;
    EXPECT_LT(row.at("error_rms").value.value(), 0.1) << number;
    EXPECT_GT(row.at("largest").value.value(), 0);
    EXPECT_TRUE(row.at("scales").text.starts_with("2^")) << row.at("scales").text;
  }
  const double weights = 32 * (96 + 32 + 2 * 48 + 48);
  EXPECT_EQ(elements.at("weight"), kSteps * weights);
  const auto steps = rows_of(cells, "fp8_steps");
  ASSERT_EQ(steps.size(), static_cast<std::size_t>(kSteps));
  EXPECT_LT(steps.at(2).at("loss").value.value(), steps.at(0).at("loss").value.value());
  for (const auto& [number, row] : steps) {
    for (const std::string operand : {"activation", "weight", "gradient"}) {
      EXPECT_LT(row.at(operand + "_saturated").value.value(), 0.5);
      EXPECT_LE(row.at(operand + "_least_scale").value.value(),
                row.at(operand + "_largest_scale").value.value());
    }
  }
}

/// 40 is no multiple of 16, twice that is: fc2 stays bf16.
TEST(Fp8Counts, LeaveOutWhatIsNotCast) {
  EXPECT_EQ(rows_of(fp8_cells(small_point(40), 1, {}), "fp8").size(), 3U * 3);
}

}  // namespace
}  // namespace rooflm::lab
