// A run in a sentence: the interval of its step is there where there is one.
#include "report/findings/headline.h"

#include <gtest/gtest.h>

#include <string>

#include "report/model/run_data.h"

namespace rooflm::report {
namespace {

RunData timed(int steps) {
  RunData run;
  run.run.kind = "bench";
  run.run.status = "success";
  for (int step = 0; step < steps; ++step) {
    run.samples.push_back({.step = step, .phase = "step", .seconds = 0.01 + 0.0001 * step});
  }
  return run;
}

TEST(Headline, FewerThanSixStepsHaveNoIntervalOf95Percent) {
  EXPECT_EQ(findings_of(timed(1), {}).headline, "A step takes 10.0 ms (1 step).");
  EXPECT_EQ(findings_of(timed(5), {}).headline, "A step takes 10.2 ms (5 steps).");
  EXPECT_EQ(findings_of(timed(6), {}).headline,
            "A step takes 10.2 ms (95% interval 10.0 ms to 10.5 ms, 6 steps).");
}

TEST(Headline, FewStepsThatDifferAreARange) {
  RunData run = timed(2);
  run.samples[1].seconds = 0.9;
  EXPECT_EQ(findings_of(run, {}).headline, "A step takes 10.0 ms to 900 ms (2 steps).");
}

}  // namespace
}  // namespace rooflm::report
