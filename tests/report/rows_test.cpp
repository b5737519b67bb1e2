// The rows of train, gemm, attention and peaks, from what a record has.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "core/error.h"
#include "record/missing_peak.h"
#include "report/model/run_figures.h"
#include "report/runs/generation.h"
#include "report/tables/bench_rows.h"
#include "report/tables/ceiling_rows.h"
#include "report/tables/column_choice.h"
#include "report/tables/micro_rows.h"
#include "report/tables/train_rows.h"

namespace rooflm::report {
namespace {

RunData training() {
  RunData run;
  run.run.kind = "train";
  run.run.status = "interrupted";
  run.run.config.set("model", "tiny");
  run.run.config.set("params", 1000);
  const auto fact = [&](const char* key, double value) {
    run.facts.push_back({.key = key, .value = value, .unit = {}, .text = {}});
  };
  fact("tokens", 64);
  fact("model_flop", 4e9);
  fact("peak_flop_per_s", 16e9);
  fact("train_s", 5);
  fact("trained_steps", 10);
  fact("step", 12);
  fact("val_loss", 2);
  return run;
}

TEST(TrainRows, SpeedIsOfAllStepsOfTheProcess) {
  const RunData run = training();
  ASSERT_TRUE(is_training(run));
  const Row row = train_columns().row(run);
  EXPECT_DOUBLE_EQ(row.number("tokens_per_s"), 128);  // 640 tokens in 5 s
  EXPECT_DOUBLE_EQ(row.number("mfu"), 0.5);           // 4 GFLOP in 0.5 s of 16 GFLOP/s
  EXPECT_DOUBLE_EQ(row.number("val_perplexity"), std::exp(2.0));
  EXPECT_EQ(row.text("status"), "stopped");
  EXPECT_EQ(*row.find("step"), Cell(std::int64_t{12}));
}

TEST(TrainRows, WhatIsNotKnownIsNull) {
  RunData run = training();
  std::erase_if(run.facts, [](const record::Fact& fact) { return fact.key == "trained_steps"; });
  const Row row = train_columns().row(run);
  for (const char* key : {"tokens_per_s", "mfu", "loss", "loss_scale", "skipped_steps", "checkpoint"}) {
    EXPECT_EQ(*row.find(key), Cell()) << key;
  }
  EXPECT_FALSE(is_training(RunData{}));
}

/// Before anything is measured: what only some runs have may be asked for, too.
TEST(BenchRows, AllColumnsAreKnownBeforehand) {
  const Table table{.columns = columns_of_bench(), .rows = {}, .notes = {}};
  const std::array tables = {&table};
  for (const char* name : {"of_peak", "mfu", "free", "speed-up", "recompute", "forward_mean", "dtype"}) {
    EXPECT_NO_THROW(check_columns({.names = {name}}, tables)) << name;
  }
  EXPECT_THROW(check_columns({.names = {"of_peek"}}, tables), core::UsageError);
}

/// A run of `bench` of so many steps of `seconds`.
RunData benched(const char* engine, double clip, double seconds) {
  RunData run;
  run.run.kind = "bench";
  run.run.status = "success";
  run.run.config.set("model", "tiny");
  run.run.config.set("engine", engine);
  run.run.config.set("clip", clip);
  for (int step = 0; step < 3; ++step) {
    run.samples.push_back({.step = step, .phase = "step", .seconds = seconds});
  }
  return run;
}

TEST(BenchRows, WhatRowsDifferInIsAColumnAndNoEngineIsComparedAcrossIt) {
  RecordSet set;
  set.runs = {benched("eager", 0, 0.3), benched("eager", 1, 0.4), benched("fused", 1, 0.2)};
  const Table table = bench_table(set);
  EXPECT_TRUE(std::ranges::any_of(table.columns, [](const Column& column) { return column.key == "clip"; }));
  EXPECT_FALSE(std::ranges::any_of(table.columns, [](const Column& column) { return column.key == "seed"; }));
  EXPECT_DOUBLE_EQ(table.rows.at(2).number("speedup_over_eager"), 2);
  set.runs.erase(set.runs.begin() + 1);
  EXPECT_EQ(*bench_table(set).rows.at(1).find("speedup_over_eager"), Cell()) << "eager did not clip";
}

/// Of a peak of 100 GFLOP/s, measured to 5 %.
RunData with_peak(double needed_flop_per_s) {
  RunData run = benched("fused", 0, 1);
  run.facts = {{.key = "peak_flop_per_s", .value = 100e9, .unit = "flop/s", .text = "sustained"},
               {.key = "matmul_flop", .value = 90e9, .unit = "flop", .text = ""},
               {.key = "needed_matmul_flop", .value = needed_flop_per_s, .unit = "flop", .text = ""}};
  run.ceilings = {{.device = "cpu",
                   .what = "matmul",
                   .dtype = "fp32",
                   .threads = 2,
                   .value = 100e9,
                   .unit = "flop/s",
                   .ci_low = 95e9,
                   .ci_high = 105e9,
                   .samples = 9,
                   .source = "measured"}};
  return run;
}

TEST(BenchRows, WhatIsNoPeakDividesNothing) {
  const auto share_of = [](const RunData& run, std::string_view note) {
    RecordSet set;
    set.runs = {run};
    const Table table = bench_table(set);
    EXPECT_TRUE(std::ranges::any_of(table.columns, [](const Column& column) {
      return column.key == "share_of_peak";
    })) << "shown as -";
    EXPECT_TRUE(std::ranges::any_of(table.notes, [&](const std::string& line) {
      return line.starts_with(note);
    })) << note;
    return *table.rows.at(0).find("share_of_peak");
  };
  EXPECT_EQ(share_of(with_peak(80e9), "peak of"), Cell(0.9));
  const std::string none = "no of_peak and no MFU: 100 Gflop/s of ";
  EXPECT_EQ(share_of(with_peak(120e9), none), Cell()) << "the step computes faster";
  RunData loaded = with_peak(80e9);
  loaded.ceilings[0].source = "measured under load: other programs used 60.0 % of the processors";
  EXPECT_EQ(share_of(loaded, none), Cell());
  EXPECT_EQ(why_no_peak(loaded), loaded.ceilings[0].source);
  RunData wide = with_peak(80e9);
  wide.ceilings[0].ci_high = 125e9;
  EXPECT_EQ(share_of(wide, none), Cell());
  RunData beaten = with_peak(80e9);
  TimedOp op;
  op.op.name = "fc1";
  op.bound = "matmul fp32";
  op.roof_s = 0.5;
  op.time = record::OpTime{.device_s = 0.48};
  beaten.ops = {op};
  EXPECT_EQ(why_no_peak(beaten), "") << "104 GFLOP/s: within the interval";
  beaten.ops[0].time->device_s = 0.25;
  EXPECT_EQ(share_of(beaten, none), Cell());
  EXPECT_EQ(why_no_peak(beaten), "op 0 fc1 computes at 200 GFLOP/s");
}

TEST(BenchRows, NotesSayWhatIsOfMedians) {
  RecordSet set;
  set.runs = {benched("eager", 0, 0.3)};
  const Table table = bench_table(set);
  const auto times = std::ranges::find_if(
      table.notes, [](const std::string& note) { return note.starts_with("Times: wall time"); });
  ASSERT_NE(times, table.notes.end());
  EXPECT_TRUE(times->ends_with("bwd/fwd and tokens/s are of medians.")) << *times;
}

/// Counts are those of all rows, not of the first.
TEST(BenchRows, NotesCountTheStepsAndThreadsOfAllRows) {
  const auto note_of = [](const RecordSet& set) {
    for (const std::string& note : bench_table(set).notes) {
      if (note.starts_with("Times: wall time")) return note;
    }
    return std::string();
  };
  RecordSet set;
  set.runs = {benched("eager", 0, 0.3), benched("fused", 0, 0.2)};
  for (RunData& run : set.runs) run.run.config.set("threads", 1);
  EXPECT_NE(note_of(set).find("of 3 steps after 0 warm-up steps, 1 thread, no observer"), std::string::npos)
      << note_of(set);
  set.runs[1].run.config.set("threads", 8);
  set.runs[1].samples.push_back({.step = 3, .phase = "step", .seconds = 0.2});
  EXPECT_NE(note_of(set).find("of 3 to 4 steps after 0 warm-up steps, 1 to 8 threads, no observer"),
            std::string::npos)
      << note_of(set);
}

TEST(BenchRows, ANoteSaysWhereNeighbouringStepsResembleEachOther) {
  const auto has_note = [](const RecordSet& set) {
    return std::ranges::any_of(bench_table(set).notes, [](const std::string& note) {
      return note.find("neighbouring steps resemble each other (correlation of ranks 0.85)") != note.npos;
    });
  };
  RecordSet set;
  set.runs = {benched("eager", 0, 0.3)};
  RunData& run = set.runs.front();
  run.facts.push_back({.key = "stop_reason", .value = {}, .unit = {}, .text = "20 samples"});
  run.samples.clear();
  for (int step = 0; step < 20; ++step) {
    run.samples.push_back({.step = step, .phase = "step", .seconds = 0.3 + 0.001 * step});
  }
  EXPECT_TRUE(has_note(set));
  for (record::Sample& sample : run.samples)
    sample.seconds = 0.3 + 0.001 * static_cast<double>(sample.step * 7 % 20);
  EXPECT_FALSE(has_note(set));
}

/// One decimal says nothing of steps that take microseconds.
TEST(BenchRows, ShortTimesHaveMoreDecimals) {
  const auto total_of = [](double eager_s, double fused_s) {
    RecordSet set;
    set.runs = {benched("eager", 1, eager_s), benched("fused", 1, fused_s)};
    const Table table = bench_table(set);
    const auto total = std::ranges::find(table.columns, "step_ms_mean", &Column::key);
    const auto line = std::ranges::find_if(
        table.notes, [](const std::string& note) { return note.find("as fast as eager") != note.npos; });
    return format_cell(*table.rows.at(1).find("step_ms_mean"), total->show) + line->substr(line->rfind(':'));
  };
  EXPECT_EQ(total_of(0.4, 0.2), "200.0: 200.0 ms and 400.0 ms per step");
  EXPECT_EQ(total_of(0.4, 0.0005), "0.50: 0.50 ms and 400.00 ms per step");
  EXPECT_EQ(total_of(0.0001, 0.00005), "0.050: 0.050 ms and 0.100 ms per step");
}

record::Cell number(const std::string& series, std::int64_t row, const std::string& col, double value) {
  return {.series = series, .row = row, .col = col, .value = value, .text = {}, .unit = {}};
}
record::Cell text(const std::string& series, std::int64_t row, const std::string& col,
                  const std::string& value) {
  return {.series = series, .row = row, .col = col, .value = {}, .text = value, .unit = {}};
}

TEST(MicroRows, ARowThatDidNotFitHasNoTimes) {
  const std::vector<record::Cell> cells = {
      text("gemm", 0, "status", "success"), number("gemm", 0, "m", 64),
      number("gemm", 0, "rate", 5e9),       number("gemm", 0, "wall_ms", 1.5),
      number("gemm", 0, "trans_b", 1),      text("gemm", 1, "status", "oom"),
      number("gemm", 1, "needed", 2e9),     text("formats", 0, "status", "none")};
  const Table table = gemm_table(cells);
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_EQ(*table.rows[0].find("m"), Cell(std::int64_t{64}));
  EXPECT_EQ(*table.rows[0].find("trans_b"), Cell(true));
  EXPECT_EQ(table.rows[0].number("wall_flop_per_s"), 5e9);
  EXPECT_EQ(*table.rows[0].find("device_ms_median"), Cell());
  EXPECT_EQ(*table.rows[1].find("wall_ms_median"), Cell());
  EXPECT_EQ(*table.rows[1].find("needed_bytes"), Cell(std::int64_t{2'000'000'000}));
}

TEST(MicroRows, ProductsThatWereTracedSayHowTheyWereLaunched) {
  std::vector<record::Cell> cells = {text("gemm", 0, "status", "success"),
                                     text("gemm", 1, "status", "success")};
  EXPECT_EQ(*gemm_table(cells).rows.at(0).find("grid"), Cell()) << "on a processor";
  for (const record::Cell& cell :
       std::vector{number("gemm", 1, "kernels", 3), text("gemm", 1, "grid", "66x6x1"),
                   number("gemm", 1, "waves", 1.5), number("gemm", 1, "tail", 0.25)}) {
    cells.push_back(cell);
  }
  const Table table = gemm_table(cells);
  EXPECT_EQ(*table.rows.at(0).find("grid"), Cell());
  EXPECT_EQ(table.rows.at(1).text("grid"), "66x6x1");
  EXPECT_EQ(*table.rows.at(1).find("kernels"), Cell(std::int64_t{3}));
  EXPECT_EQ(table.rows.at(1).number("tail"), 0.25);
  EXPECT_EQ(table.columns.back().key, "tail") << "no row names a kernel";
}

TEST(MicroRows, RatesOfAttentionCountHalfOfTheProducts) {
  const std::vector<record::Cell> cells = {
      text("attention", 0, "status", "success"),   number("attention", 0, "batch", 2),
      number("attention", 0, "heads", 3),          number("attention", 0, "head_dim", 5),
      number("attention", 0, "seq", 10),           number("attention", 0, "forward_ms", 2),
      number("attention", 0, "forward_rate", 6e6),  // all of it, as earlier versions counted
      text("attention", 0, "forward_by", "rooflm")};
  const Table table = attention_table(cells);
  ASSERT_EQ(table.rows.size(), 1U);
  EXPECT_DOUBLE_EQ(table.rows[0].number("forward_flop_per_s"), 3e6);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(*table.rows[0].find("backward_flop_per_s")));
  EXPECT_EQ(table.columns.back().key, "attention_forward") << "nothing is known of the gradient";
}

TEST(MicroRows, RatesOfAttentionCountWhatAWindowLeaves) {
  const std::vector<record::Cell> cells = {
      text("attention", 0, "status", "success"), number("attention", 0, "batch", 2),
      number("attention", 0, "heads", 3),        number("attention", 0, "head_dim", 5),
      number("attention", 0, "seq", 10),         number("attention", 0, "window", 5),
      number("attention", 0, "forward_ms", 2)};
  const Table table = attention_table(cells);
  EXPECT_EQ(*table.rows.at(0).find("window"), Cell(std::int64_t{5}));
  EXPECT_DOUBLE_EQ(table.rows.at(0).number("forward_flop_per_s"), 0.75 * 3e6) << "75 of 100 scores";
}

TEST(MicroRows, CollectivesHaveTheColumnsOfNcclTests) {
  const std::vector<record::Cell> cells = {
      text("comm", 0, "status", "success"), text("comm", 0, "op", "all_reduce"),
      number("comm", 0, "size", 1024),      number("comm", 0, "time_us", 12.5),
      number("comm", 0, "busbw", 2e9),      number("comm", 0, "wrong", 0),
      text("comm", 1, "status", "oom")};
  const Table table = comm_table(cells);
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_EQ(table.rows[0].text("op"), "all_reduce");
  EXPECT_EQ(*table.rows[0].find("size"), Cell(std::int64_t{1024}));
  EXPECT_EQ(table.rows[0].number("time_us"), 12.5);
  EXPECT_EQ(*table.rows[0].find("wrong"), Cell(std::int64_t{0}));
  EXPECT_EQ(*table.rows[1].find("time_us"), Cell());
}

record::Ceiling rate(const char* what, const char* dtype, double value) {
  record::Ceiling ceiling;
  ceiling.what = what;
  ceiling.dtype = dtype;
  ceiling.value = value;
  return ceiling;
}

TEST(Generation, TheFirstTokenIsApartFromTheRate) {
  EXPECT_EQ(token_rate(std::vector<double>{}), std::nullopt);
  EXPECT_EQ(token_rate(std::vector<double>{5.0}), std::nullopt);
  EXPECT_DOUBLE_EQ(*token_rate(std::vector<double>{5.0, 0.25, 0.75}), 2);
}

TEST(CeilingRows, ProductsAreHeldAgainstTheInstructionPeakOfTheirKind) {
  const std::vector<record::Ceiling> ceilings = {
      rate("matmul", "fp32", 60), rate("instruction", "fp32", 80), rate("instruction", "fp32", 100),
      rate("matmul burst", "fp32", 90), rate("matmul", "bf16", 10)};
  const std::vector<CeilingRow> rows = ceiling_rows(ceilings);
  EXPECT_DOUBLE_EQ(*rows[0].share_of_instruction, 0.6);
  EXPECT_EQ(rows[3].share_of_instruction, std::nullopt) << "bursts are held against bursts";
  EXPECT_EQ(rows[4].share_of_instruction, std::nullopt);
}

TEST(CeilingRows, LoopsThatMultiplyAndAddAreInFlopToo) {
  // saxpy reads two numbers and writes one for 2 flop: 24 bytes of doubles.
  std::vector<record::Ceiling> ceilings = {rate("triad", "", 24e9), rate("update", "", 16e9),
                                           rate("copy", "", 5)};
  ceilings.push_back({.device = "cuda:0", .what = "update", .value = 8e12, .unit = "byte/s"});
  ceilings.push_back(rate("saxpy", "fp32", 24e9));
  const std::vector<CeilingRow> rows = ceiling_rows(ceilings);
  EXPECT_DOUBLE_EQ(*rows[0].flop_per_s, 2e9);
  EXPECT_DOUBLE_EQ(*rows[0].intensity, 2.0 / 24);
  EXPECT_DOUBLE_EQ(*rows[1].flop_per_s, 2e9);
  EXPECT_EQ(rows[2].flop_per_s, std::nullopt);
  EXPECT_DOUBLE_EQ(*rows[3].flop_per_s, 2e12) << "floats on a GPU";
  EXPECT_DOUBLE_EQ(*rows[4].flop_per_s, 4e9) << "12 bytes of floats";
  EXPECT_DOUBLE_EQ(*rows[4].intensity, 2.0 / 12);
}

TEST(CeilingRows, WhyThereIsNoInstructionPeakStandsBehindTheProducts) {
  RecordFile file;
  file.ceilings = {rate("matmul", "fp32", 60), rate("matmul burst", "fp32", 70), rate("read", "", 5)};
  file.environment = {{.key = "cpu", .value = "imaginary", .unit = {}},
                      {.key = record::missing_peak_key("cpu", "fp32"), .value = "no such loop", .unit = {}}};
  const Table table = peaks_table(file);
  ASSERT_EQ(table.rows.size(), 4U);
  EXPECT_EQ(table.rows[2].text("what"), "instruction");
  EXPECT_EQ(table.rows[2].text("problem"), "no such loop");
  EXPECT_EQ(*table.rows[2].find("value"), Cell());
  EXPECT_EQ(record::missing_peak_of("cpu"), std::nullopt);
}

/// Others use the last cache of a machine where it is hardly faster than memory: it is no limit there.
TEST(Ceilings, ACacheThatIsHardlyFasterThanMemoryIsNoLimit) {
  const auto of = [](const char* level, double value) {
    return record::Ceiling{.what = "read",
                           .level = level,
                           .dtype = "fp64",
                           .threads = 1,
                           .value = value,
                           .unit = "byte/s",
                           .ci_low = 0.99 * value,
                           .ci_high = 1.01 * value,
                           .samples = 20};
  };
  record::Config config;
  config.set("device", std::string("cpu"));
  config.set("threads", std::int64_t{1});
  const auto uncertain = [&](double cache) {
    const std::vector<record::Ceiling> ceilings = {of("L2", 110e9), of("L3", cache), of("DRAM", 28e9)};
    return uncertain_bounds(ceilings, config);
  };
  EXPECT_EQ(uncertain(34e9).count("L3"), 1U);
  EXPECT_TRUE(uncertain(60e9).empty());
}

}  // namespace
}  // namespace rooflm::report
