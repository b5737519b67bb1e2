// What each further micro-batch adds to a step: never less than nothing, and as much as all of them
// simulated.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "perfmodel/device_fit.h"
#include "perfmodel/role.h"
#include "tests/perfmodel/plan_case.h"

namespace rooflm {
namespace {

tests::PlanCase made_of(const char* model, const compile::Sharding& sharding, const char* framework,
                        const char* device) {
  tests::PlanCase made = tests::plan_case(model, sharding, 1, framework, device);
  perfmodel::fit_to_device(made.point.step, made.setting.device);
  perfmodel::fit_to_framework(made.point.step, made.setting.framework);
  perfmodel::fit_to_framework(made.point.step.sharding, made.setting.framework);
  return made;
}

double step_s(tests::PlanCase made, std::int64_t micro_batches) {
  made.point.micro_batches = micro_batches;
  return made.plan().step_s;
}

/// Sums of gradients and gathered weights are waited for once in a step, not in each slot of the bubble.
TEST(LaterMicroBatches, MoreOfThemTakeLongerInAPipeline) {
  tests::PlanCase large =
      made_of("gpt3-175b", {.data = 64, .zero = 1, .tensor = 8, .pipeline = 16}, "rooflm-fused", "h100-sxm");
  large.point.seq = 2048;
  tests::PlanCase small =
      made_of("gpt2-xl", {.context = 8, .tensor = 5, .pipeline = 8}, "rooflm-fused", "a100-sxm");
  small.point.seq = 960;
  small.point.micro_batch = 2;
  for (const tests::PlanCase& made :
       {large, small,
        made_of("medium", {.data = 64, .zero = 1, .pipeline = 4}, "rooflm-eager", "h100-pcie")}) {
    SCOPED_TRACE(made.point.config.name);
    std::vector<double> steps;
    for (const int micro_batches : {1, 2, 3, 4, 8}) steps.push_back(step_s(made, micro_batches));
    for (std::size_t i = 1; i < steps.size(); ++i) EXPECT_LT(steps[i - 1], steps[i]) << i;
    // The bubble of one is not more than that of eight.
    EXPECT_LT(steps[4] - steps[0], 7.5 * (steps[3] - steps[2]) + (steps[1] - steps[0]));
  }
}

/// Beside what a second micro-batch adds up, sums of gradients over nodes hide more; beside a third one not.
TEST(LaterMicroBatches, ExposeWhatAllOfThemDo) {
  constexpr int kMany = 12;
  for (const int data : {4, 8}) {
    tests::PlanCase made = made_of("gpt3-175b", {.data = data, .tensor = 2}, "torch-compile", "h100-sxm");
    made.point.config.layers = 24;
    made.point.seq = 128;
    made.point.micro_batch = 16;
    perfmodel::Forwards forwards;
    const perfmodel::RoleStep all = perfmodel::simulate_role(
        made.point, made.setting, perfmodel::op_times_of(made.setting), forwards, 0, kMany);
    made.point.micro_batches = kMany;
    const perfmodel::Plan plan = made.plan();
    EXPECT_NEAR(plan.step_s / all.timeline.step_s, 1, 0.005) << data;
    EXPECT_NEAR(plan.exposed_s, all.timeline.exposed_s, 0.005 * plan.step_s) << data;
    EXPECT_GT(plan.exposed_s, [&] {
      made.point.micro_batches = 2;
      return made.plan().exposed_s;
    }()) << data;
  }
}

/// A host that binds a step of one micro-batch binds that of many.
TEST(LaterMicroBatches, TakeWhatTheirHostDoes) {
  constexpr int kMany = 12;
  std::vector<tests::PlanCase> cases;
  for (const int batch : {1, 2, 4}) {
    cases.push_back(made_of("gpt2", {}, "megatron-2022", "h100-sxm"));
    cases.back().point.micro_batch = batch;
  }
  // As published runs of vTrain: whole layers are redone, and gradients are summed.
  cases.push_back(made_of("gpt2", {.data = 2}, "megatron-2021", "a100-sxm"));
  cases.back().point.config.layers = 20;
  cases.back().point.step.recompute = passes::Recompute::full;
  for (tests::PlanCase& made : cases) {
    perfmodel::Forwards forwards;
    made.setting.every_layer = true;
    const perfmodel::RoleStep all = perfmodel::simulate_role(
        made.point, made.setting, perfmodel::op_times_of(made.setting), forwards, 0, kMany);
    made.setting.every_layer = false;
    made.point.micro_batches = kMany;
    EXPECT_NEAR(made.plan().step_s / all.timeline.step_s, 1, 0.02) << made.point.micro_batch;
  }
}

/// Collectives are not exposed for longer than they take, and the parts add up.
TEST(LaterMicroBatches, ExposeNoMoreThanThereIs) {
  tests::PlanCase tiny = made_of("tiny", {.data = 2}, "megatron", "h200");
  tiny.point.config.layers = 7;
  tiny.point.seq = 256;
  tiny.point.micro_batch = 2;
  tiny.point.micro_batches = 32;
  tests::PlanCase alone = made_of("large", {}, "megatron-2022-sp", "h200");
  alone.point.step.recompute = passes::Recompute::every_other;
  alone.point.seq = 2048;
  alone.point.micro_batch = 3;
  alone.point.micro_batches = 8;
  for (const tests::PlanCase& made : {tiny, alone}) {
    const perfmodel::Plan plan = made.plan();
    EXPECT_LE(plan.exposed_s, plan.communication_s);
    EXPECT_EQ(plan.bubble_s, 0);
    const double parts =
        plan.compute_s + plan.slowed_s + plan.exposed_s + plan.host_s + plan.waiting_s + plan.bubble_s;
    EXPECT_NEAR(parts / plan.step_s, 1, 1e-9);
  }
}

}  // namespace
}  // namespace rooflm
