// Plans of models that many ranks share: what micro-batches, layers and nodes must not change.
#include <gtest/gtest.h>

#include <string>

#include "compile/passes/plan_memory.h"
#include "model/forward.h"
#include "perfmodel/budget.h"
#include "perfmodel/device_fit.h"
#include "perfmodel/plan.h"
#include "tests/perfmodel/plan_case.h"

namespace rooflm {
namespace {

tests::PlanCase split_case(const char* model, const compile::Sharding& sharding, std::int64_t micro_batches,
                           const char* framework = "rooflm-fused", const char* device = "h100-sxm") {
  tests::PlanCase made = tests::plan_case(model, sharding, micro_batches, framework, device);
  perfmodel::fit_to_device(made.point.step, made.setting.device);
  perfmodel::fit_to_framework(made.point.step, made.setting.framework);
  return made;
}

/// Sharded gradients: whole ones of at most two units are held, whatever the number of micro-batches.
TEST(SplitPlan, WholeGradientsOfFewUnitsAreHeld) {
  const auto arena = [](int zero, int micro_batches) {
    compile::StepOptions options{.dtype = core::DType::bf16,
                                 .recompute = passes::Recompute::full,
                                 .micro_batches = micro_batches,
                                 .optimizer = {}};
    options.sharding = {.data = 8, .zero = zero};
    return static_cast<double>(
        passes::plan_memory(compile::training_step(model::forward(model::preset("medium"), 1, 128), options))
            .arena_bytes);
  };
  EXPECT_LT(arena(2, 8), 1.01 * arena(2, 3));
  EXPECT_LT(arena(2, 8), 0.5 * arena(1, 8));
  const auto planned = [](std::int64_t micro_batches) {
    return split_case("medium", {.data = 8, .zero = 2}, micro_batches).plan().memory.total();
  };
  EXPECT_NEAR(planned(16) / planned(3), 1, 0.01);
}

/// The sum of 16-bit gradients in fp32 is paid once, not per stage of the bubble.
TEST(SplitPlan, TwoMicroBatchesTakeLessThanThree) {
  const auto step_s = [](std::int64_t micro_batches) {
    return split_case("2.7B", {.data = 64, .pipeline = 4}, micro_batches).plan().step_s;
  };
  EXPECT_LT(step_s(2), 1.02 * step_s(3));
}

/// Their sums of gradients run as by default, beside the backward pass (passes/sum_in_update.h).
TEST(SplitPlan, PeerMemoryLeavesTheSumsOfZeroTwoAndThree) {
  const auto step_s = [](int zero, bool sum_in_update) {
    tests::PlanCase made = split_case("medium", {.data = 4, .zero = zero}, 1);
    made.point.micro_batch = 4;
    made.point.step.rewrites.set(compile::Rewrite::sum_in_update, sum_in_update);
    return made.plan().step_s;
  };
  for (const int zero : {2, 3}) EXPECT_NEAR(step_s(zero, true) / step_s(zero, false), 1, 0.02) << zero;
}

TEST(SplitPlan, NoTermIsNegative) {
  const compile::Sharding zero2{.data = 128, .zero = 2, .tensor = 8, .sequence_parallel = true};
  for (const tests::PlanCase& each :
       {split_case("2.7B", {.data = 64}, 16, "torch-compile"), split_case("gpt3-175b", zero2, 8),
        split_case("medium", {.data = 8, .zero = 3}, 1)}) {
    const perfmodel::Plan plan = each.plan();
    EXPECT_GE(plan.exposed_s, 0);
    EXPECT_GE(plan.step_s, plan.compute_s);
    const perfmodel::RankMemory& memory = plan.memory;
    for (const double part : {memory.weight_bytes, memory.gradient_bytes, memory.activation_bytes,
                              memory.workspace_bytes, memory.gap_bytes})
      EXPECT_GE(part, 0);
  }
}

/// Also of layers whose collectives are exposed the more the more of them there are.
TEST(SplitPlan, SlowLinksNeedNotAllLayersEither) {
  for (const int zero : {1, 2, 3}) {
    tests::PlanCase made = split_case("llama3-8b", {.data = 8, .zero = zero}, 1, "torch-compile", "rtx-3090");
    const perfmodel::Plan quick = made.plan();
    made.setting.every_layer = true;
    const perfmodel::Plan whole = made.plan();
    EXPECT_NEAR(quick.step_s / whole.step_s, 1, 0.02) << zero;
    EXPECT_NEAR(quick.memory.total() / whole.memory.total(), 1, 0.005) << zero;
  }
}

/// The sum of the head's gradients over the network outlasts few layers, and is hidden by many.
TEST(SplitPlan, AWaitThatMoreLayersHideIsNoneOfThem) {
  struct Split {
    int data, zero, tensor;
    std::int64_t micro_batch;
  };
  for (const Split& split : {Split{4, 0, 4, 1}, Split{4, 0, 4, 2}, Split{2, 0, 8, 1}, Split{4, 1, 4, 1}}) {
    tests::PlanCase made =
        split_case("llama3-8b", {.data = split.data, .zero = split.zero, .tensor = split.tensor}, 1);
    made.point.step.recompute = passes::Recompute::full;
    made.point.micro_batch = split.micro_batch;
    made.point.seq = 4096;
    const perfmodel::Plan quick = made.plan();
    made.setting.every_layer = true;
    const perfmodel::Plan whole = made.plan();
    EXPECT_NEAR(quick.step_s / whole.step_s, 1, 0.005) << split.data << ' ' << split.zero;
    EXPECT_NEAR(quick.exposed_s, whole.exposed_s, 0.005 * whole.step_s) << split.data << ' ' << split.zero;
    EXPECT_NEAR(quick.memory.total() / whole.memory.total(), 1, 0.005) << split.data << ' ' << split.zero;
  }
}

/// The same where the wait is within the backward pass: what is exposed of few layers must not be drawn out
/// below nothing.
TEST(SplitPlan, ExposedCommunicationThatMoreLayersHideIsNotNegative) {
  struct Case {
    const char* device;
    const char* framework;
    std::int64_t seq, micro_batch;
    int data;
  };
  for (const Case& each :
       {Case{"h100-sxm", "megatron", 1024, 4, 64}, Case{"h100-sxm", "rooflm-fused", 2048, 1, 64},
        Case{"h800-sxm", "rooflm-fused", 1024, 4, 16}, Case{"b200", "megatron", 2048, 1, 2},
        Case{"h200", "rooflm-fused", 2048, 1, 32}, Case{"b200", "rooflm-fused", 1024, 4, 64}}) {
    SCOPED_TRACE(std::string(each.device) + " " + each.framework);
    tests::PlanCase made = split_case("llama3-8b", {.data = each.data}, 1, each.framework, each.device);
    made.point.seq = each.seq;
    made.point.micro_batch = each.micro_batch;
    const perfmodel::Plan quick = made.plan();
    made.setting.every_layer = true;
    const perfmodel::Plan whole = made.plan();
    EXPECT_GE(quick.exposed_s, 0);
    EXPECT_NEAR(quick.exposed_s, whole.exposed_s, 0.02 * whole.step_s);
    EXPECT_NEAR(quick.step_s / whole.step_s, 1, 0.02);
  }
}

/// A host that is slower than the device for each layer binds the step of many, although not that of few.
TEST(SplitPlan, NoStepIsShorterThanItsHostNeeds) {
  double before_s = 0;
  for (const int batch : {1, 2}) {
    tests::PlanCase made = split_case("gpt2", {}, 1, "megatron-2022");
    made.point.micro_batch = batch;
    const perfmodel::Plan quick = made.plan();
    double ops = 0;
    for (const auto& [name, work] : quick.work) ops += static_cast<double>(work.ops);
    EXPECT_GE(quick.step_s, ops * made.setting.framework.launch_host_s) << batch;
    EXPECT_GE(quick.step_s, 0.999 * before_s);
    before_s = quick.step_s;
    made.setting.every_layer = true;
    EXPECT_NEAR(quick.step_s / made.plan().step_s, 1, 0.02) << batch;
  }
}

TEST(SplitPlan, RanksOfOneNodeMeetThere) {
  const perfmodel::Cluster cluster = perfmodel::cluster_of(devices::find_device("h100-sxm"));
  ASSERT_EQ(cluster.per_node, 8);
  const auto link = [&](perfmodel::Ranks ranks) { return &perfmodel::link_of(cluster, ranks); };
  // The first and the last of six stages of one rank.
  EXPECT_EQ(link({.size = 2, .stride = 5}), &cluster.inside);
  EXPECT_EQ(link({.size = 2, .stride = 5, .of = 6}), &cluster.inside);
  EXPECT_EQ(link({.size = 2, .stride = 8}), &cluster.between);
  // Four stages of four ranks: two hops in a node, one to the next.
  EXPECT_EQ(link({.size = 4, .stride = 4}), &cluster.between);
  EXPECT_EQ(link({.size = 2, .stride = 4}), &cluster.inside);
}

/// Of groups of three on nodes of eight, ranks 6 to 8 and 15 to 17 stand in two nodes: all wait for those.
TEST(SplitPlan, GroupsThatStraddleNodesUseTheNetwork) {
  using perfmodel::Collective;
  const perfmodel::Cluster eight = perfmodel::cluster_of(devices::find_device("h100-sxm"));
  const auto seconds = [](const perfmodel::Cluster& cluster, perfmodel::Ranks ranks) {
    return perfmodel::collective_seconds(cluster, Collective::all_gather, 1e9, ranks);
  };
  const double alone_s = seconds(eight, {.size = 3});
  EXPECT_EQ(seconds(eight, {.size = 3, .of = 3}), alone_s);
  EXPECT_EQ(seconds(eight, {.size = 3, .of = 6}), alone_s);
  // One rank alone in a node has one way out of it.
  EXPECT_NEAR(seconds(eight, {.size = 3, .of = 24}),
              2.0 / 3 * 1e9 / (eight.between.byte_per_s * eight.between.share), 0.1 * alone_s);
  EXPECT_EQ(seconds(eight, {.size = 4, .of = 64}), seconds(eight, {.size = 4}));
  // Groups of data ranks: 0, 3, 6 in the node and 9, 12, ... beyond; 1, 4, 7; 2, 5.
  EXPECT_GT(seconds(eight, {.size = 4, .stride = 3, .of = 12}), seconds(eight, {.size = 4, .stride = 2}));
  // Ranks 4 to 7 of twelve in nodes of six.
  const perfmodel::Cluster six = perfmodel::cluster_of(devices::find_device("h100-sxm"), 6);
  EXPECT_EQ(&perfmodel::link_of(six, {.size = 4, .of = 12}), &six.between);
  EXPECT_EQ(&perfmodel::link_of(six, {.size = 3, .of = 12}), &six.inside);
  // Of racks jobs are given parts that fit their groups, unless it is said how many.
  const auto gb200 = devices::find_device("gb200");
  const perfmodel::Cluster rack = perfmodel::cluster_of(gb200);
  EXPECT_EQ(&perfmodel::link_of(rack, {.size = 4, .stride = 8, .of = 128}), &rack.inside);
  const perfmodel::Cluster part = perfmodel::cluster_of(gb200, 36);
  EXPECT_EQ(&perfmodel::link_of(part, {.size = 4, .stride = 8, .of = 128}), &part.between);
  // Whole steps too.
  const auto step_s = [](int per_node) {
    tests::PlanCase made = split_case("gpt2", {.data = 8, .tensor = 3}, 8);
    made.setting.cluster = perfmodel::cluster_of(made.setting.device, per_node, 1e9);
    return made.plan().step_s;
  };
  EXPECT_GT(step_s(8), 1.5 * step_s(6));
}

TEST(SplitPlan, ABridgeJoinsTwo) {
  using perfmodel::Collective;
  const perfmodel::Cluster cluster = perfmodel::cluster_of(devices::find_device("h100-pcie"));
  ASSERT_TRUE(cluster.pair);
  EXPECT_TRUE(cluster.inside.name.starts_with("PCIe"));
  const auto seconds = [&](int ranks) {
    return perfmodel::collective_seconds(cluster, Collective::all_gather, 1e9, {.size = ranks});
  };
  EXPECT_EQ(&perfmodel::link_of(cluster, {.size = 2}), &*cluster.pair);
  EXPECT_LT(3 * seconds(2), seconds(4));
  EXPECT_FALSE(perfmodel::cluster_of(devices::find_device("h100-sxm")).pair);
}

/// A checkpoint holds the state once, however it is split.
TEST(SplitPlan, CheckpointsOfOneStateTakeTheSameTime) {
  std::vector<double> seconds;
  for (const int zero : {0, 1, 2, 3}) {
    const tests::PlanCase made = split_case("medium", {.data = 8, .zero = zero}, 2);
    seconds.push_back(perfmodel::checkpoint_seconds(made.point, made.plan()));
  }
  for (const double each : seconds) EXPECT_NEAR(each / seconds[0], 1, 0.05);
}

}  // namespace
}  // namespace rooflm
