// Steps without marks and those that they learn from.
#include "foreign/learned_steps.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace rooflm::foreign {
namespace {

using inject::RangeKind;
using inject::Row;
using inject::RowKind;

/// Steps of 1000 ns; in each, module 1 from 100 to 200 and module 2 from 200 to 300, and kernels at 110, 210
/// and 310 (of no module), called 11, 12 and 13.
class LearnedSteps : public testing::Test {
 protected:
  void step(std::uint64_t number, bool is_marked, std::vector<std::uint32_t> kernels = {11, 12, 13}) {
    const std::uint64_t at = 1000 * number;
    const auto range = [&](RangeKind what, std::uint32_t name, std::uint64_t start, std::uint64_t end) {
      rows_.push_back({.kind = RowKind::range,
                       .range = what,
                       .name = name,
                       .start_ns = at + start,
                       .end_ns = at + end,
                       .place = 7});
    };
    range(RangeKind::step, 9, 0, 1000);
    if (is_marked) {
      range(RangeKind::module_, 1, 100, 200);
      range(RangeKind::module_, 2, 200, 300);
    }
    std::uint64_t call = at + 110;
    for (const std::uint32_t name : kernels) {
      launches_.push_back({.call_ns = call, .thread = 7, .name = name});
      call += 100;
    }
  }

  /// "a b other": of each launch the module.
  std::string learned(std::size_t& unlike) {
    ModuleOps ops(rows_, texts_, facts_);
    const LearnedOps found = learn_ops(ops, launches_);
    unlike = found.unlike;
    std::string text;
    for (const auto& op : found.ops) {
      text += (text.empty() ? "" : " ") + (op ? ops.ops().at(static_cast<std::size_t>(*op)).scope : "none");
    }
    return text;
  }

  ModuleOps::Texts texts_ = {{1, "a"}, {2, "b"}};
  std::map<std::string, std::string> facts_;
  std::vector<Row> rows_;
  std::vector<Launch> launches_;
  std::size_t unlike_ = 0;
};

TEST_F(LearnedSteps, TheSameLaunchesAreOfTheSameModules) {
  step(0, true);
  step(1, false);
  EXPECT_EQ(learned(unlike_), "a b other a b other");
  EXPECT_EQ(unlike_, 0U);
}

TEST_F(LearnedSteps, ALaterMarkedStepServesAsWell) {
  step(0, false);
  step(1, true);
  EXPECT_EQ(learned(unlike_), "a b other a b other");
}

TEST_F(LearnedSteps, TheNearestStepWithTheSameLaunchesCounts) {
  step(0, true, {12, 11, 13});  // the same modules, other kernels
  step(1, true);
  step(2, true, {13});
  step(3, false, {12, 11, 13});
  EXPECT_EQ(learned(unlike_), "a b other a b other a a b other");
  EXPECT_EQ(unlike_, 0U);
}

TEST_F(LearnedSteps, WhatIsNewBetweenTwoModulesIsOfNone) {
  step(0, true);
  step(1, false, {11, 99, 12, 13});
  EXPECT_EQ(learned(unlike_), "a b other a other b other");
  EXPECT_EQ(unlike_, 1U);
  step(2, false, {11});
  EXPECT_EQ(learned(unlike_), "a b other a other b other a");
}

TEST_F(LearnedSteps, OtherKernelsAreOfTheModuleWhereTheyRan) {
  step(0, true);
  step(1, false, {11, 98, 13});  // another one
  step(2, true, {11, 12, 13, 14, 15});
  step(3, false, {11, 12, 13, 99, 14, 15});  // one more
  EXPECT_EQ(learned(unlike_), "a b other a b other a b other other other a b other other other other");
  EXPECT_EQ(unlike_, 0U);
}

TEST_F(LearnedSteps, AnotherKindOfStepIsOfNoModule) {
  step(0, true);
  step(1, false, {97, 98, 13});
  EXPECT_EQ(learned(unlike_), "a b other other other other");
  EXPECT_EQ(unlike_, 2U);
}

TEST_F(LearnedSteps, WithoutAnyMarksAllIsOfNoModule) {
  step(0, false);
  EXPECT_EQ(learned(unlike_), "other other other");
  EXPECT_EQ(unlike_, 0U);
  launches_.push_back({.call_ns = 5000, .thread = 7, .name = 11});
  EXPECT_EQ(learned(unlike_), "other other other none") << "outside of steps";
}

}  // namespace
}  // namespace rooflm::foreign
