// The simulated step that pictures show: its ops, its idle stretches, passes of stages, memory over its ops.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "perfmodel/device_fit.h"
#include "perfmodel/role.h"
#include "program/groups.h"

namespace rooflm {
namespace {

using perfmodel::IdleCause;
using perfmodel::PlanPoint;
using perfmodel::Setting;

struct TimedCase {
  PlanPoint point;
  Setting setting;
};

/// gpt2 in bf16 on H100s.
TimedCase gpt2_case(const compile::Sharding& sharding, const char* framework = "rooflm-fused") {
  TimedCase made;
  made.setting.device = devices::find_device("h100-sxm");
  made.setting.framework = perfmodel::find_framework(framework);
  made.setting.cluster = perfmodel::cluster_of(made.setting.device);
  made.setting.memory_limit_bytes = made.setting.device.usable_bytes();
  made.point.config = model::preset("gpt2");
  made.point.step.dtype = core::DType::bf16;
  made.point.step.sharding = sharding;
  made.point.micro_batch = 4;
  made.point.seq = 512;
  perfmodel::fit_to_device(made.point.step, made.setting.device);
  perfmodel::fit_to_framework(made.point.step, made.setting.framework);
  return made;
}

perfmodel::TimedRole timed(const TimedCase& of, int micro_batches = 1, std::size_t most_ops = 100'000) {
  perfmodel::Forwards forwards;
  return time_role(of.point, of.setting, op_times_of(of.setting), forwards, 0, micro_batches, most_ops);
}

TEST(TimedRole, IsThePlansStepAndItsIdleStretchesAreItsTerms) {
  for (const char* framework : {"rooflm-fused", "torch-eager"}) {
    const TimedCase ddp = gpt2_case({.data = 16, .zero = 1}, framework);
    const perfmodel::Plan plan = make_plan(ddp.point, ddp.setting);
    const perfmodel::TimedRole role = timed(ddp);
    EXPECT_EQ(role.layers, 12);
    // The plan draws layers out, the picture has all of them.
    EXPECT_NEAR(role.timeline.step_s / plan.step_s, 1, 0.02) << framework;
    std::map<IdleCause, double> idle_s;
    double end_s = 0;
    for (const perfmodel::IdleSpan& idle : role.timeline.idle) {
      EXPECT_GE(idle.start_s, end_s - 1e-12);
      end_s = idle.end_s;
      idle_s[idle.cause] += idle.end_s - idle.start_s;
    }
    EXPECT_NEAR(idle_s[IdleCause::exposed_communication], role.timeline.exposed_s, 1e-9);
    EXPECT_NEAR(idle_s[IdleCause::host], role.timeline.host_s, 1e-9);
    EXPECT_NEAR(idle_s[IdleCause::waiting], role.timeline.waiting_s, 1e-9);
    EXPECT_LE(end_s, role.timeline.step_s + 1e-12);
  }
}

TEST(TimedRole, OfManyLayersAsManyAreBuiltAsItsOpsAllow) {
  const TimedCase one = gpt2_case({});
  const std::size_t whole = timed(one).program.ops.size();
  const perfmodel::TimedRole less = timed(one, 1, whole / 2);
  EXPECT_LT(less.layers, 12);
  EXPECT_GE(less.layers, 4);
  EXPECT_LE(less.program.ops.size(), whole * 6 / 10);
  EXPECT_EQ(timed(one, 1, 1).layers, 4) << "no fewer than show what layers are like";
}

TEST(TimedRole, CollectivesAreOnTheLinksThatTheirRanksNeed) {
  const TimedCase both = gpt2_case({.data = 2, .zero = 1, .tensor = 4, .sequence_parallel = true});
  std::map<std::string, int> links;
  const auto role = timed(both);
  for (const program::Op& op : role.program.ops)
    if (program::is_collective(op)) ++links[link_of(op, both.point, both.setting.cluster).name];
  ASSERT_EQ(links.size(), 1U) << "eight ranks are one node";
  TimedCase far = both;
  far.setting.cluster.per_node = 4;
  links.clear();
  for (const program::Op& op : role.program.ops)
    if (program::is_collective(op)) ++links[link_of(op, far.point, far.setting.cluster).name];
  EXPECT_EQ(links.size(), 2U);
  EXPECT_EQ(links.count(far.setting.cluster.between.name), 1U);
}

TEST(TimedRole, PassesOfStagesFillTheStepAroundTheirBubbles) {
  const std::vector<perfmodel::StageTimes> stages(3, {.forward_s = 1, .backward_s = 2, .tail_s = 0.5});
  std::vector<perfmodel::StageSpan> spans;
  const auto times = pipeline_times(stages, 4, compile::PipelineSchedule::one_f_one_b, 1, &spans);
  ASSERT_EQ(spans.size(), 3U * 4 * 2);
  std::map<int, double> busy_s, end_s;
  std::ranges::stable_sort(spans, {}, &perfmodel::StageSpan::start_s);
  for (const perfmodel::StageSpan& span : spans) {
    EXPECT_GE(span.start_s, end_s[span.stage]) << "one pass at a time";
    end_s[span.stage] = span.end_s;
    busy_s[span.stage] += span.end_s - span.start_s;
  }
  EXPECT_DOUBLE_EQ(end_s[times.last_stage] + 0.5, times.step_s);
  EXPECT_DOUBLE_EQ(end_s[times.last_stage] - busy_s[times.last_stage], times.bubble_s);
}

TEST(TimedRole, MemoryEndsWhereItBeganAndPeaksWhereThePlanDoes) {
  const TimedCase one = gpt2_case({});
  const perfmodel::TimedRole role = timed(one);
  const auto course = perfmodel::memory_course(role.program, one.point.step.engine);
  const auto memory = perfmodel::rank_memory(role.program, one.point.step.engine, false);
  ASSERT_EQ(course.alive_bytes.size(), role.program.ops.size());
  const std::int64_t peak = course.alive_bytes[course.peak_op];
  EXPECT_EQ(peak, *std::ranges::max_element(course.alive_bytes));
  EXPECT_GT(peak, course.persistent_bytes);
  EXPECT_NEAR(static_cast<double>(peak) / (memory.total() - memory.gap_bytes), 1, 1e-6);
}

}  // namespace
}  // namespace rooflm
