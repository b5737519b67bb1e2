// A step whose numbers are of no use ends the run; one that is skipped for its scale does not.
#include "train/finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "core/error.h"

namespace rooflm::train {
namespace {

StepRecord record(double loss, std::optional<double> norm) {
  StepRecord r;
  r.step = 7;
  r.loss = loss;
  r.grad_norm = norm;
  return r;
}

TEST(Finite, LossAndNormHaveToBe) {
  EXPECT_NO_THROW(check_finite(record(2, 3), ""));
  EXPECT_NO_THROW(check_finite(record(2, std::nullopt), ""));
  EXPECT_THROW(check_finite(record(std::nan(""), 3), ""), core::CheckFailed);
  EXPECT_THROW(check_finite(record(2, HUGE_VAL), ""), core::CheckFailed);
  try {
    check_finite(record(HUGE_VAL, 3), "the last good checkpoint is c");
    FAIL() << "an infinite loss";
  } catch (const core::CheckFailed& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("step 7"), std::string::npos) << text;
    EXPECT_NE(text.find("checkpoint is c"), std::string::npos) << text;
  }
}

TEST(Finite, SkippedStepsAreFineUntilTheScaleIsTiny) {
  StepRecord r = record(2, HUGE_VAL);
  r.is_skipped = true;
  r.loss_scale = 1024;
  EXPECT_NO_THROW(check_finite(r, ""));
  r.grad_norm.reset();
  EXPECT_NO_THROW(check_finite(r, ""));
  r.loss = std::nan("");
  EXPECT_THROW(check_finite(r, ""), core::CheckFailed);
  r.loss = 2;
  r.loss_scale = 0x1p-11;
  EXPECT_THROW(check_finite(r, ""), core::CheckFailed);
}

}  // namespace
}  // namespace rooflm::train
