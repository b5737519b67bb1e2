// Each way to split a step alone: what it sends by formulas, and from where on it is bound by communication.
#include "perfmodel/strategies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "perfmodel/device_fit.h"
#include "tests/perfmodel/plan_case.h"

namespace rooflm {
namespace {

constexpr int kRanks = 8;
constexpr std::int64_t kBatch = 64;  // sequences of a step

tests::PlanCase whole(const char* model, const char* device = "h100-sxm") {
  tests::PlanCase made = tests::plan_case(model, {}, kBatch, "rooflm-fused", device);
  perfmodel::fit_to_device(made.point.step, made.setting.device);
  return made;
}

const perfmodel::StrategyPlan& called(const std::vector<perfmodel::StrategyPlan>& all,
                                      std::string_view name) {
  const auto found = std::ranges::find(all, name, &perfmodel::StrategyPlan::name);
  EXPECT_NE(found, all.end()) << name;
  return *found;
}

class Strategies : public ::testing::Test {
 protected:
  const tests::PlanCase case_ = whole("2.7B");
  const std::vector<perfmodel::StrategyPlan> all_ =
      perfmodel::compare_strategies(case_.point, case_.setting, kRanks);
  const double others_ = (kRanks - 1.0) / kRanks;
  const double half_bytes_ = 2.0 * static_cast<double>(model::parameter_count(case_.point.config));
  /// Of a micro-batch, in 16 bits: [B, T, C].
  const double row_bytes_ = 2.0 * 1024 * static_cast<double>(case_.point.config.d_model);
};

TEST_F(Strategies, BytesOfDataParallelRanksAreThoseOfWeights) {
  // Gradients of several micro-batches are added up in fp32: a ring's sum of them, or its half and a gather
  // of weights.
  const double gradients = 2 * half_bytes_;
  EXPECT_NEAR(called(all_, "dp").sent_bytes() / (2 * others_ * gradients), 1, 0.01);
  EXPECT_NEAR(called(all_, "zero1").sent_bytes() / (others_ * (gradients + half_bytes_)), 1, 0.01);
  // Weights forward and backward, and gradients: of each micro-batch.
  const double micro_batches = static_cast<double>(kBatch) / kRanks;
  EXPECT_NEAR(called(all_, "zero3").sent_bytes() / (micro_batches * others_ * (gradients + 2 * half_bytes_)),
              1, 0.01);
}

TEST_F(Strategies, BytesOfOtherRanksAreThoseOfActivations) {
  const auto layers = static_cast<double>(case_.point.config.layers);
  // Attention and feed forward gather rows and scatter sums, in both directions.
  const double gathers = 8;
  EXPECT_NEAR(called(all_, "tp").sent_bytes() / (kBatch * layers * gathers * others_ * row_bytes_), 1, 0.15);
  // Stages at an end send in one direction.
  const perfmodel::StrategyPlan& stages = called(all_, "pp");
  const bool is_end = stages.plan.slowest_stage == 0 || stages.plan.slowest_stage == kRanks - 1;
  EXPECT_NEAR(stages.sent_bytes() / ((is_end ? 1 : 2) * kBatch * row_bytes_), 1, 0.02);
}

TEST_F(Strategies, AllComputeTheSame) {
  for (const perfmodel::StrategyPlan& each : all_) {
    EXPECT_EQ(each.point.gpus(), kRanks);
    EXPECT_EQ(each.point.global_batch(), kBatch);
    EXPECT_NEAR(each.flop_per_gpu() * kRanks / each.plan.model_flop, 1, 0.06) << each.name;
  }
  EXPECT_EQ(std::ranges::count(all_, "ep", &perfmodel::StrategyPlan::name), 0);
}

/// On the first number of devices where sending takes longer, and not on half as many.
TEST_F(Strategies, CommunicationBindsFromThereOn) {
  const auto ratio = [&](std::string_view name, int ranks) {
    return called(perfmodel::compare_strategies(case_.point, case_.setting, ranks), name)
        .compute_per_communication();
  };
  const perfmodel::StrategyPlan& tensor = called(all_, "tp");
  ASSERT_GT(tensor.bound_from, 1);
  EXPECT_LT(ratio("tp", static_cast<int>(tensor.bound_from)), 1);
  EXPECT_TRUE(tensor.bound_from == 2 || ratio("tp", static_cast<int>(tensor.bound_from / 2)) > 1);
  // A pipeline sends little: not even on as many stages as the model has layers.
  EXPECT_EQ(called(all_, "pp").bound_from, 0);
  EXPECT_EQ(called(all_, "pp").most, case_.point.config.layers);
}

/// Twice the tokens of a rank are computed twice as long, and the same is sent.
TEST_F(Strategies, CriticalTokensAreWhereBothTakeAsLong) {
  for (const char* name : {"dp", "zero3"}) {
    const perfmodel::StrategyPlan& each = called(all_, name);
    const std::int64_t together = each.point.step.sharding.zero < 2 ? each.point.micro_batches : 1;
    const double tokens = static_cast<double>(each.point.micro_batch * each.point.seq * together);
    EXPECT_NEAR(*each.critical_tokens() * each.plan.compute_s / each.plan.communication_s, tokens,
                1e-6 * tokens);
  }
  EXPECT_FALSE(called(all_, "tp").critical_tokens().has_value());
}

TEST(StrategiesOfExperts, RowsTravelToThemAndBack) {
  tests::PlanCase made = whole("mixtral-8x7b");
  made.setting.memory_limit_bytes = 1e15;
  const auto all = perfmodel::compare_strategies(made.point, made.setting, kRanks);
  const perfmodel::StrategyPlan& experts = called(all, "ep");
  EXPECT_EQ(experts.most, 8);
  // Without what sums the gradients of everything else: forward and backward, there and back, K rows a token.
  const model::ModelConfig& config = made.point.config;
  const auto layer_rows = static_cast<double>(kBatch) / kRanks * 1024 * static_cast<double>(config.layers);
  const double exchanged = 4 * layer_rows * static_cast<double>(config.experts.active * config.d_model) * 2;
  const double of_experts =
      3.0 * static_cast<double>(config.layers * config.experts.count * config.experts.d_ff * config.d_model);
  const double summed = 2 * 4 * (static_cast<double>(model::parameter_count(config)) - of_experts);
  EXPECT_NEAR(experts.sent_bytes() / ((kRanks - 1.0) / kRanks * (exchanged + summed)), 1, 0.05);
}

}  // namespace
}  // namespace rooflm
