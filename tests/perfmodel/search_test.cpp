// Searches for the best split: what is left out early is none of the best.
#include "perfmodel/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "perfmodel/layer_book.h"

namespace rooflm {
namespace {

struct Task {
  const char* model;
  std::int64_t seq;
  int gpus;
  std::int64_t global_batch;
};

perfmodel::SearchResult search(const Task& task, double memory_limit_bytes, std::size_t top,
                               perfmodel::SearchFor what = perfmodel::SearchFor::best) {
  perfmodel::Setting setting;
  setting.device = devices::find_device("h100-sxm");
  setting.framework = perfmodel::find_framework("megatron");
  setting.cluster = perfmodel::cluster_of(setting.device);
  setting.memory_limit_bytes = memory_limit_bytes;
  perfmodel::PlanPoint base;
  base.config = model::preset(task.model);
  base.step.dtype = core::DType::bf16;
  base.seq = task.seq;
  perfmodel::fit_to_framework(base.step, setting.framework);
  return perfmodel::search(base, setting, task.gpus, task.global_batch, top, what);
}

/// `few` has no other first candidates than `all`, to the last bit.
void expect_same_best(const perfmodel::SearchResult& few, const perfmodel::SearchResult& all,
                      std::size_t top) {
  ASSERT_GE(few.candidates.size(), std::min(top, all.candidates.size()));
  for (std::size_t i = 0; i < std::min(top, all.candidates.size()); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(few.candidates[i].plan.step_s, all.candidates[i].plan.step_s);
    EXPECT_EQ(few.candidates[i].plan.memory.total(), all.candidates[i].plan.memory.total());
    EXPECT_EQ(few.candidates[i].point.step.sharding, all.candidates[i].point.step.sharding);
    EXPECT_EQ(few.candidates[i].point.micro_batch, all.candidates[i].point.micro_batch);
    EXPECT_EQ(few.candidates[i].reason, all.candidates[i].reason);
  }
}

TEST(Search, TheBestOfAFewAreTheBestOfAll) {
  const Task task{.model = "gpt2", .seq = 512, .gpus = 4, .global_batch = 8};
  // All fit; some do not; fewer fit than are asked for.
  for (const double limit : {80e9, 3e9, 1.5e9}) {
    SCOPED_TRACE(limit);
    const auto all = search(task, limit, perfmodel::kEveryCandidate);
    EXPECT_EQ(all.planned + all.too_large, all.tried);
    for (const std::size_t top : {std::size_t{5}, std::size_t{100}}) {
      SCOPED_TRACE(top);
      expect_same_best(search(task, limit, top), all, top);
    }
  }
}

/// Twelve sequences of a device: also in threes, sixes and all at once.
TEST(Search, TriesAllMicroBatchesThatDivideTheBatch) {
  const auto found =
      search({.model = "gpt2", .seq = 512, .gpus = 1, .global_batch = 12}, 80e9, perfmodel::kEveryCandidate);
  std::set<std::int64_t> tried;
  for (const perfmodel::Candidate& each : found.candidates) tried.insert(each.point.micro_batch);
  EXPECT_EQ(tried, (std::set<std::int64_t>{1, 2, 3, 4, 6, 12}));
}

/// What is left out by a bound has no better plan.
TEST(LayerBook, BoundsAreBelowPlans) {
  perfmodel::Setting setting;
  setting.device = devices::find_device("h100-sxm");
  setting.framework = perfmodel::find_framework("megatron");
  setting.cluster = perfmodel::cluster_of(setting.device);
  setting.memory_limit_bytes = setting.device.usable_bytes();
  perfmodel::LayerBook book(setting);
  for (const compile::Sharding& sharding :
       {compile::Sharding{}, compile::Sharding{.data = 8, .zero = 3},
        compile::Sharding{
            .data = 2, .zero = 1, .tensor = 4, .sequence_parallel = true, .vocab_parallel = true},
        compile::Sharding{.data = 2, .tensor = 2, .pipeline = 4}}) {
    for (const auto recompute : {passes::Recompute::none, passes::Recompute::full}) {
      SCOPED_TRACE(sharding.ranks());
      perfmodel::PlanPoint point;
      point.config = model::preset("medium");
      point.step.dtype = core::DType::bf16;
      point.step.recompute = recompute;
      point.step.sharding = sharding;
      point.micro_batch = 4;
      point.micro_batches = 8;
      point.seq = 1024;
      perfmodel::fit_to_framework(point.step, setting.framework);
      const perfmodel::Plan plan = perfmodel::make_plan(point, setting);
      EXPECT_LE(book.least_seconds(point), plan.step_s);
      EXPECT_GT(book.least_seconds(point), 0.3 * plan.step_s);
      EXPECT_LE(book.least_bytes(point), plan.memory.total());
    }
  }
}

/// Seconds and bytes of what nothing beats in both, of what fits.
std::set<std::pair<double, double>> frontier_of(const perfmodel::SearchResult& found) {
  std::vector<std::pair<double, double>> plans;
  for (const auto* all : {&found.candidates, &found.frontier})
    for (const perfmodel::Candidate& each : *all)
      if (each.plan.fits) plans.emplace_back(each.plan.step_s, each.plan.memory.total());
  std::set<std::pair<double, double>> frontier;
  for (const auto& plan : plans) {
    const bool is_beaten = std::ranges::any_of(plans, [&](const auto& other) {
      return other != plan && other.first <= plan.first && other.second <= plan.second;
    });
    if (!is_beaten) frontier.insert(plan);
  }
  return frontier;
}

TEST(Search, TheFrontierOfAFewIsThatOfAll) {
  const Task task{.model = "gpt2", .seq = 512, .gpus = 4, .global_batch = 8};
  for (const double limit : {80e9, 3e9}) {
    const auto all = search(task, limit, perfmodel::kEveryCandidate, perfmodel::SearchFor::frontier);
    const auto few = search(task, limit, 2, perfmodel::SearchFor::frontier);
    const auto best = search(task, limit, 2);
    EXPECT_EQ(frontier_of(few), frontier_of(all)) << limit;
    EXPECT_GT(frontier_of(few).size(), frontier_of(best).size()) << limit;
    EXPECT_TRUE(best.frontier.empty());
    expect_same_best(few, all, 2);
    // All of what is only there for it is on it.
    for (const perfmodel::Candidate& each : few.frontier)
      EXPECT_TRUE(frontier_of(few).contains({each.plan.step_s, each.plan.memory.total()})) << each.reason;
  }
}

TEST(Search, LeavesOutWhatCannotBeAmongTheBest) {
  const Task task{.model = "medium", .seq = 1024, .gpus = 8, .global_batch = 32};
  const auto few = search(task, 8e9, 3);
  EXPECT_GT(few.too_slow, 0U);
  EXPECT_GT(few.too_large, 0U);
  EXPECT_LT(few.planned, few.tried);
}

}  // namespace
}  // namespace rooflm
