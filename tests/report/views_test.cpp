// Every view of made-up records: the numbers that it must show.
#include "report/views/views.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/statistics.h"
#include "report/findings/advice.h"
#include "report/findings/answers.h"
#include "report/findings/why.h"
#include "report/runs/sweep.h"
#include "tests/record/record_testing.h"
#include "tests/report/step_record.h"

namespace rooflm::report {
namespace {

const Table& table_of(const View& view, const std::string& id) {
  for (const ViewTable& table : view.tables) {
    if (table.id == id) return table.table;
  }
  throw std::runtime_error("view " + view.name + " has no table " + id);
}

/// The row whose cells hold these texts.
Row row_of(const Table& table, const std::vector<std::pair<std::string, std::string>>& texts) {
  for (const Row& row : table.rows) {
    const bool fits = std::all_of(texts.begin(), texts.end(),
                                  [&](const auto& text) { return row.text(text.first) == text.second; });
    if (fits) return row;
  }
  throw std::runtime_error("no such row");
}

TEST(Views, NamesAreKnownOrSuggested) {
  std::set<std::string_view> names;
  for (const ViewInfo& info : all_views()) EXPECT_TRUE(names.insert(info.name).second) << info.name;
  EXPECT_EQ(all_views().front().name, "overview");
  try {
    find_view("rooflin");
    FAIL();
  } catch (const core::UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'roofline'"), std::string::npos);
  }
}

TEST(Views, EveryViewOfAnEmptyRecordSaysWhatIsMissing) {
  const RecordSet set;
  for (const ViewInfo& info : all_views()) {
    const View view = make_view(info.name, set);
    EXPECT_TRUE(view.tables.empty()) << info.name;
    EXPECT_NE(view.note.find("needs"), std::string::npos) << info.name;
  }
}

TEST(Views, EveryViewOfARunThatDidNotFitIsMade) {
  const RecordSet set = load_steps({{.status = "oom"}});
  for (const ViewInfo& info : all_views()) EXPECT_NO_THROW(make_view(info.name, set)) << info.name;
  EXPECT_EQ(make_view("sweep", set).tables.at(0).table.rows.at(0).text("status"), "oom");
}

TEST(Views, PhasesAndOverview) {
  const RecordSet set = load_steps({{}});
  const View phases = make_view("phases", set);
  const Row backward = row_of(table_of(phases, "phases"), {{"phase", "backward"}});
  EXPECT_NEAR(backward.number("median_s"), 0.6e-3, 1e-12);
  EXPECT_NEAR(backward.number("share_of_step"), 0.6, 1e-9);
  // Roof: half of 2 (20 + 200 + 200 + 400 + 200 + 600) T ... = half of 7200 ns, at T = 10.
  EXPECT_NEAR(backward.number("roof_s"), 3600e-9, 1e-13);
  ASSERT_EQ(phases.charts.size(), 1U);
  EXPECT_EQ(phases.charts[0].series.size(), 3U);
  const View overview = make_view("overview", set);
  EXPECT_NEAR(row_of(table_of(overview, "overview"), {{"what", "MFU"}}).number("value"), 0.4, 1e-9);
  EXPECT_EQ(row_of(table_of(overview, "overview"), {{"what", "stop reason"}}).text("shown"),
            "interval within 1 %");
  EXPECT_EQ(table_of(overview, "overview.machine").rows.at(0).text("value"), "imaginary & <fast>");
}

/// The rate of MFU is that of all ranks, the peak that of one.
TEST(Views, TheFormulaOfMfuHasTheRanks) {
  RecordSet set = load_steps({{}});
  const auto shown = [&] {
    return row_of(table_of(make_view("overview", set), "overview"), {{"what", "MFU"}}).text("shown");
  };
  EXPECT_NE(shown().find("40.0% = (6N + 12 L C T) tokens/s / 10.0 Gflop/s ("), std::string::npos) << shown();
  set.runs[0].run.config.set("dp", 2);
  EXPECT_NE(shown().find("20.0% = (6N + 12 L C T) tokens/s / (2 ranks x 10.0 Gflop/s) ("), std::string::npos)
      << shown();
}

TEST(Views, BlocksAndGap) {
  const RecordSet set = load_steps({{}});
  const View view = make_view("blocks", set);
  const Row attention = row_of(table_of(view, "blocks"), {{"phase", "forward"}, {"block", "attention"}});
  EXPECT_NEAR(attention.number("device_s"), 3400e-9, 1e-15);
  // The step: 3 x (3400 + 200) + 500 ns.
  EXPECT_NEAR(attention.number("time_share"), 3400.0 / 11300.0, 1e-9);
  EXPECT_NEAR(attention.number("share"), 0.5, 1e-9);
  EXPECT_EQ(table_of(view, "blocks.parts").rows.size(), 10U);
  const Row gap =
      row_of(table_of(make_view("gap", set), "gap"), {{"phase", "forward"}, {"block", "attention"}});
  EXPECT_NEAR(gap.number("gap_s"), 100e-9, 1e-15);
}

TEST(Views, KernelsHaveTheColumnsOfNsys) {
  const RecordSet set = load_steps({{}});
  const Table table = table_of(make_view("ops", set), "ops");
  const Row softmax = row_of(table, {{"phase", "forward"}, {"name", "softmax_fp32"}});
  // 200 ns in two layers, in three steps with factors 1, 2, 1.
  EXPECT_EQ(softmax.number("instances"), 6);
  EXPECT_NEAR(softmax.number("total_s"), 1600e-9, 1e-15);
  EXPECT_NEAR(softmax.number("avg_s"), 1600e-9 / 6, 1e-15);
  EXPECT_NEAR(softmax.number("med_s"), 200e-9, 1e-15);
  EXPECT_NEAR(softmax.number("min_s"), 200e-9, 1e-15);
  EXPECT_NEAR(softmax.number("max_s"), 400e-9, 1e-15);
  EXPECT_NEAR(softmax.number("std_s"), 103.2795559e-9, 1e-15);
  double share = 0;
  for (const Row& row : table.rows) share += row.number("time_share");
  EXPECT_NEAR(share, 1, 1e-9);
  const Table top = table_of(make_view("ops", set, {.top = 2}), "ops");
  EXPECT_EQ(top.rows.size(), 2U);
  EXPECT_EQ(top.notes.size(), 1U);
}

TEST(Views, VariantsThatDifferAreCounted) {
  RecordSet set = load_steps({{}});
  const auto variant = [&] {
    return row_of(table_of(make_view("ops", set), "ops"), {{"phase", "forward"}, {"name", "softmax_fp32"}})
        .text("variant");
  };
  for (TimedOp& timed : set.runs[0].ops) timed.op.variant = "64 x 64";
  EXPECT_EQ(variant(), "64 x 64");
  for (TimedOp& timed : set.runs[0].ops) timed.op.variant = timed.op.scope;
  EXPECT_EQ(variant(), "2 variants") << "one per layer";
}

TEST(Views, ClassesAndAttention) {
  const RecordSet set = load_steps({{}});
  for (const char* view : {"classes", "attention"}) {
    const Table table = table_of(make_view(view, set), view);
    const auto share = std::ranges::find(table.columns, "step_share", &Column::key);
    ASSERT_NE(share, table.columns.end());
    EXPECT_EQ(share->title, "of kernels") << "the whole is the time in kernels, not that of the step";
  }
  const Row softmax = row_of(table_of(make_view("classes", set), "classes"), {{"class", "softmax"}});
  EXPECT_NEAR(softmax.number("forward_share"), 400.0 / 3600.0, 1e-9);
  EXPECT_NEAR(softmax.number("step_s"), 1200e-9, 1e-15);
  const Row qk =
      row_of(table_of(make_view("attention", set), "attention"), {{"phase", "forward"}, {"part", "qk"}});
  EXPECT_NEAR(qk.number("time_share"), 100.0 / 1700.0, 1e-9);
  // Products count 10 flop per ns, softmax one.
  EXPECT_NEAR(qk.number("flop_share"), 1000.0 / 15200.0, 1e-9);
}

TEST(Views, InstancesAreExplained) {
  RecordSet set = load_steps({{}});
  const Table table = table_of(make_view("instances", set), "instances");
  const Row matmul = row_of(table, {{"phase", "forward"}, {"kernel", "matmul_fp32"}});
  EXPECT_EQ(matmul.number("count"), 8);
  EXPECT_EQ(matmul.number("per_layer"), 4);
  EXPECT_EQ(matmul.text("explained"), "2 x 4");
  EXPECT_EQ(matmul.number("observed"), 24);
  EXPECT_EQ(row_of(table, {{"phase", "optimizer"}}).text("explained"), "1 outside the layers");
  set.runs[0].ops[0].op.kernel = "matmul_fp32";  // the norm of layer 0
  const Table uneven = table_of(make_view("instances", set), "instances");
  EXPECT_EQ(row_of(uneven, {{"phase", "forward"}, {"kernel", "matmul_fp32"}}).text("explained"),
            "uneven: 4 to 5 in 2 layers");
}

TEST(Views, RooflineHasRoofsAndMarks) {
  const View view = make_view("roofline", load_steps({{}}));
  const Row step = row_of(table_of(view, "roofline"), {{"subject", "whole step"}});
  EXPECT_NEAR(step.number("measured_s"), 1e-3, 1e-12);
  EXPECT_NEAR(step.number("roof_s"), 5650e-9, 1e-13);
  EXPECT_EQ(table_of(view, "roofline.ceilings").rows.size(), 2U);
  ASSERT_EQ(view.charts.size(), 1U);
  const auto lines = std::count_if(view.charts[0].series.begin(), view.charts[0].series.end(),
                                   [](const Series& series) { return series.is_line; });
  EXPECT_EQ(lines, 2);
}

TEST(Views, SharesAboveTheRoofAreExplainedByCeilingsUnderLoad) {
  RecordSet set = load_steps({{}});
  RunData& run = set.runs[0];
  run.run.config.set("threads", 2);
  const auto notes = [&] { return table_of(make_view("roofline", set), "roofline").notes; };
  for (record::Ceiling& ceiling : run.ceilings) {
    if (ceiling.what == "matmul") ceiling.source = "measured under load: other programs used 48.0 %";
  }
  EXPECT_TRUE(notes().empty()) << "nothing beats its roof";
  for (TimedOp& timed : run.ops) *timed.roof_s *= 3;
  ASSERT_EQ(notes().size(), 1U);
  EXPECT_EQ(notes()[0], "share above 100 %: uncertain ceilings are too low (matmul fp32)");
  for (record::Ceiling& ceiling : run.ceilings) ceiling.source = "measured";
  EXPECT_TRUE(notes().empty()) << "no ceiling was measured under load";
}

TEST(Views, MemoryAndSaved) {
  const RecordSet set = load_steps({{}});
  const View view = make_view("memory", set, {.top = 1});
  EXPECT_EQ(row_of(table_of(view, "memory"), {{"phase", "forward"}}).number("live_bytes"), 200);
  const Table& holders = table_of(view, "memory.holders");
  ASSERT_EQ(holders.rows.size(), 1U);
  EXPECT_EQ(holders.rows[0].text("tensor"), "w");
  EXPECT_NE(holders.notes.at(0).find("2 more tensors hold 100 B"), std::string::npos);
  EXPECT_EQ(table_of(make_view("saved", set), "saved").rows.at(0).number("bytes"), 40);
  EXPECT_EQ(table_of(make_view("allocator", set), "allocator").rows.at(0).text("shown"), "228 B");
}

TEST(Views, OverheadInputAndSamples) {
  RecordSet set = load_steps({{}});
  const Row step = row_of(table_of(make_view("overhead", set), "overhead"), {{"phase", "step"}});
  const std::vector<std::string> notes = table_of(make_view("overhead", set), "overhead").notes;
  EXPECT_NE(std::ranges::find(notes, "Sampling stopped: interval within 1 %"), notes.end());
  EXPECT_NEAR(step.number("cost"), 0.1, 1e-9);
  const Row wait = row_of(table_of(make_view("input", set), "input"), {{"what", "of the step"}});
  EXPECT_NEAR(wait.number("value"), 0.01, 1e-9);
  EXPECT_NEAR(step.number("plain_mean_s"), core::mean(kPlainSteps), 1e-12);
  EXPECT_NEAR(step.number("plain_std_s"), core::sample_std(kPlainSteps), 1e-12);
  EXPECT_NEAR(step.number("observed_mean_s"), 1.1e-3, 1e-12);
  EXPECT_NEAR(step.number("observed_std_s"), 0, 1e-12);
  set.runs[0].facts.push_back({.key = "input_bytes", .value = 2000, .unit = "B"});
  set.runs[0].facts.push_back(
      {.key = "disk_byte_per_s", .value = 8e6, .unit = "byte/s", .text = "past the page cache"});
  const View of_input = make_view("input", set);
  const Table& input = table_of(of_input, "input");
  // 2000 bytes in a step of a millisecond, of 8 MB/s.
  EXPECT_NEAR(row_of(input, {{"what", "bytes of text per second"}}).number("value"), 2e6, 1e-3);
  EXPECT_NEAR(row_of(input, {{"what", "of the disk"}}).number("value"), 0.25, 1e-9);
  EXPECT_EQ(input.notes.back(), "disk: past the page cache");
  EXPECT_EQ(table_of(make_view("samples", set), "samples").rows.size(), 4 * (1 + kPlainSteps.size() + 3));
}

TEST(Views, SeveralRunsShareTheirTables) {
  const RecordSet set = load_steps({{.seq = 10}, {.seq = 20}, {.seq = 20}});
  const View view = make_view("phases", set);
  ASSERT_EQ(view.tables.size(), 1U);
  EXPECT_EQ(view.tables[0].table.rows.size(), 12U);
  EXPECT_EQ(view.tables[0].table.columns[0].key, "which");
  EXPECT_EQ(view.tables[0].table.rows[0].cells()[0].first, "run");
  EXPECT_EQ(view.tables[0].table.rows[11].text("run"), "made-up T=20 fp32 (2)");
  EXPECT_EQ(view.tables[0].table.rows[11].text("which"), "T=20 (2)");
  ASSERT_EQ(view.charts.size(), 1U);  // one chart over all runs
  EXPECT_EQ(view.charts[0].x.categories.size(), 3U);
}

RunData run_of(const std::string& label, std::initializer_list<std::pair<const char*, const char*>> config,
               const std::string& kind = "step") {
  RunData data;
  data.run.label = label;
  data.run.kind = kind;
  for (const auto& [key, value] : config) data.run.config.set(key, value);
  return data;
}

TEST(Views, NamesOfRunsSayTheFewestSettingsThatDiffer) {
  std::vector<RunData> runs;
  runs.push_back(run_of("tiny fused", {{"model", "tiny"}, {"layers", "4"}, {"dtype", "fp32"}}));
  runs.push_back(run_of("gpt2 fused", {{"model", "gpt2"}, {"layers", "12"}, {"dtype", "fp32"}}));
  runs.push_back(run_of("their program", {}, "foreign"));
  EXPECT_EQ(varying(runs_of(runs)), (std::vector<std::string>{"model", "layers"}))
      << "a foreign program has neither";
  EXPECT_EQ(telling(runs_of(runs)), std::vector<std::string>{"model"});
  EXPECT_TRUE(configuration(runs[2].run).empty());
  std::vector<RunName> names = run_names(runs);
  EXPECT_EQ(names[0].which, "tiny");
  EXPECT_EQ(names[2].which, "their program");
  runs.push_back(
      run_of("tiny fused", {{"model", "tiny"}, {"layers", "4"}, {"dtype", "fp32"}, {"warmup", "5"}}));
  runs.push_back(
      run_of("tiny fused", {{"model", "tiny"}, {"layers", "4"}, {"dtype", "fp32"}, {"warmup", "5"}}));
  names = run_names(runs);
  EXPECT_EQ(names[0].label, "tiny fused, warmup=2");
  EXPECT_EQ(names[3].label, "tiny fused, warmup=5");
  EXPECT_EQ(names[4].label, "tiny fused, warmup=5 (2)");
  EXPECT_EQ(names[4].which, "tiny warmup=5 (2)");
}

TEST(Views, GrowthFindsLinearAndQuadraticParts) {
  const View view = make_view("growth", load_steps({{.seq = 40}, {.seq = 10}, {.seq = 20}}));
  const Table& table = table_of(view, "growth");
  const Row qk = row_of(table, {{"phase", "forward"}, {"subject", "attention/qk"}});
  EXPECT_NEAR(qk.number("exponent"), 2, 1e-9);
  EXPECT_NEAR(qk.number("expected"), 2, 1e-9);
  EXPECT_NEAR(qk.number("r2"), 1, 1e-9);
  EXPECT_NEAR(row_of(table, {{"phase", "backward"}, {"subject", "attention/qkv"}}).number("exponent"), 1,
              1e-9);
  EXPECT_NEAR(row_of(table, {{"phase", "optimizer"}, {"subject", "optimizer"}}).number("expected"), 0, 1e-9);
  EXPECT_EQ(row_of(table, {{"phase", "step"}}).text("range"), "10..40");
  EXPECT_EQ(view.charts.at(0).series.at(0).points.front().x, 10);
  EXPECT_TRUE(make_view("growth", load_steps({{.seq = 10}})).tables.empty());
}

TEST(Views, SweepAndPrecision) {
  const RecordSet set =
      load_steps({{.seq = 10}, {.seq = 10, .dtype = "bf16", .speed = 2}, {.status = "oom"}});
  const Table precision = table_of(make_view("precision", set), "precision");
  const Row step = row_of(precision, {{"subject", "step"}, {"dtype", "bf16"}});
  EXPECT_EQ(step.text("against"), "fp32");
  EXPECT_NEAR(step.number("speedup"), 2, 1e-9);
  EXPECT_LE(step.number("ci_low"), 2);
  EXPECT_GE(step.number("ci_high"), 2);
  EXPECT_NEAR(step.number("memory_ratio"), 1, 1e-9);
  const Table sweep = table_of(make_view("sweep", set), "sweep");
  ASSERT_EQ(sweep.rows.size(), 3U);
  EXPECT_EQ(sweep.columns[0].key, "dtype");
  EXPECT_NEAR(sweep.rows[1].number("step_s"), 0.5e-3, 1e-12);
}

TEST(Views, APartialRecordIsCalledOne) {
  RecordSet set;
  set.files.push_back({.name = "cut.rooflm"});
  EXPECT_NE(make_view("overview", set).note.find("cut.rooflm is partial"), std::string::npos);
  set.files[0].is_complete = true;
  EXPECT_EQ(make_view("overview", set).note.find("partial"), std::string::npos);
}

TEST(Views, CellsBecomeTables) {
  const record::TemporaryFolder folder;
  {
    record::Writer writer(folder / "a.rooflm", "study");
    writer.add(std::vector<record::Cell>{{"gemm", 0, "m", 64, "", ""},
                                         {"gemm", 0, "time", 1e-3, "", "s"},
                                         {"gemm", 1, "m", 128, "", ""},
                                         {"gemm", 1, "time", {}, "too large", "s"},
                                         {"ranks", 0, "waiting_us", 283.3001, "", ""}});
    writer.finish();
  }
  const View view = make_view("cells", load(std::vector<std::filesystem::path>{folder / "a.rooflm"}));
  const Table& table = table_of(view, "cells.gemm");
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_EQ(table.rows[0].number("time"), 1e-3);
  EXPECT_EQ(table.rows[1].text("time"), "too large");
  const Column& waiting = table_of(view, "cells.ranks").columns.front();
  EXPECT_EQ(waiting.title + " " + waiting.unit, "waiting [us] us")
      << "by its key: it may be 0, and has no unit";
}

TEST(Views, SquareProductsAreALineOverTheirSize) {
  const record::TemporaryFolder folder;
  {
    record::Writer writer(folder / "a.rooflm", "study gemm");
    std::vector<record::Cell> cells;
    for (const std::int64_t row : {0, 1, 2, 3}) {
      const double side = row < 2 ? 64 : 128;
      for (const char* extent : {"m", "n", "k"}) cells.push_back({"gemm", row, extent, side, "", ""});
      cells.push_back({"gemm", row, "strategy", {}, row % 2 == 0 ? "big" : "looped", ""});
      cells.push_back({"gemm", row, "rate", 1e9 * static_cast<double>(row + 1), "", "flop/s"});
    }
    writer.add(cells);
    writer.finish();
  }
  const View view = make_view("cells", load(std::vector<std::filesystem::path>{folder / "a.rooflm"}));
  ASSERT_EQ(view.charts.size(), 1U);
  ASSERT_EQ(view.charts[0].series.size(), 2U) << "m and k are n, and tell no lines apart";
  EXPECT_EQ(view.charts[0].series[0].name, "big");
  EXPECT_EQ(view.charts[0].series[0].points.size(), 2U);
}

TEST(Views, StudiesHaveTheirTitleAndCharts) {
  const record::TemporaryFolder folder;
  {
    record::Writer writer(folder / "a.rooflm", "study attention_sweep");
    writer.add(record::Environment{.key = "study", .value = "Attention by length", .unit = {}});
    writer.add(record::Environment{.key = "question", .value = "When does flash pay?", .unit = {}});
    std::vector<record::Cell> cells;
    for (std::int64_t row = 0; row < 4; ++row) {
      const bool is_flash = row % 2 == 1;
      cells.push_back({"attention", row, "head_dim", 64, "", ""});  // the same in all rows: not named
      cells.push_back({"attention", row, "seq", row < 2 ? 128.0 : 256.0, "", ""});
      cells.push_back({"attention", row, "attention", {}, is_flash ? "flash" : "batched", ""});
      if (row == 2) continue;  // out of memory
      cells.push_back({"attention", row, "forward_ms", 1.0 + static_cast<double>(row), "", "ms"});
    }
    writer.add(cells);
    writer.finish();
  }
  const RecordSet set = load(std::vector<std::filesystem::path>{folder / "a.rooflm"});
  const View view = make_view("cells", set);
  ASSERT_EQ(view.tables.size(), 1U);
  EXPECT_EQ(view.tables[0].title, "Attention by length");
  EXPECT_EQ(study_of(set).question, "When does flash pay?");
  ASSERT_EQ(view.charts.size(), 1U);  // only forward_ms was measured
  const Chart& chart = view.charts[0];
  ASSERT_EQ(chart.series.size(), 2U);
  EXPECT_EQ(chart.series[0].name, "batched");
  EXPECT_EQ(chart.series[0].points.size(), 1U);
  EXPECT_EQ(chart.series[1].name, "flash");
  ASSERT_EQ(chart.series[1].points.size(), 2U);
  EXPECT_EQ(chart.series[1].points[1].x, 256);
  EXPECT_EQ(chart.series[1].points[1].y, 4);
}

TEST(Advice, RanksByWhatCouldBeWon) {
  const RecordSet set = load_steps({{.seq = 100}});
  const std::vector<Advice> advice = advise(set, 3);
  ASSERT_EQ(advice.size(), 2U) << "one sentence for each remedy";
  // qk, softmax and v: 2 layers x 4 T^2 ns, twice that backward, half of it above the roof.
  EXPECT_NEAR(advice[0].gain_s, 120e-6, 1e-12);
  EXPECT_EQ(advice[0].subject, "h.*/attention/softmax backward, h.*/attention/softmax forward and 4 more");
  EXPECT_NE(advice[0].text.find("--attention flash"), std::string::npos);
  EXPECT_NE(advice[0].text.find("kernel softmax_fp32"), std::string::npos) << advice[0].text;
  EXPECT_NE(advice[0].text.find("At most"), std::string::npos);
  // qkv and proj: 130 T ns.
  EXPECT_NEAR(advice[1].gain_s, 39e-6, 1e-12);
  EXPECT_EQ(advice[1].setting + "=" + advice[1].value, "engine=fused");
  EXPECT_TRUE(advise(load_steps({{.status = "oom"}})).empty());
}

TEST(Advice, LeavesOutWhatAnotherRunDoes) {
  const RecordSet both = load_steps({{.seq = 100}, {.seq = 100, .attention = "flash"}});
  for (const Advice& advice : advise(both)) EXPECT_NE(advice.setting, "attention") << advice.text;
  const View view = make_view("advice", both);
  const Table& table = table_of(view, "advice");
  EXPECT_EQ(table.rows.size(), advise(both).size());
  std::set<std::string> texts;
  for (const Row& row : table.rows) EXPECT_TRUE(texts.insert(row.text("which") + row.text("text")).second);
}

TEST(Advice, GainsTooSmallForASentenceAreNoMissingSteps) {
  const RecordSet set = load_steps({{}});
  ASSERT_TRUE(advise(set).empty());
  EXPECT_EQ(make_view("advice", set).note,
            "No advice: nothing that is known of these steps shows a gain of 0.5 % of the step or more.");
  const RecordSet untimed = load_steps({{.status = "oom"}});
  EXPECT_NE(make_view("advice", untimed).note.find("needs observed steps"), std::string::npos);
}

/// What ranks send each other is bound by links and by the slowest rank: nothing of a kernel helps.
TEST(Advice, CommunicationIsNoSlowKernel) {
  const std::vector<Advice> advice = advise(load_steps({{.seq = 10, .gradients_ns = 200'000}}));
  ASSERT_FALSE(advice.empty());
  EXPECT_EQ(advice[0].subject, "h.*/gradients backward") << "alone: no other part is of that kind";
  EXPECT_NE(advice[0].text.find("waiting for other ranks"), std::string::npos) << advice[0].text;
  EXPECT_NEAR(advice[0].gain_s, 200e-6, 1e-12) << "two layers, half of each above the roof";
  const auto hidden = advise(load_steps({{.seq = 10, .gradients_ns = 200'000, .exposed_s = 50e-6}}));
  EXPECT_EQ(hidden.at(0).gain_s, 50e-6) << "what computation hides cannot be won";
}

TEST(Why, CommunicationIsACauseOfItsOwn) {
  const RecordSet set = load_steps({{.seq = 10, .gradients_ns = 200'000}});
  const std::vector<Why> parts = why_of(set.runs.front());
  const auto gradients = std::ranges::find(parts, "gradients", &Why::name);
  ASSERT_NE(gradients, parts.end());
  EXPECT_EQ(gradients->bound(), Cause::communication);
  EXPECT_NEAR(gradients->of(Cause::communication), 400e-6, 1e-12) << "all of it";
  EXPECT_EQ(gradients->needed_s(), 0);
  for (const Why& part : parts) {
    if (part.name != "gradients") {
      EXPECT_EQ(part.of(Cause::communication), 0) << part.name;
    }
  }
  const auto causes = [](const RecordSet& of) {
    std::set<std::string> names;
    const View view = make_view("why", of);
    for (const Row& row : table_of(view, "why.causes").rows) names.insert(row.text("cause"));
    return names;
  };
  EXPECT_TRUE(causes(set).contains("communication"));
  EXPECT_FALSE(causes(load_steps({{.seq = 10}})).contains("communication")) << "of one rank";
}

TEST(Advice, NamesTheRateOfAnotherDtype) {
  RecordSet set = load_steps({{.seq = 100}});
  set.runs.front().ceilings.push_back(
      {.what = "matmul", .dtype = "bf16", .threads = 2, .value = 3e10, .unit = "flop/s"});
  const std::vector<Advice> advice = advise(set);
  const auto found = std::ranges::find(advice, "dtype", &Advice::setting);
  ASSERT_NE(found, advice.end());
  EXPECT_NE(found->text.find("in bf16 they run at 3.0 times the rate here (--dtype bf16)"), std::string::npos)
      << found->text;
}

}  // namespace
}  // namespace rooflm::report
