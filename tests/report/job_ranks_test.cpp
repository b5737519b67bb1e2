// Several ranks on one timeline: their steps, lanes and clocks, and communication that nothing hides.
#include "report/runs/job_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "report/export/export.h"
#include "tests/report/timeline_runs.h"

namespace rooflm::report {
namespace {

/// A matmul of 100 ns, an all_reduce that ends 300 ns after the step began, an update beside its second half.
RunData rank_run(std::int64_t begin_ns, std::int64_t reduce_after_ns, int steps = 2) {
  RunData run;
  run.run.config.set("device", "cpu");
  run.facts.push_back({.key = "groups", .value = {}, .unit = {}, .text = R"({"data":[0,1]})"});
  const auto add = [&](std::int64_t op, const char* kind, const char* op_class, const char* lane) {
    TimedOp timed;
    timed.op = {
        .op = op, .kind = kind, .op_class = op_class, .kernel = kind, .phase = "backward", .scope = "h.0"};
    timed.op.lane = lane;
    run.ops.push_back(timed);
  };
  add(0, "matmul", "matmul", "compute");
  add(1, "all_reduce", "collective", "communication");
  add(2, "adamw", "optimizer", "compute");
  run.ops[1].op.variant = "data";
  for (std::int64_t step = 0; step < steps; ++step) {
    const std::int64_t at = begin_ns + 1000 * step;
    run.events.push_back({.step = step, .op = 0, .start_ns = at, .device_ns = 100});
    run.events.push_back(
        {.step = step, .op = 1, .start_ns = at + reduce_after_ns, .device_ns = 300 - reduce_after_ns});
    run.events.push_back({.step = step, .op = 2, .start_ns = at + 250, .device_ns = 100});
    run.samples.push_back({step, "step", 1e-3, "observed"});
  }
  return run;
}

/// The second rank begins its reduction 60 ns later; its record has the second step only.
RecordSet two_ranks() {
  RecordSet set;
  set.files.push_back({.name = "two.rooflm"});
  set.runs.push_back(rank_run(5000, 100));
  RunData second = rank_run(5000, 160);
  std::erase_if(second.events, [](const record::Event& event) { return event.step == 0; });
  second.facts.push_back({.key = "rank", .value = 1, .unit = {}, .text = {}});
  set.runs[0].other_ranks.push_back(std::move(second));
  return set;
}

using Bar = std::tuple<int, std::string, std::int64_t, std::int64_t>;

/// Rank, name, start and end of what is on lanes of that kind.
std::vector<Bar> bars_on(const Timeline& timeline, const std::string& kind) {
  std::vector<Bar> bars;
  for (const TimelineEvent& event : timeline.events) {
    const TimelineLane& lane = timeline.lanes.at(event.lane);
    if (lane.kind == kind)
      bars.emplace_back(lane.rank.value_or(-1), timeline.names.at(event.name).text, event.start_ns,
                        event.end_ns);
  }
  std::ranges::sort(bars);
  return bars;
}

/// A record whose own run has other steps than the others, as of GPUs, has a run of the first rank, too.
TEST(JobRanks, TheFirstRankMayHaveARunAsTheOthers) {
  RecordSet set = two_ranks();
  const Timeline expected = JobRanks(set).timeline(0, kAnyEvents);
  RunData first = rank_run(5000, 100);
  first.facts.push_back({.key = "rank", .value = 0, .unit = {}, .text = {}});
  set.runs[0].other_ranks.insert(set.runs[0].other_ranks.begin(), std::move(first));
  for (record::Event& event : set.runs[0].events) event.start_ns += 1'000'000;
  const JobRanks ranks(set);
  ASSERT_EQ(ranks.ranks(0).size(), 2U);
  for (const char* kind : {"device", "exposed"})
    EXPECT_EQ(bars_on(ranks.timeline(0, kAnyEvents), kind), bars_on(expected, kind));
}

TEST(JobRanks, RanksOfASplitStepAreOnOneTimeline) {
  const RecordSet set = two_ranks();
  const Timeline timeline = JobRanks(set).timeline(0, kAnyEvents);
  ASSERT_EQ(timeline.steps.size(), 1U) << "the step that both have";
  EXPECT_EQ(timeline.steps[0].step, 1);
  EXPECT_EQ(timeline.origin_ns, 6000);
  EXPECT_EQ(bars_on(timeline, "device"), (std::vector<Bar>{{0, "adamw", 250, 350},
                                                           {0, "all_reduce", 100, 300},
                                                           {0, "matmul", 0, 100},
                                                           {1, "adamw", 250, 350},
                                                           {1, "all_reduce", 160, 300},
                                                           {1, "matmul", 0, 100}}));
  EXPECT_EQ(bars_on(timeline, "exposed"), (std::vector<Bar>{{0, "exposed transfer", 160, 250},
                                                            {0, "waiting for other ranks", 100, 160},
                                                            {1, "exposed transfer", 160, 250}}))
      << "what the update hides is not exposed";
  for (std::size_t i = 1; i < timeline.lanes.size(); ++i)
    EXPECT_LE(timeline.lanes[i - 1].rank, timeline.lanes[i].rank) << "lanes of a rank stand together";
  EXPECT_TRUE(std::ranges::is_sorted(timeline.events, {}, &TimelineEvent::start_ns));
  ASSERT_FALSE(timeline.notes.empty());
  EXPECT_EQ(timeline.notes.back(),
            "Exposed communication in step 1, transfer and waiting for other ranks: rank 0 90.0 ns and "
            "60.0 ns; rank 1 90.0 ns and 0 s.");
}

TEST(JobRanks, OpsOfAnotherProgramAreNotThoseOfTheFirst) {
  RecordSet set = two_ranks();
  set.runs[0].other_ranks[0].ops[0].op.scope = "h.1";
  const Timeline timeline = JobRanks(set).timeline(0, kAnyEvents);
  for (const TimelineEvent& event : timeline.events) {
    const TimelineLane& lane = timeline.lanes.at(event.lane);
    if (lane.kind == "device") {
      EXPECT_EQ(event.op.has_value(), lane.rank == 0);
    }
  }
}

TEST(JobRanks, ClocksAreBroughtTogether) {
  const RunData first = rank_run(5000, 100, 1);
  const RunData second = rank_run(1'000'000, 160, 1);
  const std::vector<RankRun> ranks{{.run = &first}, {.run = &second, .rank = 1, .offset_ns = -995'000}};
  const std::vector<RankWait> waits = waits_of_ops(ranks);
  ASSERT_EQ(waits.size(), 1U);
  EXPECT_EQ(waits[0].rank, 0);
  EXPECT_EQ(waits[0].end_ns - waits[0].start_ns, 60);
  const Timeline timeline = timeline_of_ranks(ranks, waits, kAnyEvents);
  EXPECT_EQ(bars_on(timeline, "device").size(), 6U);
  EXPECT_EQ(timeline.steps.at(0).end_ns, 350);
}

TEST(JobRanks, OfOtherMomentsTheFirstIsAlone) {
  const RunData first = rank_run(5000, 100);
  const RunData second = rank_run(5'000'000, 160);
  const Timeline timeline = timeline_of_ranks({{.run = &first}, {.run = &second, .rank = 1}}, {}, kAnyEvents);
  EXPECT_EQ(timeline.steps.size(), 2U);
  EXPECT_TRUE(bars_on(timeline, "exposed").empty());
  EXPECT_NE(timeline.notes.back().find("not shown"), std::string::npos);
}

TEST(JobRanks, WhatCannotBeIsLeftOut) {
  RecordSet set = two_ranks();
  RunData& other = set.runs[0].other_ranks[0];
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  other.events.push_back({.step = 1, .op = 1, .start_ns = kMost, .device_ns = kMost});
  other.events.push_back({.step = 1, .op = 1, .start_ns = -kMost, .device_ns = kMost});
  other.facts.back().value = 1e300;  // the rank
  set.runs[0].facts.front().text = "{";
  const Timeline timeline = JobRanks(set).timeline(0, kAnyEvents);
  EXPECT_EQ(bars_on(timeline, "device").size(), 6U);
  EXPECT_EQ(bars_on(timeline, "exposed").size(), 2U) << "nobody knows who waited";
}

TEST(JobRanks, StepsAreThoseThatShareMostTime) {
  const RunData first = rank_run(5000, 100, 4);
  RunData second = rank_run(5900, 160, 3);  // begins with the second step of the first, 100 ns early
  for (record::Event& event : second.events) event.step += 40;
  const Timeline timeline = timeline_of_ranks({{.run = &first}, {.run = &second, .rank = 1}}, {}, kAnyEvents);
  std::vector<std::int64_t> steps;
  for (const TimelineStep& step : timeline.steps) steps.push_back(step.step);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(timeline.steps[0].end_ns - timeline.steps[0].start_ns, 450)
      << "from the first to the last of both";
}

TEST(JobRanks, RunsThatKnowNoOthersAreAlone) {
  RecordSet set;
  set.files.resize(2);
  set.runs = {rank_run(5000, 100), rank_run(5000, 160)};
  const JobRanks jobs(set);
  EXPECT_TRUE(jobs.ranks(0).empty());
  EXPECT_FALSE(jobs.timeline(1, kAnyEvents).lanes.at(0).rank.has_value());
}

TEST(JobRanks, NotesOfAnExportNameTheirRank) {
  // Each of `count` kernels overlaps the first one of their stream.
  const auto overlapping = [](std::int64_t count) {
    RunData run;
    run.lanes.push_back({.lane = 1, .kind = "device", .device = "cuda:0", .stream = 7});
    run.activity_names.push_back({.name = 1, .kind = "kernel", .text = "k"});
    run.activities.push_back({.id = 0, .name = 1, .lane = 1, .start_ns = 1000, .end_ns = 1100});
    for (std::int64_t i = 0; i < count; ++i) {
      run.activities.push_back(
          {.id = 1 + i, .name = 1, .lane = 1, .start_ns = 1010 + 10 * i, .end_ns = 1200 + 10 * i});
    }
    return run;
  };
  const RunData first = overlapping(1);
  const RunData second = overlapping(2);
  const RecordFile file;
  const std::vector<RankRun> ranks = {{.run = &first, .rank = 0}, {.run = &second, .rank = 1}};
  const auto notes = [&](const RunData& run, std::span<const RankRun> of) {
    return write_kineto({.file = file, .run = run, .ranks = of}, [](std::string_view) {});
  };
  const char* rest = " events overlap others of their stream or thread and are on tracks of their own";
  EXPECT_EQ(notes(first, ranks),
            (std::vector<std::string>{std::string("rank 0: 1") + rest, std::string("rank 1: 2") + rest}));
  EXPECT_EQ(notes(second, {}), std::vector<std::string>{std::string("2") + rest});
}

}  // namespace
}  // namespace rooflm::report
