// Whole plans: what extrapolates must agree with what is built in full.
#include "perfmodel/plan.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "devices/cuda_workspaces.h"
#include "perfmodel/device_fit.h"
#include "tests/perfmodel/plan_case.h"

namespace rooflm {
namespace {

tests::PlanCase plan_case(const char* model, const compile::Sharding& sharding, std::int64_t micro_batches) {
  tests::PlanCase made = tests::plan_case(model, sharding, micro_batches, "megatron");
  made.point.micro_batch = 2;
  return made;
}

TEST(Plan, LayersThatAreAlikeNeedNotAllBeBuilt) {
  for (const compile::Sharding& sharding :
       {compile::Sharding{}, compile::Sharding{.data = 8, .zero = 3},
        compile::Sharding{.data = 8, .zero = 1, .tensor = 2}, compile::Sharding{.data = 2, .pipeline = 4},
        compile::Sharding{.data = 2, .context = 4, .zero = 3}}) {
    SCOPED_TRACE(sharding.ranks());
    auto [point, setting] = plan_case("medium", sharding, 8);
    const perfmodel::Plan quick = perfmodel::make_plan(point, setting);
    setting.every_layer = true;
    const perfmodel::Plan whole = perfmodel::make_plan(point, setting);
    EXPECT_NEAR(quick.step_s / whole.step_s, 1, 0.02);
    // Of PyTorch's pools all layers are seen in either.
    EXPECT_NEAR(quick.memory.total() / whole.memory.total(), 1, 0.005);
  }
}

TEST(Plan, PartsOfMemoryGrowAsTheyDoInAllLayers) {
  for (const char* framework : {"rooflm-fused", "torch-eager"}) {
    for (const int layers : {23, 24}) {
      for (const passes::Recompute recompute : {passes::Recompute::none, passes::Recompute::full}) {
        auto [point, setting] = plan_case("medium", {.data = 4, .zero = 3}, 1);
        setting.framework = perfmodel::find_framework(framework);
        perfmodel::fit_to_framework(point.step, setting.framework);
        point.config.layers = layers;
        point.step.recompute = recompute;
        const perfmodel::RankMemory quick = perfmodel::make_plan(point, setting).memory;
        setting.every_layer = true;
        const perfmodel::RankMemory whole = perfmodel::make_plan(point, setting).memory;
        for (const auto part :
             {&perfmodel::RankMemory::weight_bytes, &perfmodel::RankMemory::optimizer_bytes,
              &perfmodel::RankMemory::gradient_bytes, &perfmodel::RankMemory::activation_bytes})
          EXPECT_NEAR(quick.*part / (whole.*part), 1, 0.01)
              << framework << ", " << layers << ", " << passes::name_of(recompute) << ", of "
              << whole.total();
      }
    }
  }
}

/// Of the last stage's parts only one has the head, and a micro-batch's backward pass follows at once: what a
/// larger vocabulary takes does not grow with the stages before, as it does in GPipe with the micro-batches.
TEST(Plan, InterleavedStagesKeepOneMicroBatchOfTheHead) {
  const auto of_vocab = [](compile::Sharding sharding, std::int64_t micro_batches) {
    const auto activations = [&](int times) {
      auto [point, setting] = plan_case("medium", sharding, micro_batches);
      point.step.rewrites.set(compile::Rewrite::unfused_loss);  // whole logits in fp32 are kept
      point.config.vocab *= times;
      point.config.padded_vocab *= times;
      return perfmodel::make_plan(point, setting).roles.back().memory.activation_bytes;
    };
    return activations(2) - activations(1);
  };
  const double few = of_vocab({.pipeline = 3, .interleave = 2}, 12);
  EXPECT_GT(few, 0);
  EXPECT_NEAR(of_vocab({.pipeline = 12, .interleave = 2}, 12) / few, 1, 0.01);
  const auto gpipe = compile::PipelineSchedule::gpipe;
  EXPECT_GT(of_vocab({.pipeline = 3, .schedule = gpipe}, 12), 2 * few);
}

/// In an interleaved pipeline the head's time is in one part of the last stage.
TEST(Plan, InterleavedStagesSayWhatTheEndsTake) {
  auto [point, setting] = plan_case("medium", {.pipeline = 4, .interleave = 2}, 8);
  const perfmodel::Plan plan = perfmodel::make_plan(point, setting);
  EXPECT_EQ(plan.roles[1].times.end_forward_s, 0);
  const perfmodel::StageTimes& last = plan.roles.back().times;
  EXPECT_GT(last.end_backward_s, 0);
  // Without its end the last stage is one of those between, at the higher clock that its loss leaves it.
  EXPECT_NEAR((last.forward_s - last.end_forward_s) / plan.roles[1].times.forward_s, 0.97, 0.05);
  EXPECT_NEAR((last.backward_s - last.end_backward_s) / plan.roles[1].times.backward_s, 0.97, 0.05);
}

/// Interleaved parts are built with three and six micro-batches; four are between them.
TEST(Plan, FourInterleavedMicroBatchesTakeHalfOfEight) {
  const auto plan_of = [](std::int64_t micro_batches) {
    auto [point, setting] = plan_case("medium", {.pipeline = 4, .interleave = 2}, micro_batches);
    setting.at_table_clock = true;
    return perfmodel::make_plan(point, setting);
  };
  const perfmodel::Plan four = plan_of(4);
  const perfmodel::Plan eight = plan_of(8);
  const perfmodel::Plan twelve = plan_of(12);
  EXPECT_NEAR(twelve.compute_s - eight.compute_s, eight.compute_s - four.compute_s, 0.01 * four.compute_s);
  EXPECT_NEAR(eight.executed_flop / four.executed_flop, 2, 0.001);
}

/// What a stage receives, of all micro-batches but those in flight, and what it hands on, in both directions;
/// the last one has logits instead.
TEST(Plan, StagesOfTorchKeepBuffersOfAllMicroBatches) {
  constexpr int kMicroBatches = 8;
  auto [point, setting] = plan_case("medium", {.data = 2, .zero = 1, .pipeline = 4}, kMicroBatches);
  setting.framework.has_torch_stages = false;
  const perfmodel::Plan without = perfmodel::make_plan(point, setting);
  setting.framework.has_torch_stages = true;
  const perfmodel::Plan with = perfmodel::make_plan(point, setting);
  const double rows = 2.0 * 1024 * 2;  // of a micro-batch, in 16 bits
  const double passed = rows * static_cast<double>(point.config.d_model);
  const double logits = rows * static_cast<double>(point.config.vocab);
  const auto more = [&](std::size_t role) {
    return with.roles.at(role).memory.activation_bytes - without.roles.at(role).memory.activation_bytes;
  };
  EXPECT_NEAR(more(0), (7 + 8) * passed, 1);
  EXPECT_NEAR(more(1), (8 - 3 + 7 + 8) * passed, 1);  // three are in flight
  EXPECT_NEAR(more(2), (8 - 1) * passed + 7 * logits, 1);
  compile::Sharding sharding = point.step.sharding;
  perfmodel::fit_to_framework(sharding, setting.framework);
  EXPECT_TRUE(sharding.late_sums);
  sharding.pipeline = 1;
  perfmodel::fit_to_framework(sharding, setting.framework);
  EXPECT_FALSE(sharding.late_sums);
}

/// Gradients of one micro-batch have 16 bits, sums of several 32: what is summed over ranks once must not be
/// taken to grow with the micro-batches.
TEST(Plan, GradientsAreSummedOnceForAllMicroBatches) {
  for (const int zero : {0, 1}) {
    auto [point, setting] = plan_case("medium", {.data = 16, .zero = zero}, 2);
    setting.framework = perfmodel::find_framework("rooflm-fused");
    point.step.rewrites.set(compile::Rewrite::compact_state);
    const double of_two = perfmodel::make_plan(point, setting).communication_s;
    point.micro_batches = 32;
    EXPECT_NEAR(perfmodel::make_plan(point, setting).communication_s / of_two, 1, 0.01);
  }
}

TEST(Plan, LayersInPairsNeedNotAllBeBuiltEither) {
  auto [point, setting] = plan_case("medium", {.data = 8, .zero = 3, .root_unit = true}, 8);
  point.step.recompute = passes::Recompute::every_other;
  const perfmodel::Plan quick = perfmodel::make_plan(point, setting);
  setting.every_layer = true;
  const perfmodel::Plan whole = perfmodel::make_plan(point, setting);
  EXPECT_NEAR(quick.step_s / whole.step_s, 1, 0.02);
  EXPECT_NEAR(quick.memory.total() / whole.memory.total(), 1, 0.03);
}

/// One step of rooflm on one H200 that updates early, as scripts/gpu_check measures it.
tests::PlanCase early_case(const char* model, std::int64_t seq) {
  tests::PlanCase made = plan_case(model, {}, 1);
  made.setting.device = devices::find_device("h200");
  made.setting.framework = perfmodel::find_framework("rooflm-fused");
  made.setting.framework.is_deterministic = false;
  made.point.step = {.dtype = core::DType::bf16};
  perfmodel::fit_to_device(made.point.step, made.setting.device);
  made.point.step.optimizer.clip_norm = 0;
  made.point.micro_batch = 4;
  made.point.seq = seq;
  return made;
}

TEST(Plan, GradientsOfEarlyUpdatesWaitByTheShareOfAllLayers) {
  auto [point, setting] = early_case("xl", 128);
  const perfmodel::RankMemory quick = perfmodel::make_plan(point, setting).memory;
  setting.every_layer = true;
  EXPECT_EQ(quick.total(), perfmodel::make_plan(point, setting).memory.total());
}

TEST(Plan, KernelsOfRooflmHoldWorkspacesOnGpusOnly) {
  auto [point, setting] = early_case("small", 512);  // attention's gradient in two passes needs least
  constexpr double kGemms = 24 << 20;
  const double of_gpu = perfmodel::make_plan(point, setting).memory.workspace_bytes;
  setting.device.kind = devices::Kind::cpu;
  const double of_processor = perfmodel::make_plan(point, setting).memory.workspace_bytes;
  const double norms =
      static_cast<double>(devices::norm_gradient_bytes(4 * 512, point.config.d_model, 132, 1));
  EXPECT_GE(of_gpu - of_processor, kGemms + norms);
  EXPECT_LT(of_gpu - of_processor, 1.1 * (kGemms + norms));
  setting.device.kind = devices::Kind::gpu;
  setting.framework.has_rewrites = false;  // what other frameworks' kernels hold is said with the framework
  EXPECT_EQ(perfmodel::make_plan(point, setting).memory.workspace_bytes, of_processor);
}

TEST(Plan, RanksOfOneSequenceShareActivationsAndAttention) {
  auto [one, setting] = plan_case("medium", {}, 1);
  one.seq = 8192;
  auto four = one;
  four.step.sharding.context = 4;
  const perfmodel::Plan alone = perfmodel::make_plan(one, setting);
  const perfmodel::Plan shared = perfmodel::make_plan(four, setting);
  EXPECT_EQ(four.gpus(), 4);
  EXPECT_EQ(four.tokens(), one.tokens());
  EXPECT_NEAR(4 * shared.work.at("attention").matmul_flop / alone.work.at("attention").matmul_flop, 1, 1e-9);
  EXPECT_NEAR(4 * shared.memory.saved_bytes / alone.memory.saved_bytes, 1, 0.05);
  EXPECT_GT(shared.communication_s, shared.exposed_s);
  EXPECT_LT(shared.step_s, 0.5 * alone.step_s);
}

TEST(Plan, TheRootUnitIsKeptAndTakesMemory) {
  auto [point, setting] = plan_case("llama3-8b", {.data = 8, .zero = 3}, 1);
  point.config.layers = 4;
  const perfmodel::Plan apart = perfmodel::make_plan(point, setting);
  point.step.sharding.root_unit = true;
  // While layers run, embedding and head are there in 16 bits.
  const auto table = static_cast<double>(point.config.padded_vocab * point.config.d_model);
  EXPECT_GT(perfmodel::make_plan(point, setting).memory.total(), apart.memory.total() + table);
}

TEST(Plan, CheckpointsOfEagerPyTorchHoldWhatNothingReads) {
  auto [point, setting] = plan_case("llama3-8b", {.data = 8, .zero = 3}, 1);
  setting.framework = perfmodel::find_framework("torchtitan-2024-eager");
  perfmodel::fit_to_framework(point.step, setting.framework);
  point.config.layers = 8;
  point.step.recompute = passes::Recompute::every_other;
  const auto total = [&, &point = point, &setting = setting](bool has_unread_saves) {
    setting.framework.has_unread_saves = has_unread_saves;
    return perfmodel::make_plan(point, setting).memory.total();
  };
  const auto of_layer = static_cast<double>(2 * point.micro_batch * point.seq * point.config.d_model);
  const double more = (total(true) - total(false)) / of_layer;
  EXPECT_GE(more, 5);  // some of the 8 lie in holes
  EXPECT_LE(more, 8);
  point.step.recompute = passes::Recompute::full;
  EXPECT_EQ(total(true), total(false));
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

TEST(Plan, ProductsInTf32TakeThePowerOfThatPipe) {
  auto [point, setting] = early_case("small", 1024);
  point.step.dtype = core::DType::f32;
  const perfmodel::Plan fp32 = perfmodel::make_plan(point, setting);
  point.step.fp32_products = program::Fp32Products::tf32;
  const perfmodel::Plan tf32 = perfmodel::make_plan(point, setting);
  EXPECT_GT(tf32.clock_hz, 1e9);
  EXPECT_LT(tf32.step_s, 0.5 * fp32.step_s);
  EXPECT_EQ(tf32.basis, perfmodel::Basis::assumed);  // of the rate, square products alone were measured
}

TEST(Plan, DevicesWithoutLinksArePlannedAlone) {
  auto [point, setting] = plan_case("medium", {.data = 2}, 1);
  setting.device.links.clear();
  setting.cluster = perfmodel::cluster_of(setting.device);
  EXPECT_THROW(perfmodel::make_plan(point, setting), core::UsageError);
  point.step.sharding.data = 1;
  EXPECT_GT(perfmodel::make_plan(point, setting).step_s, 0);
}

TEST(Plan, WhatDoesNotDivideIsRefused) {
  const auto uneven = plan_case("medium", {.pipeline = 5}, 8);
  EXPECT_ANY_THROW(perfmodel::make_plan(uneven.point, uneven.setting));
  const auto heads = plan_case("medium", {.tensor = 3}, 8);
  EXPECT_ANY_THROW(perfmodel::make_plan(heads.point, heads.setting));
}

}  // namespace
}  // namespace rooflm
