// Sums over ops and samples, growth, memory: against numbers worked out by hand.
#include "report/model/summaries.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "report/model/memory_curve.h"
#include "report/model/run_figures.h"
#include "report/model/saved_tensors.h"
#include "report/model/work_figures.h"
#include "report/runs/growth.h"
#include "tests/record/record_testing.h"
#include "tests/report/step_record.h"

namespace rooflm::report {
namespace {

const Group& group(const std::vector<Group>& groups, const std::string& phase, const std::string& name) {
  for (const Group& one : groups) {
    if (one.phase == phase && one.name == name) return one;
  }
  throw std::runtime_error("no group " + phase + " " + name);
}

TEST(Scopes, BlocksPartsAndLayers) {
  EXPECT_EQ(block_of("h.3/attention/qk"), "attention");
  EXPECT_EQ(part_of("h.3/attention/qk"), "attention/qk");
  EXPECT_EQ(block_of("h.11/ln1"), "ln1");
  EXPECT_EQ(block_of("lm_head"), "lm_head");
  EXPECT_EQ(part_of("embedding"), "embedding");
  EXPECT_EQ(layer_of("h.12/ln1"), 12);
  EXPECT_EQ(layer_of("h.7"), 7);
  EXPECT_EQ(layer_of("head"), std::nullopt);
  EXPECT_EQ(layer_of("h.x/ln1"), std::nullopt);
  EXPECT_EQ(layer_of("h."), std::nullopt);
  EXPECT_EQ(layer_of(""), std::nullopt);
}

TEST(Summaries, PhasesFromPlainStepsOnly) {
  const RecordSet set = load_steps({{}});
  const auto step = phase_time(set.runs.at(0), "step");
  ASSERT_TRUE(step.has_value());
  EXPECT_DOUBLE_EQ(step->median, 1e-3);
  EXPECT_DOUBLE_EQ(step->min, 0.9e-3);
  EXPECT_DOUBLE_EQ(step->max, 1.2e-3);
  EXPECT_EQ(step->count, kPlainSteps.size());
  EXPECT_EQ(step->outliers, 0U) << "four of seven are the median, the others are 0.05 ms away on average";
  EXPECT_DOUBLE_EQ(*phase_median(set.runs[0], "step", "observed"), 1.1e-3);
  EXPECT_EQ(phase_time(set.runs[0], "nothing"), std::nullopt);
  EXPECT_EQ(phases_of(set.runs[0]), (std::vector<std::string>{"forward", "backward", "optimizer"}));
  EXPECT_EQ(observed_steps(set.runs[0]), 3U);
}

TEST(Summaries, PartsAddLayersUp) {
  const RecordSet set = load_steps({{.seq = 10}});
  const std::vector<Group> parts = parts_of(set.runs[0]);
  // Two layers of 100 T ns; backward takes twice as long. Step 1 of 3 was twice as slow: medians do not see
  // it.
  const Work& qkv = group(parts, "forward", "attention/qkv").work;
  EXPECT_EQ(qkv.ops, 2);
  EXPECT_EQ(qkv.instances, 6);
  EXPECT_NEAR(qkv.device_s, 2000e-9, 1e-15);
  EXPECT_NEAR(qkv.wall_s.value(), 2200e-9, 1e-15);
  EXPECT_EQ(qkv.matmul_flop, 20000);
  EXPECT_EQ(qkv.bytes, 6000);
  EXPECT_NEAR(*qkv.roof_s, 1000e-9, 1e-15);
  EXPECT_EQ(qkv.bound, "matmul fp32");
  EXPECT_NEAR(*qkv.intensity(), 20000.0 / 6000.0, 1e-12);
  EXPECT_NEAR(group(parts, "backward", "attention/softmax").work.device_s, 800e-9, 1e-15);
  EXPECT_EQ(group(parts, "backward", "attention/softmax").work.bound, "DRAM");
  const std::vector<Group> blocks = blocks_of(set.runs[0]);
  // qkv 1000 + qk 100 + softmax 200 + v 100 + proj 300 per layer.
  EXPECT_NEAR(group(blocks, "forward", "attention").work.device_s, 3400e-9, 1e-15);
  EXPECT_EQ(blocks.front().phase, "forward");
  EXPECT_EQ(blocks.back().phase, "optimizer");
}

TEST(Summaries, ARoofNeedsAllOps) {
  RecordSet set = load_steps({{}});
  EXPECT_TRUE(phase_work(set.runs[0], "step").roof_s.has_value());
  set.runs[0].ops[0].roof_s.reset();
  EXPECT_FALSE(phase_work(set.runs[0], "step").roof_s.has_value());
  EXPECT_TRUE(phase_work(set.runs[0], "backward").roof_s.has_value());
  EXPECT_FALSE(phase_roof(set.runs[0], "step", phase_work(set.runs[0], "step")).roof_s.has_value());
  set.runs[0].predictions.push_back(
      {.subject = "step", .quantity = "roof_s", .value = 5e-6, .bound = "DRAM"});
  EXPECT_DOUBLE_EQ(*phase_roof(set.runs[0], "step", phase_work(set.runs[0], "step")).roof_s, 5e-6);
}

/// Whose bytes may be in a cache of unknown bandwidth.
TEST(Summaries, RoofsOfZeroAreNone) {
  RecordSet set = load_steps({{.seq = 10}});
  for (TimedOp& op : set.runs[0].ops) op.roof_s = 0;
  for (const Group& part : parts_of(set.runs[0])) {
    EXPECT_EQ(part.work.shown_roof_s(), std::nullopt) << part.name;
    EXPECT_EQ(work_figures(part.work).roof_share, std::nullopt) << part.name;
    EXPECT_EQ(work_figures(part.work).gain_s, std::nullopt) << part.name;
  }
  const TimedOp& op = set.runs[0].ops.front();
  EXPECT_EQ(op.shown_roof_s(), std::nullopt);
  EXPECT_EQ(work_figures(op, 1.0).roof_share, std::nullopt);
}

TEST(Summaries, Figures) {
  const RecordSet set = load_steps({{}});
  const RunFigures figures = figures_of(set.runs[0]);
  EXPECT_DOUBLE_EQ(*figures.step_s, 1e-3);
  EXPECT_NEAR(*figures.tokens_per_s, 2 * 10 / 1e-3, 1e-6);
  EXPECT_NEAR(*figures.mfu, 4e6 / 1e-3 / 1e10, 1e-12);
  EXPECT_DOUBLE_EQ(*figures.peak_bytes, 200);
  const RunFigures none = figures_of(RunData{});
  EXPECT_FALSE(none.step_s || none.mfu || none.tokens_per_s || none.peak_bytes || none.roof_s);
}

TEST(GrowthFit, FindsTheExponent) {
  const auto square = fit_growth(std::vector<std::pair<double, double>>{{1, 3}, {2, 12}, {4, 48}});
  ASSERT_TRUE(square.has_value());
  EXPECT_NEAR(square->exponent, 2, 1e-12);
  EXPECT_NEAR(square->r2, 1, 1e-12);
  EXPECT_NEAR(square->std_error, 0, 1e-6);
  const auto constant = fit_growth(std::vector<std::pair<double, double>>{{1, 5}, {2, 5}});
  EXPECT_NEAR(constant->exponent, 0, 1e-12);
  EXPECT_EQ(constant->r2, 1);
  const auto rounded = fit_growth(std::vector<std::pair<double, double>>{{3, 0.1 + 0.2}, {5, 0.3}, {7, 0.3}});
  EXPECT_EQ(rounded->exponent, 0) << "what rounding makes is no growth";
  // log y = 0, 1, 0 ln 2 over log x = 0, 1, 2 ln 2: slope 0, and the line explains nothing.
  const auto bent = fit_growth(std::vector<std::pair<double, double>>{{1, 1}, {2, 2}, {4, 1}});
  EXPECT_NEAR(bent->exponent, 0, 1e-12);
  EXPECT_NEAR(bent->r2, 0, 1e-12);
  EXPECT_NEAR(bent->std_error, std::sqrt(2.0 / 3.0 / 2.0), 1e-9);
}

TEST(GrowthFit, RefusesWhatHasNoLogarithmOrNoSlope) {
  EXPECT_FALSE(fit_growth(std::vector<std::pair<double, double>>{{1, 0}, {2, 1}}));
  EXPECT_FALSE(fit_growth(std::vector<std::pair<double, double>>{{2, 1}, {2, 3}}));
  EXPECT_FALSE(fit_growth(std::vector<std::pair<double, double>>{{2, 1}}));
  EXPECT_FALSE(fit_growth(std::vector<std::pair<double, double>>{}));
}

TEST(Memory, PeakHoldersAndPhases) {
  const RecordSet set = load_steps({{}});
  const MemoryCurve curve(set.runs[0]);
  EXPECT_EQ(curve.peak_bytes(), 200);
  EXPECT_EQ(curve.peak_event(), 2U);
  const auto holders = curve.holders(curve.peak_event());
  ASSERT_EQ(holders.size(), 3U);
  EXPECT_EQ(holders[0].tensor->name, "w");
  EXPECT_EQ(holders[1].tensor->name, "scratch");
  EXPECT_EQ(holders[1].allocated_by, 2);
  EXPECT_EQ(curve.holders(4).size(), 1U);
  ASSERT_EQ(curve.phase_peaks().size(), 3U);
  EXPECT_EQ(curve.phase_peaks()[0].phase, "persistent");
  EXPECT_EQ(curve.phase_peaks()[1].live_bytes, 200);
  EXPECT_EQ(curve.phase_peaks()[1].by_role.at("workspace"), 60);
  EXPECT_EQ(curve.phase_peaks()[2].phase, "backward");
}

/// An op that frees its inputs has them and its outputs at once.
TEST(Memory, EachOpIsShownByItsHighestMoment) {
  RecordSet set = load_steps({{}});
  RunData& run = set.runs[0];
  // Op 3 makes tensor 10 before it frees the scratch.
  run.tensors.push_back({.tensor = 10, .name = "out", .role = "gradient", .bytes = 30});
  run.memory_events[3].live_bytes = 170;
  run.memory_events[4].live_bytes = 130;
  run.memory_events.insert(run.memory_events.begin() + 3,
                           {.seq = 3, .op = 3, .tensor = 10, .bytes = 30, .live_bytes = 230});
  const MemoryCurve curve(run);
  ASSERT_EQ(curve.by_op().size(), 5U);
  const MemoryMoment& highest = curve.by_op()[3];
  EXPECT_EQ(highest.op, 3);
  EXPECT_EQ(highest.live_bytes, curve.peak_bytes());
  EXPECT_EQ(highest.live_bytes, 230);
  EXPECT_EQ(highest.by_role.at("workspace"), 60) << "the roles at that moment";
  EXPECT_EQ(highest.by_role.at("gradient"), 30);
}

TEST(Memory, SavedForBackwardIsWhatIsAliveAtOnce) {
  RecordSet set = load_steps({{}});
  RunData& run = set.runs[0];
  SavedTensors saved = saved_tensors(run);
  EXPECT_EQ(saved.bytes, 40);  // not the scratch of forward
  ASSERT_EQ(saved.groups.size(), 1U);
  EXPECT_EQ(saved.groups[0].part, "attention/qkv");
  EXPECT_EQ(saved.groups[0].layers, 1);
  // The next micro-batch's would come after the first one's are gone: 30 bytes more, never at the same time.
  run.ops[20].op.phase = "forward";
  run.tensors.push_back(
      {.tensor = 10, .name = "again", .role = "activation", .bytes = 30, .first_op = 20, .last_op = 22});
  saved = saved_tensors(run);
  EXPECT_EQ(saved.bytes, 40);
  run.tensors.back().bytes = 50;
  saved = saved_tensors(run);
  EXPECT_EQ(saved.bytes, 50);
  EXPECT_EQ(saved.op, 20);
}

}  // namespace
}  // namespace rooflm::report
