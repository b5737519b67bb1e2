// A record whose numbers fit passes; each number that is changed is noticed by the law that it breaks.
#include "report/verify/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "record/reader.h"
#include "record/writer.h"
#include "tests/record/record_testing.h"
#include "tests/report/made_up_run.h"

namespace rooflm::report {
namespace {

using Change = std::function<void(MadeUpRun&)>;

std::vector<LawResult> verify_made_up(const Change& change, const std::vector<record::Ceiling>& ceilings = {},
                                      bool finish = true) {
  const record::TemporaryFolder folder;
  MadeUpRun made = made_up_run();
  change(made);
  record::Writer writer(folder / "a.rooflm", "made up");
  for (const auto& ceiling : ceilings) writer.add(ceiling);
  made.write(writer);
  writer.commit();
  if (finish) writer.finish();
  return verify(record::Reader(folder / "a.rooflm"));
}

/// The laws that are violated after `change`.
std::vector<std::string> broken_by(const Change& change) {
  std::vector<std::string> laws;
  for (const LawResult& result : verify_made_up(change)) {
    if (result.violated > 0) laws.push_back(result.law);
  }
  return laws;
}

void expect_broken(const Change& change, const std::vector<std::string>& laws) {
  auto broken = broken_by(change);
  auto wanted = laws;
  std::ranges::sort(broken);
  std::ranges::sort(wanted);
  EXPECT_EQ(broken, wanted);
}

const LawResult& result_of(const std::vector<LawResult>& results, std::string_view law) {
  const auto found = std::ranges::find(results, law, &LawResult::law);
  if (found == results.end()) throw std::runtime_error("no such law");
  return *found;
}

TEST(Verify, ARecordWhoseNumbersFitPassesEveryLaw) {
  const auto results = verify_made_up([](MadeUpRun&) {}, {{.what = "read", .level = "L2", .value = 1e10}});
  EXPECT_TRUE(all_hold(results));
  EXPECT_GE(results.size(), 20U);
  for (const LawResult& result : results) EXPECT_GT(result.checked, 0U) << result.law;
  EXPECT_EQ(result_of(results, "samples are positive").checked, 160U);
  EXPECT_EQ(result_of(results, "phases add up to the step").label, "tiny made up");
}

TEST(Verify, NothingPassesTheInstructionPeak) {
  const auto broken = [](double products, double peak) {
    std::vector<std::string> laws;
    for (const LawResult& result : verify_made_up(
             [](MadeUpRun&) {}, {{.what = "matmul", .dtype = "fp32", .value = products, .unit = "flop/s"},
                                 {.what = "instruction", .dtype = "fp32", .value = peak, .unit = "flop/s"},
                                 {.what = "instruction", .dtype = "bf16", .value = 1, .unit = "flop/s"}})) {
      if (result.violated > 0) laws.push_back(result.law);
    }
    return laws;
  };
  EXPECT_TRUE(broken(1e12, 1e12).empty());
  EXPECT_TRUE(broken(1.04e12, 1e12).empty());  // clocks
  EXPECT_EQ(broken(1.06e12, 1e12), std::vector<std::string>{"matmuls do not exceed the instruction peak"});
  // Its first op computes 1000 flop.
  EXPECT_EQ(broken(1e5, 1e5), std::vector<std::string>{"no op computes faster than the instruction peak"});
}

TEST(Verify, NothingToCheckIsNoViolation) {
  const record::TemporaryFolder folder;
  record::Writer(folder / "a.rooflm", "empty").finish();
  const auto results = verify(record::Reader(folder / "a.rooflm"));
  EXPECT_TRUE(results.empty());
  EXPECT_TRUE(all_hold(results));
}

TEST(Verify, CellsOfAStudyMustFit) {
  const auto laws_of = [](double rate, double wall_ms) {
    const record::TemporaryFolder folder;
    record::Writer writer(folder / "a.rooflm", "study gemm");
    writer.add(std::vector<record::Cell>{{"gemm", 0, "n", 0, "", ""},  // a setting may be nought
                                         {"gemm", 0, "wall_ms", wall_ms, "", "ms"},
                                         {"gemm", 0, "rate", rate, "", "flop/s"},
                                         {"gemm", 0, "flop", 2e6, "", "flop"}});
    writer.finish();
    return verify(record::Reader(folder / "a.rooflm"));
  };
  EXPECT_TRUE(all_hold(laws_of(1e9, 2.0)));
  EXPECT_EQ(result_of(laws_of(1e9, 2.0), "cells with a unit are positive").checked, 3U);
  EXPECT_EQ(result_of(laws_of(1e9, 2.1), "rate times time is the work").violated, 1U);
  EXPECT_EQ(result_of(laws_of(1e9, 0), "cells with a unit are positive").violated, 1U);
}

TEST(Verify, CollectivesMustBeRightAndFit) {
  const auto laws_of = [](double algbw, double wrong) {
    const record::TemporaryFolder folder;
    record::Writer writer(folder / "a.rooflm", "comm");
    writer.add(std::vector<record::Cell>{{"comm", 0, "size", 1e6, "", "B"},
                                         {"comm", 0, "time_us", 100, "", "us"},
                                         {"comm", 0, "algbw", algbw, "", "byte/s"},
                                         {"comm", 0, "wrong", wrong, "", ""}});
    writer.finish();
    return verify(record::Reader(folder / "a.rooflm"));
  };
  EXPECT_TRUE(all_hold(laws_of(1e10, 0)));
  EXPECT_EQ(result_of(laws_of(2e10, 0), "rate times time is the work").violated, 1U);
  EXPECT_EQ(result_of(laws_of(1e10, 3), "results of collectives are correct").violated, 1U);
}

TEST(Verify, ATrainingRunFitsItsLog) {
  const auto laws_of = [](int rows, double loss) {
    const record::TemporaryFolder folder;
    record::Writer writer(folder / "a.rooflm", "train");
    const std::int64_t run = writer.begin_run({.label = "tiny", .kind = "train"});
    for (int step = 1; step <= 3; ++step) {
      writer.add(run, std::vector<record::Sample>{{.step = step, .phase = "step", .seconds = 0.1}});
    }
    for (int step = 1; step <= rows; ++step) {
      writer.add(std::vector<record::Cell>{{.series = record::kTrainingSeries,
                                            .row = step,
                                            .col = "loss",
                                            .value = 4.0 - step,
                                            .text = {},
                                            .unit = "nats"}});
    }
    writer.add(run, record::Fact{.key = "trained_steps", .value = 3, .unit = {}, .text = {}});
    writer.add(run, record::Fact{.key = "loss", .value = loss, .unit = "nats", .text = {}});
    writer.end_run(run, "success");
    writer.finish();
    return verify(record::Reader(folder / "a.rooflm"));
  };
  EXPECT_TRUE(all_hold(laws_of(3, 1.0)));
  EXPECT_EQ(result_of(laws_of(2, 2.0), "every trained step has its row and its sample").violated, 1U);
  EXPECT_EQ(result_of(laws_of(3, 1.5), "the loss of a run is that of its last step").violated, 1U);
}

TEST(Verify, ALossMayBeNought) {
  const auto laws_of = [](double loss) {
    const record::TemporaryFolder folder;
    record::Writer writer(folder / "a.rooflm", "train");
    writer.add(std::vector<record::Cell>{{record::kTrainingSeries, 1, "loss", loss, "", "nats"}});
    writer.finish();
    return verify(record::Reader(folder / "a.rooflm"));
  };
  EXPECT_TRUE(all_hold(laws_of(0)));  // a model that is sure of the right token
  EXPECT_EQ(result_of(laws_of(0), "losses are not negative").checked, 1U);
  EXPECT_EQ(result_of(laws_of(-0.5), "losses are not negative").violated, 1U);
}

TEST(Verify, TheWorstViolationIsNamedWithBothNumbers) {
  const auto results = verify_made_up([](MadeUpRun& made) {
    made.samples[4 * 3].seconds *= 3;  // forward of step 3
    made.samples[4 * 5].seconds *= 9;  // forward of step 5
  });
  const LawResult& law = result_of(results, "phases add up to the step");
  EXPECT_EQ(law.violated, 2U);
  EXPECT_EQ(law.what, "step 5");
  EXPECT_NEAR(law.bound, 4.5e-3, 0.1e-3);
  EXPECT_NEAR(law.found, 4.5e-3 + 8 * 1.6e-3, 0.1e-3);
  EXPECT_EQ(law.unit, "s");
  EXPECT_FALSE(all_hold(results));
}

TEST(Verify, PhasesThatLackMuchOfTheStepAreNoticed) {
  expect_broken(
      [](MadeUpRun& made) {
        for (auto& sample : made.samples) {
          if (sample.phase == "step" && sample.kind == "plain" && sample.step % 4 == 0) sample.seconds *= 1.2;
        }
      },
      {});  // a quarter of the steps: the median step is fine
  expect_broken(
      [](MadeUpRun& made) {
        for (auto& sample : made.samples) {
          if (sample.phase == "step") sample.seconds *= 1.2;
        }
      },
      {"phases add up to the step", "wall times of ops add up to the step"});
}

TEST(Verify, TheTimeBeforeTheDeviceBeganIsPartOfTheStep) {
  // A GPU that others use, too: every step waits for its turn before its first phase begins.
  const auto with_wait = [](bool is_known) {
    return verify_made_up([is_known](MadeUpRun& made) {
      constexpr double kTurn = 2.3e-3;
      std::vector<record::Sample> waits;
      for (record::Sample& sample : made.samples) {
        if (sample.phase != "step") continue;
        sample.seconds += kTurn;
        waits.push_back({.step = sample.step, .phase = "wait", .seconds = kTurn, .kind = sample.kind});
      }
      if (is_known) made.samples.insert(made.samples.end(), waits.begin(), waits.end());
      made.events.clear();
    });
  };
  EXPECT_EQ(result_of(with_wait(true), "phases add up to the step").violated, 0U);
  EXPECT_GT(result_of(with_wait(false), "phases add up to the step").violated, 0U);
}

TEST(Verify, SamplesMustBePositive) {
  expect_broken([](MadeUpRun& made) { made.samples[3].seconds = 0; },
                {"samples are positive", "phases add up to the step"});
}

TEST(Verify, OpsMustFitIntoTheirPhaseAndStep) {
  expect_broken([](MadeUpRun& made) { *made.events[2].wall_ns += 2'000'000; },
                {"wall times of ops add up to the step"});
  expect_broken(
      [](MadeUpRun& made) { made.events[2].device_ns += 3'000'000; },
      {"an op's device time is within its wall time", "device times of ops are within their phase"});
  // From one phase to the other, in every step: sums over the step stay.
  expect_broken(
      [](MadeUpRun& made) {
        for (auto& event : made.events) {
          if (event.op == 2) *event.wall_ns += 500'000;
          if (event.op == 4) *event.wall_ns -= 500'000;
          if (event.op == 4) event.device_ns -= 500'000;
        }
      },
      {"wall times of ops add up to their phase"});
}

TEST(Verify, OnADeviceThatOnlyTakesOrdersWallTimesMayBeShort) {
  expect_broken(
      [](MadeUpRun& made) {
        made.run.config.set("device", "cuda:0");
        for (auto& event : made.events) event.wall_ns = 3000;
      },
      {});
}

TEST(Verify, EveryOpRunsOncePerObservedStep) {
  expect_broken([](MadeUpRun& made) { made.events.pop_back(); },
                {"every op runs in every observed step", "instances of an op are the observed steps"});
  expect_broken(
      [](MadeUpRun& made) {
        made.events.push_back(made.events.back());
        made.events.back().device_ns = 0;
        made.events.back().wall_ns = 0;
      },
      {"every op runs in every observed step", "instances of an op are the observed steps"});
  expect_broken([](MadeUpRun& made) { made.events.back().op = 99; },
                {"events belong to ops of the program", "every op runs in every observed step",
                 "instances of an op are the observed steps"});
  expect_broken(
      [](MadeUpRun& made) { made.events.push_back({.step = 0, .op = 1, .device_ns = 1, .wall_ns = 1}); },
      {"events belong to observed steps", "instances of an op are the observed steps"});
}

TEST(Verify, WorkAndRoofsAddUp) {
  expect_broken([](MadeUpRun& made) { made.ops[0].matmul_flop += 1; }, {"FLOP of ops add up to matmul_flop"});
  expect_broken([](MadeUpRun& made) { made.facts[3].value = 257; },
                {"plan_bytes and state_bytes add up to needed_bytes"});
  expect_broken([](MadeUpRun& made) { made.predictions[0].value *= 1.01; },
                {"roofs of ops add up to their phase's"});
  expect_broken([](MadeUpRun& made) { made.predictions.back().value *= 1.01; },
                {"roofs of phases add up to the step's"});
  expect_broken([](MadeUpRun& made) { made.predictions[0].value = -1; },
                {"no gain is more than the time that it would remove", "roofs are not negative",
                 "roofs of ops add up to their phase's"});
}

TEST(Verify, WhatOpsDoIsNeverNegative) {
  for (const auto count :
       {&record::Op::bytes_read, &record::Op::bytes_written, &record::Op::elementwise_flop}) {
    expect_broken([&](MadeUpRun& made) { made.ops[1].*count = -5; }, {"counts of ops are not negative"});
  }
}

/// Rates are those of other tokens than the labels name.
TEST(Verify, TokensAreThoseOfTheBatch) {
  const auto with = [](std::int64_t batch, double tokens) {
    return [=](MadeUpRun& made) {
      made.run.config.set("batch", batch);
      made.run.config.set("seq", 64);
      made.run.config.set("grad_accum", 2);
      made.run.config.set("dp", 3);
      made.facts.push_back({.key = "tokens", .value = tokens, .unit = "tokens"});
    };
  };
  expect_broken(with(4, 4 * 64 * 2 * 3), {});
  expect_broken(with(5, 4 * 64 * 2 * 3), {"tokens of a step are those of its batch"});
  expect_broken(
      [&](MadeUpRun& made) {
        with(4, 4 * 2 * 3)(made);
        made.run.config.set("phase", "decode");
      },
      {});
}

TEST(Verify, NoTimeBeatsItsRoof) {
  const auto scale_roofs = [](double factor) {
    return [factor](MadeUpRun& made) {
      for (auto& prediction : made.predictions) prediction.value *= factor;
    };
  };
  expect_broken(scale_roofs(2.08), {});  // measured is 2.0 times the roof: within 5 %
  expect_broken(scale_roofs(2.2), {"no time beats its roof"});
  const LawResult law = result_of(verify_made_up(scale_roofs(2.2)), "no time beats its roof");
  EXPECT_EQ(law.checked, 7U + 3U + 1U);
  EXPECT_GE(law.violated, 10U);
}

TEST(Verify, CeilingsMeasuredUnderLoadAreNoLimits) {
  const std::string load = "measured under load: other programs used 48.0 % of the processors";
  const auto verified = [](const std::vector<record::Ceiling>& ceilings) {
    const auto change = [](MadeUpRun& made) {
      for (auto& prediction : made.predictions) {
        prediction.value *= 2.2;  // above what was measured
        prediction.bound = prediction.subject == "op:1" ? "matmul fp32" : "DRAM";
      }
    };
    return result_of(verify_made_up(change, ceilings), "no time beats its roof");
  };
  const record::Ceiling alone{.what = "read", .level = "DRAM", .value = 1e10, .unit = "byte/s"};
  record::Ceiling loaded = alone;
  loaded.source = load;
  const LawResult limit = verified({alone});
  EXPECT_GE(limit.violated, 10U);
  EXPECT_EQ(limit.not_judged, 0U);
  const LawResult none = verified({loaded});
  EXPECT_EQ(none.checked, 1U) << "the op that another ceiling bounds";
  EXPECT_EQ(none.not_judged, 6U + 3U + 1U) << "phases and the step hold ops that this one bounds";
  EXPECT_EQ(none.why_not, load);
  // Of several rows the highest counts: a loop that did more alone, or a level measured again.
  record::Ceiling faster = alone;
  faster.what = "triad";
  faster.value *= 2;
  EXPECT_GE(verified({loaded, faster}).violated, 10U);
  faster.source = load;
  EXPECT_EQ(verified({alone, faster}).not_judged, 6U + 3U + 1U);
}

TEST(Verify, MemoryBalances) {
  expect_broken([](MadeUpRun& made) { made.memory[2].live_bytes = 201; },
                {"live_bytes is the running sum", "roles at the peak add up to the peak"});
  expect_broken([](MadeUpRun& made) { made.memory.pop_back(); }, {"a step frees what it allocates"});
  expect_broken(
      [](MadeUpRun& made) {
        made.memory[3].bytes = -160;
        made.memory[3].live_bytes = 40;
        made.memory[4].live_bytes = 0;
      },
      {"a tensor is allocated, then freed", "memory events are as large as their tensors",
       "a step frees what it allocates"});
  expect_broken([](MadeUpRun& made) { made.tensors[1].bytes = 44; },
                {"memory events are as large as their tensors"});
  expect_broken([](MadeUpRun& made) { made.facts[1].value = 100; },
                {"what persists is state_bytes", "plan_bytes and state_bytes add up to needed_bytes"});
  expect_broken([](MadeUpRun& made) { made.facts[4].value = 200; }, {"the peak is plan_peak_bytes"});
  expect_broken([](MadeUpRun& made) { made.facts[5].value = 100; }, {"the peak is what was planned"});
  expect_broken([](MadeUpRun& made) { made.facts.push_back({.key = "allocator_peak_bytes", .value = 101}); },
                {"the peak is what the allocator counted"});
  expect_broken(
      [](MadeUpRun& made) {
        made.memory = {{.seq = 0, .op = 0, .tensor = 1, .bytes = -40, .live_bytes = -40},
                       {.seq = 1, .op = 1, .tensor = 1, .bytes = 40, .live_bytes = 0}};
        made.facts.clear();
      },
      {"live_bytes is never negative", "a tensor is allocated, then freed"});
}

TEST(Verify, CeilingsArePositiveAndWithinTheirInterval) {
  const auto broken = [](const record::Ceiling& ceiling) {
    std::vector<std::string> laws;
    for (const LawResult& result : verify_made_up([](MadeUpRun&) {}, {ceiling})) {
      if (result.violated > 0) laws.push_back(result.law);
    }
    return laws;
  };
  using Laws = std::vector<std::string>;
  EXPECT_EQ(broken({.what = "read", .value = 5, .ci_low = 4, .ci_high = 6, .samples = 9}), Laws{});
  EXPECT_EQ(broken({.what = "read", .value = 0}), Laws{"ceilings are positive"});
  EXPECT_EQ(broken({.what = "read", .value = std::numeric_limits<double>::infinity()}),
            Laws{"ceilings are positive"});
  EXPECT_EQ(broken({.what = "read", .value = 5, .ci_low = 5.5, .ci_high = 6, .samples = 9}),
            Laws{"ceilings lie within their interval"});
}

TEST(Verify, AFinishedRecordHasNoRunThatGoesOn) {
  const auto leave_open = [](MadeUpRun& made) { made.run.status = "running"; };
  expect_broken(leave_open, {"a finished record has no running run"});
  EXPECT_TRUE(all_hold(verify_made_up(leave_open, {}, false))) << "a partial record may have one";
}

TEST(Verify, WhatIsAliveFitsTheArena) {
  const auto in_arena = [](MadeUpRun& made) {
    made.tensors[1].offset = 0;
    made.tensors[2].offset = 64;
    made.facts.push_back({.key = "arena_bytes", .value = 128, .unit = "B"});
  };
  expect_broken(in_arena, {});
  // y lies where x lies, so that the arena is half as large: both are counted all the same.
  expect_broken(
      [&](MadeUpRun& made) {
        in_arena(made);
        made.tensors[2].offset = 0;
        made.facts.back().value = 64;
      },
      {"live tensors fit the arena"});
  expect_broken(
      [&](MadeUpRun& made) {
        in_arena(made);
        made.tensors[2].offset = 100;
      },
      {"tensors lie in the arena"});
}

TEST(Verify, WallTimesThatAreCopiesWereNotMeasured) {
  const auto replayed = [](MadeUpRun& made) {
    made.run.config.set("device", "cuda:0");
    for (auto& event : made.events) event.wall_ns.reset();
  };
  expect_broken(replayed, {});
  expect_broken(
      [&](MadeUpRun& made) {
        replayed(made);
        for (auto& event : made.events) event.wall_ns = event.device_ns;
      },
      {"wall times are measured, not copied from device times"});
}

TEST(Verify, AFactThatWasNotMeasuredIsAbsent) {
  expect_broken([](MadeUpRun& made) { made.facts.push_back({.key = "peak_flop_per_s", .value = 1e12}); }, {});
  expect_broken([](MadeUpRun& made) { made.facts.push_back({.key = "peak_flop_per_s", .value = 0}); },
                {"what was not measured is absent, not 0"});
}

TEST(Verify, InstancesAndSharesAreChecked) {
  const auto results = verify_made_up([](MadeUpRun&) {});
  EXPECT_EQ(result_of(results, "instances of kernels are whole executions").checked, 1U);
  EXPECT_EQ(result_of(results, "shares of a total add up to 1").checked, 2U) << "kernels and blocks";
  EXPECT_EQ(result_of(results, "roles at the peak add up to the peak").checked, 1U);
}

TEST(Verify, ActivitiesHaveLanesAndEndAfterTheyStart) {
  const auto broken_with = [](const record::Activity& activity) {
    const record::TemporaryFolder folder;
    record::Writer writer(folder / "a.rooflm", "made up");
    const std::int64_t run = writer.begin_run({.label = "train.py", .kind = "foreign"});
    writer.add(run, std::vector<record::Lane>{{.lane = 0}});
    writer.add(run, std::vector<record::ActivityName>{{.name = 0, .kind = "kernel", .text = "gemm"}});
    writer.add(run, std::vector<record::Activity>{activity});
    writer.end_run(run, "success");
    writer.finish();
    std::vector<std::string> laws;
    for (const LawResult& result : verify(record::Reader(folder / "a.rooflm"))) {
      if (result.violated > 0) laws.push_back(result.law);
    }
    return laws;
  };
  using Laws = std::vector<std::string>;
  EXPECT_EQ(broken_with({.start_ns = 1, .end_ns = 2}), Laws{});
  EXPECT_EQ(broken_with({.start_ns = 2, .end_ns = 1}), Laws{"activities end after they start"});
  EXPECT_EQ(broken_with({.lane = 7}), Laws{"activities have a lane and a name"});
}

}  // namespace
}  // namespace rooflm::report
