// Gains of advice against the step that they are said to be of.
#include "report/findings/advice.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/report/step_record.h"

namespace rooflm::report {
namespace {

double sum_of_gains(const std::vector<Advice>& all) {
  double sum_s = 0;
  for (const Advice& advice : all) sum_s += advice.gain_s;
  return sum_s;
}

/// Nothing where no advice is about the dtype.
std::vector<Advice> dtype_advice(const RecordSet& set) {
  std::vector<Advice> all = advise(set);
  std::erase_if(all, [](const Advice& advice) { return advice.setting != "dtype"; });
  return all;
}

RecordSet fp8_steps() {
  RecordSet set = load_steps({{.seq = 100, .dtype = "fp8"}});
  for (const auto& [dtype, rate] : {std::pair{"fp8", 1e10}, {"bf16", 2e10}}) {
    set.runs.front().ceilings.push_back(
        {.what = "matmul", .dtype = dtype, .threads = 2, .value = rate, .unit = "flop/s"});
  }
  return set;
}

/// At T = 400 the ops of the observed steps take 4.2 ms, more than four plain steps.
TEST(AdviceGains, AreThoseOfAPlainStepWhereObservedOnesAreSlower) {
  const double step_s = 1e-3;
  const std::vector<Advice> all = advise(load_steps({{.seq = 400}}));
  ASSERT_EQ(all.size(), 2U);
  for (const Advice& advice : all) {
    EXPECT_LT(advice.gain_s, step_s) << advice.text;
    EXPECT_NEAR(advice.step_share.value_or(0), advice.gain_s / step_s, 1e-12);
    EXPECT_NE(advice.text.find("so the gain is scaled by 0.24."), std::string::npos) << advice.text;
  }
  // Forward takes a third of 6 (140 T + 4 T^2) ns, and the optimizer 500 ns. Each roof is half of the time;
  // the norms (10 T) and the optimizer are too short for a sentence.
  const double observed_s = 6 * (140.0 * 400 + 4.0 * 400 * 400) * 1e-9 + 500e-9;
  const double advised_s = 6 * (130.0 * 400 + 4.0 * 400 * 400) * 1e-9;
  EXPECT_NEAR(sum_of_gains(all), 0.5 * advised_s * step_s / observed_s, 1e-9);
}

/// What another run of the set has is no finding about this one; everywhere the same list is read.
TEST(AdviceGains, AreThoseOfTheSetThatTheRunIsShownAmong) {
  const RecordSet set = load_steps({{.seq = 100}, {.seq = 100, .attention = "flash"}});
  for (std::size_t i = 0; i < set.runs.size(); ++i) {
    std::vector<std::string> of_set;
    for (const Advice& advice : advise(set)) {
      if (advice.run == i) of_set.push_back(advice.text);
    }
    std::vector<std::string> of_run;
    for (const Advice& advice : advise(set, set.runs[i])) of_run.push_back(advice.text);
    EXPECT_EQ(of_set, of_run);
  }
  EXPECT_GT(advise(set.runs[0], 1).at(0).gain_s, advise(set, set.runs[0], 1).at(0).gain_s);
}

TEST(AdviceGains, AreAsObservedWhereTheOpsFitAPlainStep) {
  for (const Advice& advice : advise(load_steps({{.seq = 100}})))
    EXPECT_EQ(advice.text.find("scaled by"), std::string::npos) << advice.text;
}

/// Waiting for a slow rank in observed steps is no more to gain than the whole plain step.
TEST(AdviceGains, OfCommunicationAreAtMostTheStep) {
  const std::vector<Advice> all = advise(load_steps({{.seq = 10, .gradients_ns = 5'000'000}}));
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all[0].subject, "h.*/gradients backward");
  EXPECT_NEAR(all[0].gain_s, 1e-3, 1e-12) << "5 ms are above the roof";
}

TEST(AdviceGains, OfAnotherDtypeAreThoseOfMatmulsThatRunInTheRunsOwn) {
  RecordSet set = fp8_steps();
  double matmul_s = 0;
  for (const TimedOp& op : set.runs.front().ops) {
    if (op.op.op_class == "matmul") matmul_s += op.time->device_s;
  }
  const std::vector<Advice> all = dtype_advice(set);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_NEAR(all[0].gain_s, matmul_s / 2, 1e-12) << "bf16 has twice the rate";

  const TimedOp* own = nullptr;
  for (TimedOp& op : set.runs.front().ops) {
    if (op.op.op_class != "matmul") continue;
    if (op.part == "attention/qkv" && op.op.phase == "backward" && own == nullptr) {
      own = &op;
    } else {
      op.bound = "matmul bf16";
    }
  }
  ASSERT_NE(own, nullptr);
  const std::vector<Advice> one = dtype_advice(set);
  ASSERT_EQ(one.size(), 1U);
  EXPECT_NEAR(one[0].gain_s, own->time->device_s / 2, 1e-12) << one[0].text;
}

TEST(AdviceGains, OfAnotherDtypeAreNoneWhereNoMatmulRunsInTheRunsOwn) {
  RecordSet set = fp8_steps();
  for (TimedOp& op : set.runs.front().ops) {
    if (op.bound == "matmul fp8") op.bound = "matmul bf16";
  }
  EXPECT_TRUE(dtype_advice(set).empty());
}

}  // namespace
}  // namespace rooflm::report
