// Comparing made-up records: what was made faster is found, what was not is not, and records that do not fit
// say so.
#include "report/tables/compare.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "record/reader.h"
#include "record/writer.h"
#include "report/runs/match_runs.h"
#include "tests/record/record_testing.h"
#include "tests/report/compared_runs.h"
#include "tests/report/made_up_run.h"

namespace rooflm::report {
namespace {

/// Below 5 % of the step.
bool is_small(const ComparedTime& row) { return row.subject == "forward/loss"; }

/// As `rooflm record` makes one of PyTorch: modules by other names, recorded steps.
MadeUpRun foreign_run(MadeUpRun run) {
  run.run = {.label = "train.py", .kind = "foreign", .status = "success", .config = {}};
  run.run.config.set("device", "cuda:0");
  const std::vector<std::pair<std::string, std::string>> names = {
      {"attention", "a"}, {"feed_forward", "mlp"}, {"loss", "other"}};
  for (record::Op& op : run.ops) {
    op.kind = op.scope.find("attention") != std::string::npos ? "Attn" : "Linear";
    for (const auto& [own, theirs] : names) {
      if (const auto at = op.scope.find(own); at != std::string::npos)
        op.scope.replace(at, own.size(), theirs);
    }
    if (op.scope.ends_with("a/qkv")) op.scope.resize(op.scope.size() - 4);
  }
  for (record::Sample& sample : run.samples) sample.kind = sample.kind == "plain" ? "traced" : "other";
  run.facts = {{.key = "matmul_flop", .value = 2e9, .unit = "flop"}};
  return run;
}

TEST(Compare, AProgramOfOthersIsHeldAgainstOursByThePartsThatBothHave) {
  MadeUpRun own = made_up_run();
  own.facts = {{.key = "matmul_flop", .value = 2.01e9, .unit = "flop"}};
  const auto slower = made_up_run({.scale = 1.5, .seed = 3});
  const auto comparison = compare_runs({foreign_run(slower)}, {own, with_seq(own, 128)});
  const auto& attention = row_of(comparison, "forward/attention");
  EXPECT_NEAR(attention.a_s, 1.2e-3, 0.02e-3);
  EXPECT_NEAR(attention.b_s, 0.8e-3, 0.02e-3);
  EXPECT_EQ(attention.verdict, Verdict::faster);
  EXPECT_NEAR(row_of(comparison, "forward/head_and_loss").b_s, 0.1e-3, 0.01e-3);
  EXPECT_NEAR(row_of(comparison, "backward/feed_forward").a_s, 2.25e-3, 0.02e-3);
  EXPECT_GT(row_of(comparison, "outside kernels").a_s, 0);
  EXPECT_EQ(std::ranges::count(comparison.rows, "step", &ComparedTime::subject), 2) << "with each of ours";
  EXPECT_TRUE(has_note(comparison, "the same work"));
  EXPECT_TRUE(has_note(comparison, "backward/feed_forward -7")) << "the largest part of the difference";
}

TEST(Compare, RowsAreStepPhasesAndBlocksWithLayersAddedUp) {
  const auto comparison = compare_runs({made_up_run()}, {made_up_run({.seed = 2})});
  std::vector<std::string> subjects;
  for (const auto& row : comparison.rows) subjects.push_back(row.subject);
  std::sort(subjects.begin() + 4, subjects.end());  // parts: by what they add to the difference
  EXPECT_EQ(subjects,
            (std::vector<std::string>{"step", "forward", "backward", "optimizer", "backward/attention",
                                      "backward/feed_forward", "forward/attention", "forward/feed_forward",
                                      "forward/loss", "optimizer/optimizer"}));
  const auto& attention = row_of(comparison, "forward/attention");
  EXPECT_NEAR(attention.a_s, 0.8e-3, 0.01e-3) << "two layers";
  EXPECT_EQ(attention.a_samples, 20U) << "observed steps";
  EXPECT_EQ(row_of(comparison, "step").b_samples, 20U) << "plain steps";
  EXPECT_EQ(attention.run, "tiny made up");
  EXPECT_TRUE(comparison.lost.empty());
}

/// Its matmul of queries, keys and values in the backward pass takes 1.3 times as long.
MadeUpRun with_slow_qkv(std::uint64_t seed) {
  return made_up_run({.seed = seed, .factor = [](const MadeUpOp& op) {
                        const bool is_it = std::string_view(op.scope).ends_with("qkv") &&
                                           std::string_view(op.phase) == "backward";
                        return is_it ? 1.3 : 1.0;
                      }});
}

TEST(Compare, OpByOpWhatAddsMostToTheDifferenceComesFirst) {
  const record::TemporaryFolder folder;
  const record::Reader a = write_record(folder / "a.rooflm", {made_up_run()});
  const record::Reader b = write_record(folder / "b.rooflm", {with_slow_qkv(2)});
  const auto comparison = compare(a, b, {.restart = 0.02, .parts = Parts::automatic});
  ASSERT_GT(comparison.rows.size(), 5U);
  EXPECT_EQ(comparison.rows[4].subject, "backward/attention/qkv") << "after the step and its phases";
  EXPECT_EQ(comparison.rows[4].verdict, Verdict::slower);
  EXPECT_NEAR(comparison.rows[4].difference_s(), comparison.rows[0].difference_s(), 0.05e-3)
      << "all of the step's difference";
  for (std::size_t i = 5; i < comparison.rows.size(); ++i) {
    EXPECT_GE(std::abs(comparison.rows[i - 1].difference_s()), std::abs(comparison.rows[i].difference_s()));
  }
  const auto sentences = verdict_sentences(comparison, 0.95);
  ASSERT_EQ(sentences.size(), 1U);
  EXPECT_TRUE(sentences[0].starts_with("SLOWER: a step takes ")) << sentences[0];
  EXPECT_NE(sentences[0].find("): backward/attention/qkv +"), std::string::npos) << sentences[0];
}

TEST(Compare, ByBlocksWhereTheOpsOfTheSidesDiffer) {
  const record::TemporaryFolder folder;
  MadeUpRun other = made_up_run({.seed = 2});
  for (record::Op& op : other.ops) {
    if (op.scope.ends_with("attention/qkv")) op.scope += "_fused";
  }
  const record::Reader a = write_record(folder / "a.rooflm", {made_up_run()});
  const record::Reader b = write_record(folder / "b.rooflm", {other});
  const auto blocks = compare(a, b, {.restart = {}, .parts = Parts::automatic});
  EXPECT_NO_THROW(static_cast<void>(row_of(blocks, "backward/attention")));
  const auto ops = compare(a, b, {.restart = {}, .parts = Parts::ops});
  EXPECT_THROW(static_cast<void>(row_of(ops, "backward/attention/qkv")), std::runtime_error);
  EXPECT_TRUE(has_note(ops, "backward/attention/qkv (A ")) << "with its time";
}

TEST(Compare, ByKernelTheirOpsAreAddedUp) {
  const record::TemporaryFolder folder;
  std::vector<MadeUpRun> runs = {made_up_run(), made_up_run({.seed = 2})};
  for (MadeUpRun& run : runs) {
    for (record::Op& op : run.ops) op.kernel = op.kind == "matmul" ? "gemm" : "other";
  }
  const record::Reader a = write_record(folder / "a.rooflm", {runs[0]});
  const record::Reader b = write_record(folder / "b.rooflm", {runs[1]});
  const auto comparison = compare(a, b, {.restart = {}, .parts = Parts::kernels});
  const auto blocks = compare(a, b, {.restart = {}, .parts = Parts::blocks});
  double kernels_s = 0;
  double blocks_s = 0;
  for (const auto& row : comparison.rows) kernels_s += row.subject.starts_with("forward/") ? row.a_s : 0;
  for (const auto& row : blocks.rows) blocks_s += row.subject.starts_with("forward/") ? row.a_s : 0;
  EXPECT_NO_THROW(static_cast<void>(row_of(comparison, "forward/gemm")));
  EXPECT_NEAR(kernels_s, blocks_s, 0.02 * blocks_s);
}

TEST(Compare, WhereItIsUnsureTheSmallestChangeThatCouldHaveBeenShownIsSaid) {
  const auto noisy =
      compare_runs({made_up_run({.noise = 0.1})}, {made_up_run({.scale = 1.02, .noise = 0.1, .seed = 5})});
  const ComparedTime& step = row_of(noisy, "step");
  ASSERT_EQ(step.verdict, Verdict::unsure);
  ASSERT_TRUE(step.least_change());
  EXPECT_GT(*step.least_change(), step.allowance);
  const auto sentences = verdict_sentences(noisy, 0.95);
  EXPECT_NE(sentences.at(0).find("the smallest change that these runs could have shown is "),
            std::string::npos);
  // A change a little larger than that is shown by runs that spread alike.
  const double factor = 1.02 * (1 + 1.3 * *step.least_change());
  const auto shown =
      compare_runs({made_up_run({.noise = 0.1})}, {made_up_run({.scale = factor, .noise = 0.1, .seed = 5})});
  EXPECT_EQ(row_of(shown, "step").verdict, Verdict::slower);
  ComparedTime blind{.a_s = 1, .b_s = 1, .ratio = 1, .interval = {.low = 0.9, .high = 1.1, .coverage = 0.95}};
  EXPECT_NEAR(*blind.least_change(), 1.0 / 0.9 - 1, 1e-12);
  blind.needed_samples = 4;
  EXPECT_FALSE(blind.least_change());
}

MadeUpRun of_dtype(MadeUpRun run, const char* dtype, std::int64_t seq) {
  run.run.config.set("dtype", dtype);
  run = with_seq(std::move(run), seq);
  run.run.label += std::string(" ") + dtype;
  return run;
}

TEST(Compare, WithinOneRecordByTheSettingInWhichItsRunsDiffer) {
  const record::TemporaryFolder folder;
  const MadeUpRun half = made_up_run({.scale = 0.5, .seed = 2});
  const record::Reader two =
      write_record(folder / "two.rooflm", {of_dtype(made_up_run(), "fp32", 64), of_dtype(half, "bf16", 64)});
  const auto comparison = compare_within(two, {}, "", {.restart = 0.02});
  EXPECT_EQ(comparison.a_name, "fp32");
  EXPECT_EQ(comparison.b_name, "bf16");
  EXPECT_EQ(row_of(comparison, "step").verdict, Verdict::faster);
  EXPECT_NEAR(row_of(comparison, "step").ratio, 0.5, 0.01);
  const auto turned = compare_within(two, {"bf16", "fp32"}, "", {.restart = 0.02});
  EXPECT_NEAR(row_of(turned, "step").ratio, 2, 0.05) << "in the order of --run";
  const record::Reader four = write_record(
      folder / "four.rooflm", {of_dtype(made_up_run(), "fp32", 64), of_dtype(half, "bf16", 64),
                               of_dtype(made_up_run(), "fp32", 128), of_dtype(half, "bf16", 128)});
  try {
    static_cast<void>(compare_within(four, {}, "", {}));
    FAIL() << "two settings have two values";
  } catch (const core::UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("--between dtype|seq"), std::string::npos) << error.what();
  }
  const auto pairs = compare_within(four, {}, "dtype", {.restart = 0.02});
  EXPECT_EQ(pairs.a_name, "dtype fp32");
  EXPECT_EQ(std::ranges::count(pairs.rows, "step", &ComparedTime::subject), 2) << "one of each length";
  EXPECT_THROW(static_cast<void>(compare_within(four, {"1"}, "", {})), core::UsageError);
  const record::Reader one = write_record(folder / "one.rooflm", {made_up_run(), made_up_run({.seed = 3})});
  EXPECT_THROW(static_cast<void>(compare_within(one, {}, "", {})), core::UsageError) << "repeats of one";
}

TEST(Compare, OfKindsOfOpsTheirBlocksAlone) {
  const record::TemporaryFolder folder;
  MadeUpRun run = made_up_run();
  run.ops.front().kind = "softmax";
  const record::Reader a = write_record(folder / "a.rooflm", {run});
  const record::Reader b = write_record(folder / "b.rooflm", {run});
  const auto rows = compare(a, b, {.restart = 0.02, .ops = {"softmax"}}).rows;
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows.front().subject, run.ops.front().phase + "/attention");
  EXPECT_LT(rows.front().a_s, row_of(compare(a, b, {.restart = 0.02}), "forward/attention").a_s)
      << "a part of the block";
  EXPECT_THROW(static_cast<void>(compare(a, b, {.restart = 0.02, .ops = {"nothing"}})), core::UsageError);
}

TEST(Compare, TheSameTwiceIsTheSame) {
  const auto comparison = compare_runs({made_up_run()}, {made_up_run({.seed = 2})});
  for (const auto& row : comparison.rows) {
    EXPECT_EQ(row.verdict, Verdict::same) << row.subject;
    EXPECT_LE(row.interval.low, row.ratio);
    EXPECT_GE(row.interval.high, row.ratio);
  }
  EXPECT_TRUE(slower_steps(comparison, 0).empty() || row_of(comparison, "step").interval.low > 1);
}

TEST(Compare, OneBlockThatGotSlowerIsFound) {
  const auto slower_backward_attention = [](const MadeUpOp& op) {
    const bool is_it =
        std::string_view(op.scope).ends_with("qkv") && std::string_view(op.phase) == "backward";
    return is_it ? 1.3 : 1.0;
  };
  const auto comparison =
      compare_runs({made_up_run()}, {made_up_run({.seed = 2, .factor = slower_backward_attention})});
  const auto& block = row_of(comparison, "backward/attention");
  EXPECT_EQ(block.verdict, Verdict::slower);
  EXPECT_NEAR(block.ratio, 1.3, 0.01);
  EXPECT_LT(block.p, 0.001);
  EXPECT_EQ(row_of(comparison, "backward").verdict, Verdict::slower);
  EXPECT_EQ(row_of(comparison, "step").verdict, Verdict::slower);
  EXPECT_EQ(row_of(comparison, "forward").verdict, Verdict::same);
  EXPECT_EQ(row_of(comparison, "backward/feed_forward").verdict, Verdict::same);
  EXPECT_EQ(slower_steps(comparison, 0.03).size(), 1U);  // 0.27 ms of 4.5 ms are 6 %
  EXPECT_TRUE(slower_steps(comparison, 0.08).empty());
}

TEST(Compare, FasterIsToldFromSlower) {
  const auto comparison = compare_runs({made_up_run()}, {made_up_run({.scale = 0.5, .seed = 2})});
  for (const auto& row : comparison.rows) {
    EXPECT_EQ(row.verdict, is_small(row) ? Verdict::unsure : Verdict::faster) << row.subject;
    EXPECT_NEAR(row.ratio, 0.5, 0.01) << row.subject;
  }
  EXPECT_TRUE(slower_steps(comparison, 0).empty());
}

TEST(Compare, FewOrNoisyStepsLeaveItOpen) {
  const auto few =
      compare_runs({made_up_run({.steps = 4})}, {made_up_run({.scale = 1.2, .steps = 4, .seed = 2})});
  for (const auto& row : few.rows) EXPECT_EQ(row.verdict, Verdict::unsure) << row.subject;
  const auto noisy =
      compare_runs({made_up_run({.noise = 0.5})}, {made_up_run({.scale = 1.02, .noise = 0.5, .seed = 5})});
  for (const auto& row : noisy.rows) EXPECT_EQ(row.verdict, Verdict::unsure) << row.subject;
  const auto single = compare_runs({made_up_run({.steps = 2})}, {made_up_run({.steps = 2})});
  for (const auto& row : single.rows) EXPECT_EQ(row.verdict, Verdict::unsure) << "one sample shows nothing";
  EXPECT_TRUE(
      slower_steps(compare_runs({made_up_run({.steps = 2})}, {made_up_run({.scale = 2, .steps = 2})}), 0)
          .empty());
}

TEST(Compare, VerdictsFollowIntervalAndTest) {
  const auto verdict = [](double low, double high, double p, std::size_t samples = 20) {
    const ComparedTime row{.a_samples = samples, .b_samples = samples, .interval = {low, high, 0.95}, .p = p};
    return verdict_of(row, {});
  };
  EXPECT_EQ(verdict(0.995, 1.005, 0.9), Verdict::same);
  EXPECT_EQ(verdict(1.002, 1.008, 0.001), Verdict::same) << "significant, but too small to matter";
  EXPECT_EQ(verdict(0.995, 1.005, 0.9, 4), Verdict::unsure);
  EXPECT_EQ(verdict(1.02, 1.05, 0.001), Verdict::slower);
  EXPECT_EQ(verdict(1.02, 1.05, 0.06), Verdict::unsure);
  EXPECT_EQ(verdict(0.95, 0.98, 0.001), Verdict::faster);
  EXPECT_EQ(verdict(0.95, 1.02, 0.001), Verdict::unsure);
  const ComparedTime small{
      .a_samples = 20, .b_samples = 20, .interval = {1.02, 1.05, 0.95}, .p = 0.001, .allowance = 0.03};
  EXPECT_EQ(verdict_of(small, {}), Verdict::unsure) << "starting anew may do as much";
  EXPECT_EQ(name_of(Verdict::faster), "FASTER");
  EXPECT_EQ(name_of(Verdict::unsure), "UNSURE");
}

TEST(Compare, RunsAreMatchedByConfiguration) {
  MadeUpRun other_seed = with_seq(made_up_run({.seed = 2}), 128);
  other_seed.run.config.set("seed", 99);
  other_seed.run.config.set("threads", 7);
  const auto comparison =
      compare_runs({with_seq(made_up_run(), 64), with_seq(made_up_run({.scale = 2}), 128)},
                   {with_seq(made_up_run({.scale = 4, .seed = 2}), 256), other_seed});
  for (const auto& row : comparison.rows) {
    EXPECT_EQ(row.run, "T=128");
    EXPECT_EQ(row.verdict, is_small(row) ? Verdict::unsure : Verdict::faster) << row.subject;
  }
  EXPECT_TRUE(has_note(comparison, "only in the first record: 'T=64'"));
  EXPECT_TRUE(has_note(comparison, "only in the second record: 'T=256'"));
  EXPECT_TRUE(has_note(comparison, "T=128: threads: 0 / 7, seed: 0 / 99"));
}

TEST(Compare, StepsOfFewRunsCountTogether) {
  const auto comparison = compare_runs({made_up_run(), made_up_run({.seed = 3})}, {made_up_run({.seed = 2})});
  EXPECT_EQ(row_of(comparison, "step").a_samples, 40U);
  EXPECT_EQ(row_of(comparison, "forward/attention").a_samples, 40U);
  EXPECT_EQ(row_of(comparison, "step").b_samples, 20U);
  EXPECT_GE(row_of(comparison, "step").allowance, 0.02);
  EXPECT_TRUE(has_note(comparison, "fewer than four runs"));
}

TEST(Compare, AllowanceGrowsWithTheSpreadOfTheSteps) {
  // 8 % more, of steps that differ by 5 % among themselves: clear for the steps of these runs, not for the
  // next.
  const auto noisy = compare_runs({made_up_run({.noise = 0.05, .steps = 400})},
                                  {made_up_run({.scale = 1.08, .noise = 0.05, .steps = 400, .seed = 2})});
  const auto& step = row_of(noisy, "step");
  EXPECT_GT(step.interval.low, 1.03);
  EXPECT_LT(step.p, 0.001);
  EXPECT_GT(step.allowance, 0.08);
  EXPECT_EQ(step.verdict, Verdict::unsure);
}

TEST(Compare, RunsAreTheUnitWhenThereAreEnough) {
  const auto same = compare_runs(started(1, 0.1, 1), started(1, 0.1, 3));
  EXPECT_EQ(row_of(same, "step").a_samples, 8U);
  for (const auto& row : same.rows) {
    EXPECT_EQ(row.allowance, 0) << row.subject;
    EXPECT_NE(row.verdict, Verdict::slower) << row.subject;
    EXPECT_NE(row.verdict, Verdict::faster) << row.subject;
  }
  const auto slower = compare_runs(started(1, 0.02, 1), started(1.05, 0.02, 3));
  EXPECT_EQ(row_of(slower, "step").verdict, Verdict::slower);
  EXPECT_EQ(slower_steps(slower, 0.02).size(), 1U);
  // Pooled steps of the same runs would call a change of 4 % that is none: one run of each side was picked.
  const auto picked = compare_runs({made_up_run({.scale = 0.98})}, {made_up_run({.scale = 1.02, .seed = 2})});
  EXPECT_EQ(row_of(picked, "step").verdict, Verdict::slower);
}

TEST(Compare, OneRunOfEachIsTrustedByDevice) {
  const record::TemporaryFolder folder;
  const auto verdict = [&](const std::string& device, double scale) {
    MadeUpRun a = made_up_run();
    MadeUpRun b = made_up_run({.scale = scale, .seed = 2});
    a.run.config.set("device", device);
    b.run.config.set("device", device);
    std::filesystem::remove(folder / "a.rooflm");
    std::filesystem::remove(folder / "b.rooflm");
    return row_of(compare(write_record(folder / "a.rooflm", {a}), write_record(folder / "b.rooflm", {b}), {}),
                  "step")
        .verdict;
  };
  EXPECT_EQ(verdict("cpu", 1.2), Verdict::unsure);
  EXPECT_EQ(verdict("cpu", 1.6), Verdict::slower);
  EXPECT_EQ(verdict("cuda:0", 1.2), Verdict::slower);
  EXPECT_EQ(verdict("cuda:0", 1.02), Verdict::unsure);
}

TEST(Compare, SmallPartsOfSingleRunsAreNotJudged) {
  const auto loss_times = [](double factor) {
    return [factor](const MadeUpOp& op) { return std::string_view(op.scope) == "loss" ? factor : 1.0; };
  };
  const auto comparison = compare_runs({made_up_run({.factor = loss_times(0.05)})},
                                       {made_up_run({.seed = 2, .factor = loss_times(0.15)})});
  const auto& loss = row_of(comparison, "forward/loss");
  EXPECT_GT(loss.interval.low, 2.5);
  EXPECT_EQ(loss.verdict, Verdict::unsure) << "waking a thread takes as long";
}

TEST(Compare, SeveralRecordsMakeASide) {
  const record::TemporaryFolder folder;
  std::vector<record::Reader> a;
  std::vector<record::Reader> b;
  for (int i = 0; i < 4; ++i) {
    const auto seed = static_cast<std::uint64_t>(i);
    a.push_back(write_record(folder / fmt::format("a{}.rooflm", i), {made_up_run({.seed = 10 + seed})}));
    b.push_back(write_record(folder / fmt::format("b{}.rooflm", i),
                             {made_up_run({.scale = 0.5, .seed = 20 + seed})}));
  }
  const auto comparison = compare(a, b, {});
  EXPECT_EQ(row_of(comparison, "step").a_samples, 4U);
  EXPECT_EQ(row_of(comparison, "step").verdict, Verdict::faster);
}

TEST(Compare, OnABusyMachineNothingOfOneRunIsSure) {
  const auto busy = [](MadeUpRun run) {
    run.run.config.set("device", "cpu");
    run.facts.push_back({.key = "others_share", .value = 0.3, .unit = "share", .text = "busy machine: 30 %"});
    return run;
  };
  const auto comparison = compare_runs({made_up_run()}, {busy(made_up_run({.scale = 0.5, .seed = 2}))});
  EXPECT_EQ(row_of(comparison, "step").verdict, Verdict::unsure);
  EXPECT_TRUE(has_note(comparison, "b.rooflm, tiny made up: busy machine"));
  std::vector<MadeUpRun> a = started(1, 0.02, 1);
  std::vector<MadeUpRun> b = started(0.5, 0.02, 3);
  std::ranges::transform(a, a.begin(), busy);
  EXPECT_EQ(row_of(compare_runs(a, b), "step").verdict, Verdict::faster)
      << "noise is among the runs compared";
}

TEST(Compare, NotesNameARunByItsOwnLabel) {
  MadeUpRun mine = made_up_run();
  MadeUpRun other = made_up_run({.seed = 2});
  for (MadeUpRun* run : {&mine, &other}) {
    run->run.config.set("device", "cpu");
    run->facts.push_back({.key = "others_share", .value = 0.3, .unit = "share", .text = "busy"});
  }
  other.run.label = "the other one";
  const auto comparison = compare_runs({mine}, {other});
  EXPECT_TRUE(has_note(comparison, "a.rooflm, " + mine.run.label + ": busy"));
  EXPECT_TRUE(has_note(comparison, "b.rooflm, the other one: busy"));
}

TEST(Compare, TwoLonelyRunsAreComparedAndTheDifferencesSaid) {
  MadeUpRun eager = made_up_run({.scale = 2, .seed = 2});
  eager.run.config.set("engine", "eager");
  eager.ops[3].scope = "lm_head";
  const auto comparison = compare_runs({made_up_run()}, {eager});
  EXPECT_EQ(row_of(comparison, "step").verdict, Verdict::slower);
  EXPECT_TRUE(has_note(comparison, "engine: fused / eager"));
  EXPECT_TRUE(has_note(comparison, "without a time in both: forward/loss (A "));
}

TEST(Compare, RepeatedRunsOfTwoConfigurationsAreComparedByRuns) {
  const auto eager = [](std::vector<MadeUpRun> runs) {
    for (MadeUpRun& run : runs) run.run.config.set("engine", "eager");
    return runs;
  };
  const auto comparison = compare_runs(eager(started(1.05, 0.02, 1, 4)), started(1, 0.02, 3, 5));
  const ComparedTime& step = row_of(comparison, "step");
  EXPECT_EQ(step.a_samples, 4U);
  EXPECT_EQ(step.b_samples, 5U);
  EXPECT_EQ(step.allowance, 0);
  EXPECT_EQ(step.verdict, Verdict::faster);
  EXPECT_TRUE(has_note(comparison, "engine: eager / fused"));
  // A third configuration beside them: nobody knows which is meant.
  std::vector<MadeUpRun> mixed = eager(started(1, 0.02, 1, 4));
  mixed.push_back(with_seq(mixed.front(), 128));
  record::expect_input_error([&] { (void)compare_runs(mixed, started(1, 0.02, 3, 4)); },
                             {"share no configuration"});
  // Nor are runs with several numbers of threads samples of one time.
  mixed = eager(started(1, 0.02, 1, 4));
  mixed.front().run.config.set("threads", 3);
  record::expect_input_error([&] { (void)compare_runs(mixed, started(1, 0.02, 3, 4)); },
                             {"share no configuration"});
}

TEST(Compare, WithoutAnythingInCommonThereIsAnError) {
  const auto two = std::vector<MadeUpRun>{with_seq(made_up_run(), 64), with_seq(made_up_run(), 128)};
  record::expect_input_error(
      [&] { (void)compare_runs(two, {with_seq(made_up_run(), 256)}); },
      {"a.rooflm", "b.rooflm", "share no configuration", "'T=64', 'T=128'", "'T=256'"});
  record::expect_input_error([&] { (void)compare_runs({}, two); }, {"share no configuration", "no run"});
  MadeUpRun planned = made_up_run();
  planned.samples.clear();
  planned.events.clear();
  record::expect_input_error([&] { (void)compare_runs({planned}, {planned}); },
                             {"a.rooflm and", "hold no timed steps"});
  record::expect_input_error([&] { (void)compare_runs({planned}, {made_up_run()}); },
                             {"a.rooflm holds no timed steps"});
}

TEST(Compare, AConfigurationThatNoLongerRunsIsLost) {
  MadeUpRun oom = made_up_run();
  oom.samples.clear();
  oom.events.clear();
  oom.run.status = "oom";
  const auto comparison = compare_runs({made_up_run()}, {oom});
  EXPECT_EQ(comparison.lost, std::vector<std::string>{"tiny made up (oom)"});
  EXPECT_TRUE(comparison.rows.empty());
  EXPECT_TRUE(compare_runs({made_up_run(), with_seq(oom, 128)}, {made_up_run(), with_seq(made_up_run(), 128)})
                  .lost.empty());
}

TEST(Compare, AnsweringTwiceAnswersTheSame) {
  const auto first = compare_runs({made_up_run({.noise = 0.1})}, {made_up_run({.noise = 0.1, .seed = 2})});
  const auto second = compare_runs({made_up_run({.noise = 0.1})}, {made_up_run({.noise = 0.1, .seed = 2})});
  for (std::size_t i = 0; i < first.rows.size(); ++i) {
    EXPECT_EQ(first.rows[i].interval.low, second.rows[i].interval.low);
    EXPECT_EQ(first.rows[i].p, second.rows[i].p);
  }
}

}  // namespace
}  // namespace rooflm::report
