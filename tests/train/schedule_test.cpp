// The learning rate of each step.
#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "core/error.h"

namespace rooflm::train {
namespace {

Schedule make(ScheduleKind kind) {
  return {.kind = kind, .lr = 1.0, .min_lr = 0.1, .warmup_steps = 10, .steps = 110};
}

TEST(Schedule, WarmsUpLinearly) {
  for (const auto kind :
       {ScheduleKind::constant, ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::wsd}) {
    const Schedule s = make(kind);
    EXPECT_DOUBLE_EQ(learning_rate(s, 0), 1.0 / 11);
    EXPECT_DOUBLE_EQ(learning_rate(s, 9), 10.0 / 11);
    EXPECT_DOUBLE_EQ(learning_rate(s, 10), 1.0);
  }
}

TEST(Schedule, ConstantStays) {
  EXPECT_DOUBLE_EQ(learning_rate(make(ScheduleKind::constant), 109), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(make(ScheduleKind::constant), 5000), 1.0);
}

TEST(Schedule, LinearFallsByTheSameAmount) {
  const Schedule s = make(ScheduleKind::linear);
  EXPECT_DOUBLE_EQ(learning_rate(s, 60), 0.55);
  EXPECT_NEAR(learning_rate(s, 109), 0.1 + 0.9 / 100, 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate(s, 110), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1000), 0.1);
}

TEST(Schedule, CosineIsHalfAWave) {
  const Schedule s = make(ScheduleKind::cosine);
  EXPECT_NEAR(learning_rate(s, 60), 0.55, 1e-12);
  EXPECT_NEAR(learning_rate(s, 35), 0.1 + 0.45 * (1 + std::cos(std::numbers::pi / 4)), 1e-12);
  EXPECT_NEAR(learning_rate(s, 110), 0.1, 1e-12);
}

TEST(Schedule, WsdDecaysAtTheEndOnly) {
  Schedule s = make(ScheduleKind::wsd);
  EXPECT_DOUBLE_EQ(learning_rate(s, 88), 1.0);
  EXPECT_NEAR(learning_rate(s, 99), 0.55, 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate(s, 110), 0.1);
  s.decay_share = 0;
  EXPECT_DOUBLE_EQ(learning_rate(s, 109), 1.0);
  s.decay_share = 1;  // begins after the warm-up all the same
  EXPECT_DOUBLE_EQ(learning_rate(s, 10), 1.0);
  EXPECT_NEAR(learning_rate(s, 60), 0.55, 1e-12);
}

TEST(Schedule, NeverLeavesItsBounds) {
  for (const auto kind :
       {ScheduleKind::constant, ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::wsd}) {
    for (const std::int64_t warmup : {0, 1, 7}) {
      const Schedule s{.kind = kind, .lr = 3e-4, .min_lr = 0, .warmup_steps = warmup, .steps = 7};
      for (std::int64_t step = 0; step < 7; ++step) {
        EXPECT_GT(learning_rate(s, step), 0) << name_of(kind) << " " << warmup << " " << step;
        EXPECT_LE(learning_rate(s, step), 3e-4);
      }
    }
  }
}

TEST(Schedule, NamesAndErrors) {
  EXPECT_EQ(core::parse<ScheduleKind>("wsd"), ScheduleKind::wsd);
  EXPECT_EQ(name_of(ScheduleKind::cosine), "cosine");
  EXPECT_THROW(core::parse<ScheduleKind>("cosin"), core::UsageError);
  Schedule s = make(ScheduleKind::cosine);
  s.min_lr = 2;
  EXPECT_THROW(validate(s), core::UsageError);
  s = make(ScheduleKind::cosine);
  s.warmup_steps = 111;
  EXPECT_THROW(validate(s), core::UsageError);
  s = make(ScheduleKind::cosine);
  s.lr = std::nan("");
  EXPECT_THROW(validate(s), core::UsageError);
}

}  // namespace
}  // namespace rooflm::train
