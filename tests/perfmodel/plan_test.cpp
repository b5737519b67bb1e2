// Whole plans: what extrapolates must agree with what is built in full.
#include "perfmodel/plan.h"

#include <gtest/gtest.h>

namespace rooflm {
namespace {

struct Case {
  perfmodel::PlanPoint point;
  perfmodel::Setting setting;
};

Case plan_case(const char* model, compile::Sharding sharding, std::int64_t micro_batches) {
  Case made;
  made.setting.device = devices::find_device("h100-sxm");
  made.setting.framework = perfmodel::find_framework("megatron");
  made.setting.cluster = perfmodel::cluster_of(made.setting.device);
  made.setting.memory_limit_bytes = made.setting.device.usable_bytes();
  made.point.config = model::preset(model);
  made.point.step.dtype = core::DType::bf16;
  made.point.step.sharding = sharding;
  made.point.micro_batch = 2;
  made.point.seq = 1024;
  made.point.micro_batches = micro_batches;
  perfmodel::fit_to_framework(made.point.step, made.setting.framework);
  return made;
}

TEST(Plan, LayersThatAreAlikeNeedNotAllBeBuilt) {
  for (const compile::Sharding& sharding :
       {compile::Sharding{}, compile::Sharding{.data = 8, .zero = 3},
        compile::Sharding{.data = 8, .zero = 1, .tensor = 2}, compile::Sharding{.data = 2, .pipeline = 4}}) {
    SCOPED_TRACE(sharding.ranks());
    auto [point, setting] = plan_case("medium", sharding, 8);
    const perfmodel::Plan quick = perfmodel::make_plan(point, setting);
    setting.every_layer = true;
    const perfmodel::Plan whole = perfmodel::make_plan(point, setting);
    EXPECT_NEAR(quick.step_s / whole.step_s, 1, 0.02);
    EXPECT_NEAR(quick.memory.total() / whole.memory.total(), 1, 0.03);
  }
}

TEST(Plan, TermsAddUpToTheStep) {
  const auto [point, setting] = plan_case("medium", {.data = 2, .tensor = 2, .pipeline = 4}, 8);
  const perfmodel::Plan plan = perfmodel::make_plan(point, setting);
  EXPECT_NEAR(plan.compute_s + plan.slowed_s + plan.exposed_s + plan.host_s + plan.waiting_s + plan.bubble_s,
              plan.step_s, 1e-9);
  EXPECT_GT(plan.bubble_s, 0.2 * plan.compute_s);
}

TEST(Plan, MoreDevicesTakeNoLongerToPlanAndNeedNoMoreMemory) {
  const auto few = plan_case("medium", {.data = 8, .zero = 1}, 2);
  const auto many = plan_case("medium", {.data = 100'000, .zero = 1}, 2);
  EXPECT_LE(perfmodel::make_plan(many.point, many.setting).memory.total(),
            perfmodel::make_plan(few.point, few.setting).memory.total());
}

TEST(Plan, WhatDoesNotDivideIsRefused) {
  const auto uneven = plan_case("medium", {.pipeline = 5}, 8);
  EXPECT_ANY_THROW(perfmodel::make_plan(uneven.point, uneven.setting));
  const auto heads = plan_case("medium", {.tensor = 3}, 8);
  EXPECT_ANY_THROW(perfmodel::make_plan(heads.point, heads.setting));
}

}  // namespace
}  // namespace rooflm
