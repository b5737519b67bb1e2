// Scaled rotary positions against values that a script computed from the published formulas.
#include "program/rotary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "core/error.h"

namespace rooflm::program {
namespace {

Attributes attributes(std::int64_t head_dim, double theta, RotaryScaling scaling, double factor,
                      double original) {
  return {{"head_dim", head_dim}, {"theta", theta},    {"scaling", static_cast<std::int64_t>(scaling)},
          {"factor", factor},     {"low", 1.0},        {"high", 4.0},
          {"original", original}, {"beta_fast", 32.0}, {"beta_slow", 1.0},
          {"truncate", true},     {"amplitude", 1.0}};
}

void expect_frequencies(const Attributes& a, const std::vector<std::pair<std::size_t, double>>& expected) {
  const Rotary rotary = Rotary::of(a);
  ASSERT_EQ(rotary.frequencies.size(), static_cast<std::size_t>(a.integer("head_dim") / 2));
  for (const auto& [i, f] : expected) EXPECT_NEAR(rotary.frequencies[i], f, 1e-12 * f) << i;
}

TEST(Rotary, Llama3IsThatOfLlama31) {
  expect_frequencies(attributes(128, 5e5, RotaryScaling::llama3, 8, 8192), {{0, 1.0},
                                                                            {20, 0.016560440080994446},
                                                                            {30, 0.0013718935677611381},
                                                                            {32, 0.0005248461609929547},
                                                                            {40, 3.428102195952591e-05},
                                                                            {63, 3.068925988914511e-07}});
}

TEST(Rotary, YarnMovesFromFastToSlow) {
  expect_frequencies(attributes(64, 1e4, RotaryScaling::yarn, 4, 4096), {{0, 1.0},
                                                                         {8, 0.1},
                                                                         {12, 0.02797399468610489},
                                                                         {20, 0.0013378867023789297},
                                                                         {26, 0.00014058533129758727},
                                                                         {31, 3.33380358040831e-05}});
}

TEST(Rotary, LinearDividesAll) {
  expect_frequencies(attributes(4, 100, RotaryScaling::linear, 2, 64), {{0, 0.5}, {1, 0.05}});
}

TEST(Rotary, PlainHasNoScaling) {
  const Rotary plain = Rotary::of({{"head_dim", std::int64_t{4}}, {"theta", 100.0}});
  EXPECT_EQ(plain.frequencies, (std::vector<double>{1.0, std::pow(100.0, -0.5)}));
  EXPECT_EQ(plain.amplitude, 1.0);
  EXPECT_THROW((void)Rotary::of(attributes(4, 100, RotaryScaling::other, 2, 64)), core::Unavailable);
}

}  // namespace
}  // namespace rooflm::program
