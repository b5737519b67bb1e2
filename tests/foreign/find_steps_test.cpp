// What is a step of a program, on made-up ones: which candidate it is, and from when to when it lasts.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "foreign/foreign_run.h"

namespace rooflm::foreign {
namespace {

constexpr std::int64_t kUs = 1000;

/// A program on one host thread and streams of one device; times in microseconds.
class MadeProgram {
 public:
  MadeProgram() {
    thread_ = run_.lane("host", {.kind = "host", .device = "cpu", .thread = 1, .name = "main"});
  }

  void range(const std::string& name, std::int64_t start, std::int64_t end) {
    add("range", name, thread_, start, end);
  }
  /// A kernel, or another kind of work, that a call of one microsecond asked for.
  void launch(const std::string& name, std::int64_t call, std::int64_t start, std::int64_t end,
              int stream = 7, const std::string& kind = "kernel") {
    ++correlation_;
    add("api", "cudaLaunchKernel", thread_, call, call + 1, correlation_);
    add(kind, name, lane_of(stream), start, end, correlation_);
  }
  /// A kernel whose call the trace does not hold.
  void left_over(const std::string& name, std::int64_t start, std::int64_t end) {
    add("kernel", name, lane_of(7), start, end, ++correlation_);
  }
  /// One launch of a graph of these kernels, one after the other.
  void replay(const std::vector<std::string>& names, std::int64_t call, std::int64_t start,
              std::int64_t each) {
    ++correlation_;
    add("api", "cudaGraphLaunch", thread_, call, call + 1, correlation_);
    for (const std::string& name : names) {
      add("kernel", name, lane_of(7), start, start + each, correlation_);
      start += each;
    }
  }

  std::vector<record::Sample> find(const std::string& by = "auto") {
    run_.steps_by = StepsBy::parse(by);
    return find_steps(run_);
  }
  /// Starts and ends of the steps, in microseconds.
  std::vector<std::pair<std::int64_t, std::int64_t>> spans() {
    std::vector<std::pair<std::int64_t, std::int64_t>> spans;
    for (const record::Activity& activity : run_.activities()) {
      if (activity.step && run_.name_of(activity).text == "step")
        spans.emplace_back(activity.start_ns / kUs, activity.end_ns / kUs);
    }
    std::ranges::sort(spans);
    return spans;
  }
  /// Of how many kernels of that name what the step is.
  std::vector<std::int64_t> steps_of(const std::string& name) {
    std::vector<std::int64_t> steps;
    for (const record::Activity& activity : run_.activities()) {
      if (run_.name_of(activity).text == name) steps.push_back(activity.step.value_or(-1));
    }
    return steps;
  }

 private:
  void add(const std::string& kind, const std::string& name, std::int64_t lane, std::int64_t start,
           std::int64_t end, std::optional<std::int64_t> correlation = {}) {
    run_.add({.name = run_.name(kind, name),
              .lane = lane,
              .start_ns = start * kUs,
              .end_ns = end * kUs,
              .correlation = correlation});
  }
  std::int64_t lane_of(int stream) {
    return run_.lane("stream " + std::to_string(stream),
                     {.kind = "device", .device = "cuda:0", .stream = stream, .name = "stream"});
  }

  ForeignRun run_;
  std::int64_t thread_ = 0;
  std::int64_t correlation_ = 0;
};

using Spans = std::vector<std::pair<std::int64_t, std::int64_t>>;

TEST(Steps, OfAHostThatRunsSeveralStepsAheadEndWithTheirOwnWork) {
  MadeProgram program;
  for (std::int64_t n = 0; n < 4; ++n) {
    program.range("ProfilerStep#" + std::to_string(n + 5), 10 * n, 10 * n + 10);
    program.launch("copy host to device", 10 * n + 1, 10 * n + 2, 10 * n + 3, 16, "copy");
    for (std::int64_t k = 0; k < 2; ++k)
      program.launch("k", 10 * n + 4 + k, 20 + 100 * n + 50 * k, 70 + 100 * n + 50 * k);
  }
  EXPECT_EQ(program.find().size(), 4U);
  // Copies of the next steps run early, and are no start of them: together the steps are the elapsed time.
  EXPECT_EQ(program.spans(), (Spans{{0, 120}, {120, 220}, {220, 320}, {320, 420}}));
  EXPECT_EQ(program.steps_of("copy host to device"), (std::vector<std::int64_t>{5, 6, 7, 8}));
}

TEST(Steps, BoundByTheHostIncludeItsPauses) {
  MadeProgram program;  // data is loaded between the ranges, and nothing is launched then
  for (std::int64_t n = 0; n < 4; ++n) {
    program.range("train_step", 100 * n, 100 * n + 40);
    program.launch("a", 100 * n + 5, 100 * n + 10, 100 * n + 20);
    program.launch("b", 100 * n + 25, 100 * n + 30, 100 * n + 38);
  }
  EXPECT_EQ(program.find().size(), 4U);
  EXPECT_EQ(program.spans(), (Spans{{0, 38}, {38, 138}, {138, 238}, {238, 340}}))
      << "the last one ends with the host";
}

TEST(Steps, AfterOnesThatAreNotKnownBeginWithTheHost) {
  MadeProgram program;
  for (const std::int64_t n : {3, 4, 13, 14}) {  // a profiler's schedule
    program.range("ProfilerStep#" + std::to_string(n), 100 * n, 100 * n + 100);
    program.launch("a", 100 * n + 5, 100 * n + 10, 100 * n + 130);
  }
  EXPECT_EQ(program.find().size(), 4U);
  EXPECT_EQ(program.spans(), (Spans{{300, 430}, {430, 530}, {1300, 1430}, {1430, 1530}}));
}

TEST(Steps, AfterWorkOfNobodysStepBeginWhenItIsDone) {
  MadeProgram program;
  for (std::int64_t n = 0; n < 4; ++n) {
    const std::int64_t begin = 100 * n + (n < 2 ? 0 : 1000);
    program.range("step", begin, begin + 100);
    program.launch("a", begin + 5, begin + 10, begin + 90);
  }
  program.launch("evaluation", 300, 310, 1050);
  EXPECT_EQ(program.find().size(), 4U);
  EXPECT_EQ(program.spans(), (Spans{{0, 90}, {90, 200}, {1200, 1290}, {1290, 1400}}));
  MadeProgram busy;  // the evaluation is not done when the host goes on
  for (std::int64_t n = 0; n < 4; ++n) {
    const std::int64_t begin = 100 * n + (n < 2 ? 0 : 1000);
    busy.range("step", begin, begin + 100);
    busy.launch("a", begin + 5, begin + (n < 2 ? 10 : 60), begin + 150);
  }
  busy.launch("evaluation", 300, 310, 1220);
  EXPECT_EQ(busy.find().size(), 4U);
  EXPECT_EQ(busy.spans()[2], (std::pair<std::int64_t, std::int64_t>{1220, 1350}));
}

TEST(Steps, DoNotHoldWhatWasLaunchedBeforeTheTrace) {
  MadeProgram program;  // the host runs a step ahead, and the profiler starts between two of its steps
  for (std::int64_t k = 0; k < 3; ++k) program.left_over("a", 5 + 30 * k, 35 + 30 * k);
  for (std::int64_t n = 0; n < 2; ++n) {
    program.range("ProfilerStep#" + std::to_string(n + 6), 10 * n, 10 * n + 10);
    for (std::int64_t k = 0; k < 3; ++k) {
      const std::int64_t start = 95 + 90 * n + 30 * k;
      program.launch("a", 10 * n + 1 + k, start, start + 30);
    }
  }
  EXPECT_EQ(program.find().size(), 2U);
  EXPECT_EQ(program.spans(), (Spans{{95, 185}, {185, 275}}));
  EXPECT_EQ(program.steps_of("a"), (std::vector<std::int64_t>{-1, -1, -1, 6, 6, 6, 7, 7, 7}));
}

TEST(Steps, AreNotLayersWhereMuchWasLaunchedBeforeTheTrace) {
  MadeProgram program;  // one step of eight layers, behind as much of the step before
  for (std::int64_t k = 0; k < 8; ++k) {
    program.left_over("a", 20 * k, 20 * k + 10);
    program.left_over("b", 20 * k + 10, 20 * k + 20);
  }
  program.range("ProfilerStep#6", 1, 100);
  for (std::int64_t k = 0; k < 8; ++k) {
    program.launch("a", 2 + 2 * k, 160 + 20 * k, 170 + 20 * k);
    program.launch("b", 3 + 2 * k, 170 + 20 * k, 180 + 20 * k);
  }
  EXPECT_EQ(program.find().size(), 1U);
  EXPECT_EQ(program.spans(), (Spans{{160, 320}}));
}

TEST(Steps, EndWithTheOptimizerAndHoldNothingFromBeforeTheTrace) {
  MadeProgram program;
  program.left_over("forward", 0, 40);
  for (std::int64_t n = 0; n < 3; ++n) {
    program.launch("forward", 100 * n + 50, 100 * n + 55, 100 * n + 95);
    program.range("Optimizer.step#AdamW.step", 100 * n + 100, 100 * n + 120);
    program.launch("adam", 100 * n + 102, 100 * n + 105, 100 * n + 115);
  }
  EXPECT_EQ(program.find("optimizer").size(), 3U);
  EXPECT_EQ(program.steps_of("forward"), (std::vector<std::int64_t>{-1, 0, 1, 2}));
}

TEST(Steps, HoldWhatLostItsCallAmidTheTrace) {
  MadeProgram program;
  for (std::int64_t n = 0; n < 3; ++n) {
    program.range("ProfilerStep#" + std::to_string(n), 100 * n, 100 * n + 100);
    program.launch("a", 100 * n + 5, 100 * n + 10, 100 * n + 40);
    program.left_over("b", 100 * n + 50, 100 * n + 80);
  }
  EXPECT_EQ(program.find().size(), 3U);
  EXPECT_EQ(program.steps_of("b"), (std::vector<std::int64_t>{0, 1, 2}));
}

TEST(Steps, WhatOutlastsALaterStepEndsNone) {
  MadeProgram program;
  for (std::int64_t n = 0; n < 4; ++n) {
    program.range("ProfilerStep#" + std::to_string(n), 100 * n, 100 * n + 100);
    program.launch("a", 100 * n + 5, 100 * n + 10, 100 * n + 95);
    if (n == 0) program.launch("checkpoint", 20, 30, 350, 9, "copy");
  }
  EXPECT_EQ(program.find().size(), 4U);
  EXPECT_EQ(program.spans(), (Spans{{0, 95}, {95, 195}, {195, 295}, {295, 400}}));
  EXPECT_EQ(program.steps_of("checkpoint"), (std::vector<std::int64_t>{0}));
}

TEST(Steps, EndWithTheOptimizerHoweverManyPassesThereAre) {
  MadeProgram program;
  std::int64_t now = 0;
  for (int step = 0; step < 4; ++step) {
    for (int pass = 0; pass < 3; ++pass) {
      for (const char* name : {"forward", "backward"}) {
        program.launch(name, now, now + 5, now + 25);
        now += 30;
      }
    }
    program.range("Optimizer.step#AdamW.step", now, now + 20);
    program.launch("adam", now + 2, now + 5, now + 15);
    now += 30;
  }
  EXPECT_EQ(program.find("optimizer").size(), 4U);
  EXPECT_EQ(program.spans()[1], (std::pair<std::int64_t, std::int64_t>{195, 405}));
  EXPECT_EQ(program.steps_of("adam"), (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(program.steps_of("forward"), (std::vector<std::int64_t>{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3}));
}

/// A range of an operator that repeats, and launches one of the kernels of each turn.
MadeProgram with_an_operators_range() {
  MadeProgram program;
  for (std::int64_t n = 0; n < 6; ++n) {
    program.range("aten::to, op_id = " + std::to_string(1000 + n), 1000 * n, 1000 * n + 600);
    program.launch("small", 1000 * n + 1, 1000 * n + 2, 1000 * n + 12);
    for (std::int64_t k = 0; k < 3; ++k) {
      const std::int64_t call = 1000 * n + 610 + 100 * k;
      program.launch("k" + std::to_string((7 * n * n + 3 * n + k) % 5), call, call + 2, call + 98);
    }
  }
  return program;
}

TEST(Steps, ARangeThatCoversLittleOfTheDevicesTimeIsNone) {
  MadeProgram program = with_an_operators_range();
  EXPECT_TRUE(program.find().empty());
  EXPECT_EQ(program.steps_of("small"), std::vector<std::int64_t>(6, -1));
  MadeProgram asked = with_an_operators_range();
  EXPECT_EQ(asked.find("range:^aten::to").size(), 6U);
  MadeProgram none = with_an_operators_range();
  EXPECT_TRUE(none.find("none").empty());
}

TEST(Steps, OperatorsOfOneKernelEachAreNone) {
  MadeProgram program;
  for (std::int64_t n = 0; n < 20; ++n) {
    program.range("aten::mul", 100 * n, 100 * n + 60);
    program.launch("mul_kernel", 100 * n + 5, 100 * n + 20, 100 * n + 50);
  }
  EXPECT_TRUE(program.find().empty());
}

/// Ranges of a compiler, in which candidates are tried, before the loop; its steps are one launch each.
MadeProgram compiled_program() {
  MadeProgram program;
  std::int64_t now = 0;
  int tried = 0;
  for (int module = 0; module < 5; ++module) {
    program.range("XlaCompile", now, now + 5000);
    for (int k = 0; k < 20 + 7 * module; ++k, ++tried)
      program.launch("candidate " + std::to_string(tried), now + 10 + 40 * k, now + 12 + 40 * k,
                     now + 42 + 40 * k);
    now += 6000;
  }
  for (int step = 0; step < 12; ++step) {
    program.replay({"gemm", "fusion", "gemm", "reduce"}, now, now + 10, 20);
    now += 100;
  }
  return program;
}

TEST(Steps, OfACompiledProgramAreWhatRepeats) {
  MadeProgram program = compiled_program();
  ASSERT_EQ(program.find().size(), 12U);
  EXPECT_EQ(program.spans()[1].second - program.spans()[1].first, 100);
  EXPECT_EQ(program.steps_of("reduce"), (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  MadeProgram graphs = compiled_program();
  EXPECT_EQ(graphs.find("graph").size(), 12U);
}

TEST(Steps, ThatRepeatMayHaveSomethingInBetween) {
  MadeProgram program;
  std::int64_t now = 0;
  for (int step = 0; step < 30; ++step) {
    for (const char* name : {"embed", "gemm", "norm", "gemm", "norm", "adam"}) {
      program.launch(name, now, now + 2, now + 9);
      now += 10;
    }
    if (step % 5 == 4) program.launch("loss to print", now, now + 2, now + 5);
    now += 50;
    if (step == 14) {
      for (int k = 0; k < 40; ++k, now += 10) program.launch("evaluation", now, now + 2, now + 9);
    }
  }
  EXPECT_EQ(program.find("kernels").size(), 30U);
  const auto spans = program.spans();
  EXPECT_EQ(spans[3].second - spans[3].first, 110);
  EXPECT_LT(spans[15].second - spans[15].first, 110) << "what was before was no step";
}

/// One pass of a model: what it does for each layer repeats, too.
TEST(Steps, LayersBetweenAnEmbeddingAndALossAreNone) {
  MadeProgram program;
  program.launch("embedding", 0, 10, 20);
  for (int layer = 0; layer < 12; ++layer) {
    program.launch("attention", 20 + 40 * layer, 30 + 40 * layer, 50 + 40 * layer);
    program.launch("mlp", 30 + 40 * layer, 50 + 40 * layer, 70 + 40 * layer);
  }
  program.launch("loss", 600, 610, 620);
  EXPECT_TRUE(program.find().empty());
  EXPECT_EQ(program.find("kernels").size(), 12U);
}

TEST(Steps, LayersOfOneGraphAreNone) {
  MadeProgram program;
  std::vector<std::string> names{"embedding"};
  for (int layer = 0; layer < 12; ++layer) names.insert(names.end(), {"attention", "mlp"});
  program.replay(names, 0, 10, 20);
  EXPECT_TRUE(program.find().empty());
}

TEST(Steps, OneNumberTwiceIsOneStep) {
  MadeProgram program;  // as the host and as the device saw them
  for (std::int64_t n = 0; n < 6; ++n) {
    program.range("ProfilerStep#" + std::to_string(n), 10 * n, 10 * n + 10);
    program.range("ProfilerStep#" + std::to_string(n), 10 * n + 9, 100 * n + 100);
    program.launch("a", 10 * n + 2, 100 * n + 5, 100 * n + 60);
    program.launch("b", 10 * n + 4, 100 * n + 65, 100 * n + 99);
  }
  EXPECT_EQ(program.find().size(), 6U);
  EXPECT_EQ(program.steps_of("a"), (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5}));
}

TEST(Steps, WithoutADeviceAreTheRanges) {
  MadeProgram program;
  for (std::int64_t n = 0; n < 3; ++n) program.range("iteration " + std::to_string(n), 100 * n, 100 * n + 60);
  for (std::int64_t n = 0; n < 9; ++n) program.range("aten::mul", 1000 + 10 * n, 1008 + 10 * n);
  EXPECT_EQ(program.find().size(), 3U);
  EXPECT_EQ(program.spans(), (Spans{{0, 60}, {100, 160}, {200, 260}}));
}

TEST(Steps, WhatTheyAreIsAskedForByName) {
  EXPECT_EQ(StepsBy::parse("range:a b").pattern, "a b");
  for (const char* wrong : {"", "rng", "range:", "range:(", "Kernels"})
    EXPECT_THROW(static_cast<void>(StepsBy::parse(wrong)), core::UsageError) << wrong;
}

}  // namespace
}  // namespace rooflm::foreign
