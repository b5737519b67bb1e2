// Where the time of recorded steps goes: stalls among launches, collectives hidden or not, ranks that are
// late, and recordings without steps.
#include "report/findings/step_causes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "report/findings/advice.h"
#include "report/findings/glance.h"
#include "report/findings/headline.h"
#include "report/findings/why.h"
#include "report/model/collective_ops.h"
#include "report/model/gaps.h"
#include "report/model/traced_kernels.h"
#include "report/views/views.h"

namespace rooflm::report {
namespace {

constexpr std::int64_t kMicro = 1000;

enum CauseName : std::int64_t { kMatmul, kAllReduce, kLaunchCall, kStepName, kLoader, kTold, kSampled };
enum CauseLane : std::int64_t { kStream, kCommunicationStream, kThread };

/// A recorded program; times in microseconds.
struct Recorded {
  RunData run;

  Recorded() {
    run.run = {.label = "train.py", .kind = "foreign", .status = "success"};
    run.run.config.set("device", "cuda:0");
    run.lanes = {{.lane = kStream, .device = "cuda:0", .stream = 7, .name = "stream 7"},
                 {.lane = kCommunicationStream, .device = "cuda:0", .stream = 9, .name = "stream 9"},
                 {.lane = kThread, .kind = "host", .device = "cpu", .thread = 1, .name = "thread 1"}};
    run.activity_names = {
        {.name = kMatmul, .kind = "kernel", .text = "sm90_xmma_gemm_bf16"},
        {.name = kAllReduce, .kind = "kernel", .text = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"},
        {.name = kLaunchCall, .kind = "api", .text = "cudaLaunchKernel"},
        {.name = kStepName, .kind = "range", .text = "step"},
        {.name = kLoader, .kind = "range", .text = "enumerate(DataLoader)#__next__"},
        {.name = kTold, .kind = "communication", .text = "AllReduce"},
        {.name = kSampled, .kind = "sample", .text = "main (train.py:9);next (loader.py:3)"}};
  }

  record::Activity& add(CauseName name, CauseLane lane, std::int64_t start_us, std::int64_t end_us,
                        std::optional<std::int64_t> step) {
    run.activities.push_back({.id = static_cast<std::int64_t>(run.activities.size()),
                              .name = name,
                              .lane = lane,
                              .start_ns = kMicro * start_us,
                              .end_ns = kMicro * end_us,
                              .step = step});
    return run.activities.back();
  }

  void add_step(std::int64_t step, std::int64_t start_us, std::int64_t end_us) {
    add(kStepName, kThread, start_us, end_us, step);
    run.samples.push_back({.step = step,
                           .phase = "step",
                           .seconds = static_cast<double>(end_us - start_us) * 1e-6,
                           .kind = "traced"});
  }

  /// A kernel that begins when the call returns that starts it.
  void launch(CauseName name, CauseLane lane, std::int64_t start_us, std::int64_t end_us, std::int64_t step,
              std::int64_t call_us) {
    const auto correlation = static_cast<std::int64_t>(run.activities.size());
    add(kLaunchCall, kThread, call_us, std::min(call_us + 5, start_us), std::nullopt).correlation =
        correlation;
    add(name, lane, start_us, end_us, step).correlation = correlation;
  }

  [[nodiscard]] double seconds(const std::string& group, const std::string& name) const {
    for (const StepCause& cause : step_causes(run).causes) {
      if (cause.group == group && cause.name == name) return cause.seconds;
    }
    return 0;
  }
};

void expect_whole(const RunData& run, double step_s) {
  const StepCauses step = step_causes(run);
  double sum_s = 0;
  for (const StepCause& cause : step.causes) sum_s += cause.seconds;
  EXPECT_NEAR(sum_s, step_s, 1e-12);
  EXPECT_NEAR(step.step_s, step_s, 1e-12);
}

/// Twenty kernels of 40 us, each launched 10 us too late; before the eleventh the loader takes 14 ms.
Recorded stalled() {
  Recorded made;
  std::int64_t now_us = 0;
  for (int i = 0; i < 20; ++i) {
    if (i == 10) {
      made.add(kLoader, kThread, now_us + 2, now_us + 14'000, std::nullopt);
      made.run.stack_samples.push_back({.name = kSampled,
                                        .lane = kThread,
                                        .start_ns = kMicro * (now_us + 9),
                                        .end_ns = kMicro * (now_us + 9'000)});
      now_us += 14'000;
    }
    made.launch(kMatmul, kStream, now_us + 10, now_us + 50, 1, now_us + 5);
    now_us += 50;
  }
  made.add_step(1, 0, now_us);
  return made;
}

TEST(StepCauses, AStallIsNoLaunch) {
  const Recorded made = stalled();
  expect_whole(made.run, 15e-3);
  EXPECT_NEAR(made.seconds("compute", "gemm"), 800e-6, 1e-12);
  EXPECT_NEAR(made.seconds("idle", "stall"), 14.005e-3, 1e-9)
      << "until the call that launches the next kernel";
  EXPECT_NEAR(made.seconds("idle", "host"), 195e-6, 1e-9);
  const std::vector<Advice> advice = advise(made.run);
  ASSERT_GE(advice.size(), 2U);
  EXPECT_EQ(advice[0].subject, "device idle: stall");
  EXPECT_NE(advice[0].text.find("the host in next (loader.py:3)"), std::string::npos) << advice[0].text;
  const auto host = std::ranges::find(advice, "device idle: host", &Advice::subject);
  ASSERT_NE(host, advice.end());
  EXPECT_NE(host->text.find("20 of 20 kernels per step are launched 10.0 us too late"), std::string::npos)
      << host->text;
  EXPECT_NEAR(host->gain_s, 195e-6, 1e-9);
}

/// A kernel whose launch was not recorded may have waited for anybody.
TEST(StepCauses, WithoutItsLaunchNobodyKnowsWhatAKernelWaitedFor) {
  Recorded made = stalled();
  std::erase_if(made.run.activities, [](const record::Activity& one) { return one.name == kLaunchCall; });
  expect_whole(made.run, 15e-3);
  EXPECT_NEAR(made.seconds("idle", "unknown"), 14.2e-3, 1e-9);
  EXPECT_EQ(made.seconds("idle", "dependency"), 0);
  const std::vector<Advice> advice = advise(made.run);
  ASSERT_FALSE(advice.empty());
  EXPECT_EQ(advice[0].subject, "device idle: unknown cause");
  const GlanceList idle = glance_of(made.run, why_of(made.run)).idle;
  EXPECT_EQ(format_parts(idle, 1), "idle: unknown 94.7%, others 5.3%");
  EXPECT_EQ(format_parts(idle, 2), "computation 5.3%, idle: unknown 94.7%");
}

/// Another process has the device for 2.5 ms before each of ten kernels, all of which are launched at once.
TEST(StepCauses, QueuedKernelsWaitForOthersThatHaveTheDevice) {
  Recorded made;
  for (int i = 0; i < 10; ++i) made.launch(kMatmul, kStream, 100 + 2540 * i, 140 + 2540 * i, 1, 5 + i);
  made.add_step(1, 0, 100 + 2540 * 9 + 40);
  expect_whole(made.run, 23e-3);
  EXPECT_NEAR(made.seconds("idle", "queued"), 22.5e-3, 1e-9);
  EXPECT_LT(made.seconds("idle", "dependency"), 1e-4);
  const std::vector<Advice> advice = advise(made.run);
  ASSERT_FALSE(advice.empty());
  EXPECT_EQ(advice[0].subject, "device idle: queued");
  EXPECT_NEAR(advice[0].gain_s, 22.5e-3, 1e-9);
}

/// As stalled(), with another stack meanwhile.
Recorded stalled_in(const std::string& stack, const std::string& extra = "") {
  Recorded made = stalled();
  made.run.activity_names.at(kSampled).text = stack;
  made.run.stack_samples.at(0).extra = extra;
  return made;
}

/// What the recorder does between steps is no work of the program; its wrappers call the program.
TEST(StepCauses, TheRecorderIsNoStall) {
  for (const char* own : {"step (train.py:9);Allocator._hand_over (rooflm_allocator.py:98)",
                          "Allocator.end_step (rooflm_allocator.py:60);_snapshot (memory.py:9)",
                          "step (train.py:9);Shapes.finish (rooflm_shapes.py:270)",
                          "step (train.py:9);rooflm_end_step (librooflm_inject.so)"}) {
    const Recorded made = stalled_in(own);
    expect_whole(made.run, 15e-3);
    EXPECT_NEAR(made.seconds("idle", "tracing"), 14.005e-3, 1e-9) << own;
    EXPECT_EQ(made.seconds("idle", "stall"), 0) << own;
    EXPECT_EQ(gaps_of(made.run, 1).at(0).cause(), IdleCause::tracing) << own;
    EXPECT_TRUE(std::ranges::none_of(advise(made.run),
                                     [](const Advice& one) { return one.subject == "device idle: stall"; }));
  }
  EXPECT_NEAR(stalled_in("marked (rooflm_torch.py:230);next (loader.py:3)").seconds("idle", "stall"),
              14.005e-3, 1e-9);
  // A thread that waits is not at work.
  const Recorded waits = stalled_in("Allocator._hand_over (rooflm_allocator.py:98)", R"({"waiting":1})");
  EXPECT_EQ(waits.seconds("idle", "tracing"), 0);
}

/// The step waits for the device that is idle least.
TEST(StepCauses, AreThoseOfOneDevice) {
  for (const bool is_second : {false, true}) {
    Recorded made;
    made.run.lanes[kCommunicationStream].device = "cuda:1";
    const CauseLane busy = is_second ? kCommunicationStream : kStream;
    const CauseLane other = is_second ? kStream : kCommunicationStream;
    made.launch(kMatmul, busy, 0, 900, 1, 0);
    made.launch(kMatmul, other, 0, 100, 1, 0);
    made.add_step(1, 0, 1'000);
    expect_whole(made.run, 1e-3);
    EXPECT_NEAR(step_causes(made.run).of("compute"), 900e-6, 1e-12);
    const std::string device = is_second ? "cuda:1" : "cuda:0";
    EXPECT_EQ(step_causes(made.run).of_which(), " of " + device + ", which of 2 devices is idle least");
  }
  Recorded one;
  one.launch(kMatmul, kStream, 0, 900, 1, 0);
  one.add_step(1, 0, 1'000);
  EXPECT_EQ(step_causes(one.run).of_which(), "");
}

TEST(Gaps, TheLongestSaysWhatTheHostDid) {
  const Recorded made = stalled();
  const std::vector<Gap> gaps = gaps_of(made.run, 2);
  ASSERT_EQ(gaps.size(), 2U);
  EXPECT_EQ(gaps[0].cause(), IdleCause::stall);
  EXPECT_EQ(gaps[0].host, "enumerate(DataLoader)#__next__");
  EXPECT_EQ(gaps[0].line, "next (loader.py:3)");
  EXPECT_EQ(gaps[1].cause(), IdleCause::host);
  // A call of a few microseconds is not what the host did for 14 ms.
  Recorded unknown = stalled();
  std::erase_if(unknown.run.activities, [](const record::Activity& one) { return one.name == kLoader; });
  EXPECT_EQ(gaps_of(unknown.run, 1).at(0).host, "");
  EXPECT_EQ(gaps_of(unknown.run, 1).at(0).line, "next (loader.py:3)");
  RecordSet set;
  set.files.push_back({.name = "a"});
  set.runs.push_back(made.run);
  const View view = make_view("gaps", set);
  ASSERT_EQ(view.tables.size(), 1U);
  const Row& row = view.tables[0].table.rows.at(0);
  EXPECT_EQ(row.number("step"), 1);
  EXPECT_NEAR(row.number("at_s"), 500e-6, 1e-12);
  EXPECT_NEAR(row.number("seconds"), 14.010e-3, 1e-12);
  EXPECT_EQ(row.text("device"), "cuda:0");
  EXPECT_EQ(row.text("next"), "sm90_xmma_gemm_bf16");
  EXPECT_EQ(row.text("cause"), "stall");
}

/// The host is done with the step and does something else before it begins the next.
TEST(StepCauses, AStallMayComeAfterTheLastKernel) {
  Recorded made;
  made.launch(kMatmul, kStream, 10, 50, 1, 5);
  made.add_step(1, 0, 5'000);
  expect_whole(made.run, 5e-3);
  EXPECT_NEAR(made.seconds("idle", "stall"), 4.95e-3, 1e-12);
  EXPECT_EQ(made.seconds("idle", "sync"), 0);
}

/// Each device has gaps of its own, also while another one is busy.
TEST(Gaps, AreThoseOfOneDevice) {
  Recorded made;
  made.run.lanes[kCommunicationStream].device = "cuda:1";
  made.launch(kMatmul, kStream, 0, 1'000, 1, 0);
  made.launch(kMatmul, kCommunicationStream, 0, 100, 1, 0);
  made.launch(kMatmul, kCommunicationStream, 900, 1'000, 1, 880);
  made.add_step(1, 0, 1'000);
  const std::vector<Gap> gaps = gaps_of(made.run, 5);
  ASSERT_EQ(gaps.size(), 1U);
  EXPECT_EQ(gaps[0].device, "cuda:1");
  EXPECT_NEAR(gaps[0].seconds(), 800e-6, 1e-12);
}

TEST(StepCauses, HiddenCollectivesCostNothing) {
  Recorded made;
  made.launch(kMatmul, kStream, 10, 910, 1, 5);
  made.launch(kAllReduce, kCommunicationStream, 100, 800, 1, 15);
  made.add_step(1, 0, 910);
  expect_whole(made.run, 910e-6);
  EXPECT_NEAR(made.seconds("compute", "gemm"), 900e-6, 1e-12);
  EXPECT_EQ(step_causes(made.run).of("collectives"), 0);
  for (const Advice& advice : advise(made.run))
    EXPECT_EQ(advice.subject.find("collectives"), std::string::npos);
}

/// Three steps: a matmul of 100 us, and an all-reduce of 50 us that waits for other ranks for 0, 300 and 600
/// us more; the module that started it has 20 us beside it.
Recorded waiting() {
  Recorded made;
  TimedOp op;
  op.op = {
      .op = 0, .kind = "Linear", .op_class = "matmul", .phase = "forward", .scope = "h.3/mlp", .launches = 2};
  op.block = op.part = "mlp";
  op.roof_s = 50e-6;
  op.bound = "matmul bf16";
  made.run.ops.push_back(op);
  for (const std::int64_t step : {0, 1, 2}) {
    const std::int64_t from = 10'000 * step;
    const std::int64_t done = from + 130 + 300 * step;
    made.launch(kMatmul, kStream, from, from + 100, step, from);
    made.run.activities.back().op = 0;
    made.launch(kAllReduce, kCommunicationStream, from + 80, done, step, from + 1);
    made.run.activities.back().op = 0;
    made.add_step(step, from, done);
    made.run.events.push_back({.step = step, .op = 0, .device_ns = kMicro * (100 + 50 + 300 * step)});
  }
  take_collectives(made.run);
  return made;
}

TEST(StepCauses, CollectivesAreNoModulesTime) {
  const Recorded made = waiting();
  ASSERT_EQ(made.run.ops.size(), 2U);
  EXPECT_NEAR(made.run.ops[0].time->device_s, 100e-6, 1e-12);
  EXPECT_EQ(made.run.ops[0].op.launches, 1);
  EXPECT_EQ(made.run.ops[1].op.scope, "h.3/collectives");
  EXPECT_TRUE(is_communication(made.run.ops[1]));
  EXPECT_NEAR(made.run.ops[1].time->device_s, 350e-6, 1e-12) << "the median step";
  expect_whole(made.run, 430e-6);
  EXPECT_NEAR(made.seconds("compute", "gemm"), 100e-6, 1e-12);
  // What is exposed: 30, 330 and 630 us. The shortest waited for nobody.
  EXPECT_EQ(step_causes(made.run).waits, WaitSource::estimated);
  EXPECT_NEAR(made.seconds("collectives", "transfer"), (30 + 50 + 50) / 3.0 * 1e-6, 1e-12);
  EXPECT_NEAR(made.seconds("collectives", "waiting"), (280 + 580) / 3.0 * 1e-6, 1e-12);
  double why_s = 0;
  for (const Why& part : why_of(made.run)) {
    why_s += part.time_s;
    EXPECT_EQ(part.bound() == Cause::communication, part.name == kCollectives);
  }
  EXPECT_NEAR(why_s, 430e-6, 1e-12);
}

TEST(StepCauses, AdviceKnowsCollectives) {
  const Recorded made = waiting();
  const std::vector<Advice> advice = advise(made.run);
  ASSERT_GE(advice.size(), 3U);
  EXPECT_EQ(advice[0].subject, "collectives: waiting");
  EXPECT_NE(advice[0].text.find("estimated"), std::string::npos) << advice[0].text;
  double gains_s = 0;
  for (const Advice& one : advice) {
    gains_s += one.gain_s;
    EXPECT_LE(one.gain_s, one.time_s * (1 + 1e-9)) << one.subject;
    EXPECT_EQ(one.text.find("torch.compile"), std::string::npos) << one.text;
  }
  EXPECT_NEAR(gains_s, (50 + 330) * 1e-6, 1e-12)
      << "what the matmul takes above its roof, and what is exposed";
  EXPECT_NE(findings_of(made.run, advice).headline.find("is bound by communication"), std::string::npos)
      << findings_of(made.run, advice).headline;
}

/// The clocks of both ranks say who waited for whom.
TEST(StepCauses, OfTwoRanksOneIsLate) {
  RecordSet set;
  for (const std::int64_t rank : {0, 1}) {
    Recorded made;
    made.run.file = static_cast<std::size_t>(rank);
    made.launch(kAllReduce, kCommunicationStream, 400 * rank, 500, 0, 0);
    const record::Activity kernel = made.run.activities.back();
    record::Activity& told = made.add(kTold, kCommunicationStream, 400 * rank, 500, 0);
    told.correlation = kernel.correlation;
    told.bytes = 1000;
    told.extra = R"({"communicator":"c","sequence":7,"ranks":2,"rank":)" + std::to_string(rank) + "}";
    made.add_step(0, 0, 500);
    made.run.facts.push_back({.key = "clock", .text = "boot 0"});
    set.files.push_back({.name = std::to_string(rank)});
    set.runs.push_back(made.run);
  }
  EXPECT_EQ(step_causes(set.runs[0]).waits, WaitSource::unknown) << "one call alone says nothing";
  take_rank_waits(set);
  const ExposedCollectives first = exposed_collectives(set.runs[0], traced_kernels(set.runs[0]).times());
  EXPECT_EQ(first.source, WaitSource::ranks);
  EXPECT_NEAR(first.waiting_s, 400e-6, 1e-9);
  EXPECT_NEAR(first.transfer_s, 100e-6, 1e-9);
  const ExposedCollectives second = exposed_collectives(set.runs[1], traced_kernels(set.runs[1]).times());
  EXPECT_NEAR(second.waiting_s, 0, 1e-9);
  EXPECT_NEAR(second.transfer_s, 100e-6, 1e-9);
  EXPECT_EQ(advise(set, set.runs[0]).at(0).text.find("estimated"), std::string::npos);
}

TEST(StepCauses, WithoutStepsTheWholeRecordingIsTakenApart) {
  Recorded made = stalled();
  for (record::Activity& activity : made.run.activities) activity.step.reset();
  std::erase_if(made.run.activities, [](const record::Activity& one) { return one.name == kStepName; });
  made.run.samples.clear();
  expect_whole(made.run, 14.990e-3);
  RecordSet set;
  set.files.push_back({.name = "a"});
  set.runs.push_back(made.run);
  EXPECT_NE(findings_of(set.runs[0], advise(set.runs[0])).headline.find("kernels run for 5.3% of it"),
            std::string::npos)
      << findings_of(set.runs[0], advise(set.runs[0])).headline;
  EXPECT_EQ(advise(set).at(0).subject, "device idle: stall");
  for (const char* name : {"kernels", "device", "gaps", "why", "advice"})
    EXPECT_FALSE(make_view(name, set).tables.empty()) << name;
  EXPECT_EQ(gaps_of(made.run, 1).at(0).step, kWholeRecording);
}

}  // namespace
}  // namespace rooflm::report
