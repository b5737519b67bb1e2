// Blocks over a size, filters, columns and answers, of made-up records.
#include "report/runs/scaling.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "report/findings/answers.h"
#include "report/model/filter.h"
#include "report/page/document.h"
#include "report/page/study_index.h"
#include "report/runs/size_sweeps.h"
#include "report/tables/column_choice.h"
#include "report/views/views.h"
#include "tests/report/step_record.h"

namespace rooflm::report {
namespace {

/// A record of a study, of steps with T = 10 and 40.
RecordSet load_study(const std::string& name) {
  RecordSet set = load_steps({{.seq = 40}, {.seq = 10}});
  set.files.front().environment.push_back({.key = "study_name", .value = name, .unit = {}});
  set.files.front().environment.push_back({.key = "study", .value = "A title", .unit = {}});
  return set;
}

TEST(Scaling, SharesFollowTheFormulasOfTheRecord) {
  const RecordSet set = load_study("blocks");
  const auto all = scalings(set);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].phase, "forward");
  EXPECT_EQ(all[1].phase, "step");
  EXPECT_EQ(all[0].sizes, (std::vector<std::int64_t>{10, 40})) << "smallest first";
  // A layer takes 140 T + 4 T^2 ns, of which qk, softmax and v take 4 T^2; qkv is no part of them.
  const std::vector<std::string> square = {"attention/qk", "attention/softmax", "attention/v"};
  EXPECT_NEAR(*all[0].share_of(square, 0, false), 400.0 / 1800, 1e-9);
  EXPECT_NEAR(*all[0].share_of(square, 1, false), 6400.0 / 12000, 1e-9);
  // 100 ns of each of the two layers' ops lie around it.
  EXPECT_NEAR(*all[0].share_of({"attention/qk"}, 0, true), 200.0 / 2400, 1e-9);
}

/// Runs with 4 and 8 heads, of a width of 64 together or of 16 each.
RecordSet load_heads(bool same_head_size) {
  RecordSet set = load_study("heads");
  for (std::size_t i = 0; i < set.runs.size(); ++i) {
    record::Config& config = set.runs[i].run.config;
    config.set("seq", 10);
    config.set("d_model", 64);
    config.set("heads", i == 0 ? 4 : 8);
    config.set("kv_heads", i == 0 ? 4 : 8);
    config.set("params", same_head_size ? 1000 * static_cast<std::int64_t>(i + 1) : 1000);
    if (same_head_size && i == 1) config.set("head_dim", 16);
  }
  return set;
}

TEST(Scaling, HeadsShareTheWidthOrHaveTheSameSize) {
  for (const bool same_head_size : {false, true}) {
    const auto sweeps = size_sweeps(load_heads(same_head_size));
    ASSERT_EQ(sweeps.size(), 1U) << same_head_size;
    EXPECT_EQ(sweeps[0].axis, "heads");
    EXPECT_EQ(sweeps[0].runs.size(), 2U);
  }
  RecordSet both = load_heads(true);
  both.runs[0].run.config.set("head_dim", 32);
  EXPECT_TRUE(size_sweeps(both).empty()) << "neither the width nor the size is the same";
}

/// The same on a GPU, where each op alone takes a microsecond more than its kernels.
RecordSet load_alone(const std::string& study) {
  RecordSet set = load_study(study);
  for (RunData& run : set.runs) {
    run.run.config.set("device", "cuda");
    run.facts.push_back({.key = "alone_cost", .value = 1.5});
    for (TimedOp& op : run.ops) {
      op.time->wall_s.reset();
      op.alone_s = op.time->device_s + 1e-6;
    }
  }
  return set;
}

TEST(Scaling, WallTimesOfAGpuAreThoseOfOpsAlone) {
  const RecordSet set = load_alone("blocks");
  // Of 12 forward ops, 2 of them qk with 100 ns each.
  EXPECT_NEAR(*scalings(set)[0].share_of({"attention/qk"}, 0, true), (2 * 1100.0) / (3600 + 12000), 1e-9);
  EXPECT_EQ(make_view("scaling", set).charts.size(), 8U) << "device and wall";
  const View gap = make_view("gap", set);
  const auto table = std::ranges::find(gap.tables, "gap", &ViewTable::id);
  ASSERT_NE(table, gap.tables.end());
  for (const Row& row : table->table.rows) {
    EXPECT_NEAR(row.number("gap_s"), 1e-6, 1e-12) << row.text("block");
    EXPECT_NEAR(row.number("wall_s"), row.number("device_s") + 1e-6 * row.number("launches"), 1e-12);
  }
  ASSERT_FALSE(table->table.notes.empty());
  EXPECT_NE(table->table.notes.back().find("alone and waited for"), std::string::npos);
  EXPECT_NE(table->table.notes.back().find("+150 %"), std::string::npos);
  EXPECT_NE(answer_of(load_alone("gap")).find("25 launches cost 1.00 us each outside their kernels"),
            std::string::npos)
      << answer_of(load_alone("gap"));
}

TEST(Document, HasTheWallTimesOfAGpuToo) {
  const auto document = nlohmann::json::parse(make_document(load_alone("blocks"), nullptr));
  const nlohmann::json& run = document.at("runs").at(0);
  for (const nlohmann::json& block : run.at("blocks")) {
    const double launches_s = 1e-6 * block.at("launches").get<double>();
    EXPECT_NEAR(block.at("wall_s").get<double>(), block.at("device_s").get<double>() + launches_s, 1e-12);
    EXPECT_NEAR(block.at("gap_s").get<double>(), 1e-6, 1e-12);
  }
  const nlohmann::json& ops = run.at("ops");
  EXPECT_NEAR(ops.at("wall_s").at(0).get<double>(), ops.at("device_s").at(0).get<double>() + 1e-6, 1e-12);
  EXPECT_GT(run.at("scopes").at("merged").at("wall_s").at(0).get<double>(), 0);
  const std::string method = run.at("method").dump();
  EXPECT_NE(method.find("Tables of blocks and ops: wall: launch, kernels and waiting"), std::string::npos);
  EXPECT_NE(method.find("+150 %"), std::string::npos);
}

TEST(Scaling, DrawsBarsOverTheSize) {
  const View view = make_view("scaling", load_study("blocks"));
  ASSERT_EQ(view.charts.size(), 8U) << "forward and step, device and wall, absolute and shares";
  for (const Chart& chart : view.charts) {
    EXPECT_EQ(chart.x.categories, (std::vector<std::string>{"10", "40"})) << chart.title;
    EXPECT_EQ(chart.kind == ChartKind::stacked100, chart.id.ends_with(".share")) << chart.id;
    EXPECT_GE(chart.series.size(), 6U);
  }
}

TEST(Answers, SayTheNumbersOfTheRecord) {
  EXPECT_EQ(
      answer_of(load_study("blocks")),
      "scores, softmax and values take 22.2% of forward at T=10 and 53.3% at T=40; feed_forward - and -.");
  EXPECT_NE(answer_of(load_study("warmup")).find("warm-up steps: 1.03 ms +- "), std::string::npos)
      << answer_of(load_study("warmup"));
  EXPECT_NE(answer_of(load_study("overhead")).find("+10.0% longer"), std::string::npos)
      << answer_of(load_study("overhead"));
  EXPECT_NE(answer_of(load_study("attention_parts")).find("softmax takes 50.0% of the forward time"),
            std::string::npos)
      << answer_of(load_study("attention_parts"));
  EXPECT_EQ(answer_of(load_study("my_own")), "") << "a study of somebody else";
  EXPECT_EQ(answer_of(load_steps({{.seq = 10}})), "") << "no study";
}

TEST(Answers, SayThatOtherProgramsUsedTheProcessors) {
  RecordSet set = load_study("attention_parts");
  const auto use = [&](std::size_t run, double share) {
    const char* text = share > 0.05 ? "busy machine: made up" : "";
    set.runs.at(run).facts.push_back({.key = "others_share", .value = share, .unit = "share", .text = text});
  };
  use(0, 0.04);
  EXPECT_EQ(answer_of(set).find("Busy"), std::string::npos) << "less than counts as busy";
  EXPECT_EQ(make_view("attention", set).note.find("Busy"), std::string::npos);
  use(1, 0.504);
  const std::string one = "Busy machine: other programs used 50.4 % of the processors, in 1 of 2 runs.";
  EXPECT_TRUE(answer_of(set).ends_with(one + " The answer may differ on a quiet machine.")) << answer_of(set);
  for (const char* name :
       {"phases", "blocks", "ops", "attention", "gap", "samples", "sweep", "scaling", "advice"}) {
    EXPECT_TRUE(make_view(name, set).note.ends_with(" " + one)) << name << ": " << make_view(name, set).note;
  }
  for (const char* name : {"overview", "bench", "saved"})
    EXPECT_EQ(make_view(name, set).note.find("Busy"), std::string::npos) << name;
  set.runs.at(0).facts.clear();
  use(0, 0.68);
  EXPECT_TRUE(
      make_view("phases", set).note.ends_with("used 50.4 to 68.0 % of the processors, in 2 of 2 runs."));
  set.runs.resize(1);
  EXPECT_TRUE(make_view("phases", set).note.ends_with("used 68.0 % of the processors."));
  RecordSet sizes = load_study("context");
  sizes.runs.front().facts.push_back({.key = "others_share", .value = 0.5, .unit = "share", .text = "busy"});
  EXPECT_EQ(answer_of(sizes).find("Busy"), std::string::npos) << "of sizes, not of times";
}

TEST(Answers, AreNamedWithTheViewsThatGiveThem) {
  RecordSet set = load_study("blocks");
  EXPECT_TRUE(study_of(set).views.empty()) << "records of old do not say";
  set.files.front().environment.push_back({.key = "study_views", .value = "scaling,growth", .unit = {}});
  EXPECT_EQ(study_of(set).views, (std::vector<std::string>{"scaling", "growth"}));
  const nlohmann::json document = nlohmann::json::parse(make_document(set, nullptr));
  EXPECT_EQ(document.at("answers"), (std::vector<std::string>{"scaling", "growth"}));
  std::set<std::string> of;
  for (const auto& chart : document.at("charts")) of.insert(chart.at("view").get<std::string>());
  for (const auto& table : document.at("tables")) of.insert(table.at("view").get<std::string>());
  EXPECT_TRUE(of.contains("scaling") && of.contains("saved") && !of.contains(""))
      << document.at("tables").size();
}

TEST(Growth, StandsInTheOrderOfTheRuns) {
  const RecordSet set = load_steps({{.seq = 10, .attention = "looped"},
                                    {.seq = 40, .attention = "looped"},
                                    {.seq = 10, .attention = "batched"},
                                    {.seq = 40, .attention = "batched"}});
  std::vector<std::string> titles;
  for (const Chart& chart : make_view("growth", set).charts) titles.push_back(chart.title);
  ASSERT_EQ(titles.size(), 2U);
  EXPECT_TRUE(titles[0].ends_with("looped") && titles[1].ends_with("batched"))
      << titles[0] << ", " << titles[1];
}

TEST(Filter, LeavesAPartOfTheOps) {
  RecordSet set = load_study("blocks");
  apply_filter({.runs = {"1"}, .phases = {"forward"}, .scopes = {"h.1/attention"}}, set);
  ASSERT_EQ(set.runs.size(), 1U);
  EXPECT_EQ(set.runs.front().ops.size(), 5U);
  for (const TimedOp& op : set.runs.front().ops) {
    EXPECT_EQ(op.op.phase, "forward");
    EXPECT_TRUE(op.op.scope.starts_with("h.1/attention/")) << op.op.scope;
  }
  for (const record::Sample& sample : set.runs.front().samples) EXPECT_EQ(sample.phase, "forward");
}

TEST(Filter, TakesScopesOfOneLayerOrOfAll) {
  const Filter filter{.scopes = {"h.1", "attention/qk"}};
  EXPECT_TRUE(filter.takes_scope("h.1/ln1", "ln1"));
  EXPECT_FALSE(filter.takes_scope("h.10/ln1", "ln1"));
  EXPECT_TRUE(filter.takes_scope("h.7/attention/qk", "attention/qk"));
  EXPECT_FALSE(filter.takes_scope("h.7/attention/qkv", "attention/qkv"));
}

TEST(Filter, SaysWhatThereIs) {
  for (const Filter& filter : {Filter{.runs = {"bf17"}}, Filter{.phases = {"sideways"}},
                               Filter{.scopes = {"h.9"}}, Filter{.ops = {"matmull"}}}) {
    RecordSet set = load_study("blocks");
    try {
      apply_filter(filter, set);
      ADD_FAILURE() << filter.text();
    } catch (const core::UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("not in the record, which has "), std::string::npos)
          << error.what();
    }
  }
}

TEST(Filter, HasNoMeaningWithoutOps) {
  const auto without_ops = [](bool has_samples) {
    RecordSet set = load_study("blocks");
    for (RunData& run : set.runs) {
      run.ops.clear();
      if (!has_samples) run.samples.clear();
    }
    return set;
  };
  RecordSet timed = without_ops(true);
  apply_filter({.phases = {"forward"}}, timed);
  EXPECT_FALSE(timed.runs.front().samples.empty()) << "phases are timed without ops, too";
  for (const auto& [filter, option] : {std::pair{Filter{.phases = {"forward"}}, "--phase"},
                                       {Filter{.scopes = {"zz"}}, "--scope"},
                                       {Filter{.ops = {"matmul"}}, "--op"}}) {
    RecordSet set = without_ops(false);
    try {
      apply_filter(filter, set);
      ADD_FAILURE() << option;
    } catch (const core::UsageError& error) {
      EXPECT_EQ(std::string(error.what()), fmt::format("the record has no ops: {} has no meaning", option));
    }
  }
}

Table wide_table() {
  Table table{.columns = {{"run", "run"},
                          {"time_std", "std"},
                          {"time", "time"},
                          {"extra", "extra"},
                          {"more", "more"},
                          {"verdict", "verdict"}},
              .rows = {},
              .notes = {}};
  Row row;
  row.set("run", std::string("a run of some length"));
  for (const char* key : {"time_std", "time", "extra", "more"}) row.set(key, 123456.0);
  row.set("verdict", std::string("SAME"));
  row.set("hidden", 7.0);
  table.rows.push_back(std::move(row));
  return table;
}

std::vector<std::string> keys_of(const Table& table) {
  std::vector<std::string> keys;
  for (const Column& column : table.columns) keys.push_back(column.key);
  return keys;
}

TEST(ColumnChoice, DropsTheLeastImportantThatDoNotFit) {
  const Table narrow = choose_columns(wide_table(), {}, Format::table, 50);
  EXPECT_EQ(keys_of(narrow), (std::vector<std::string>{"run", "time", "extra", "verdict"}));
  ASSERT_EQ(narrow.notes.size(), 1U);
  EXPECT_NE(narrow.notes.front().find("left out to fit: more, std"), std::string::npos)
      << narrow.notes.front();
  EXPECT_EQ(keys_of(choose_columns(wide_table(), {}, Format::table, 200)).size(), 6U);
  EXPECT_EQ(keys_of(choose_columns(wide_table(), {.wide = true}, Format::table, 50)).size(), 6U);
  EXPECT_EQ(keys_of(choose_columns(wide_table(), {}, Format::csv, 50)).size(), 6U) << "programs get all";
}

/// Where the time goes is what tables of parts are read for.
TEST(ColumnChoice, TimesStayLongerThanCounts) {
  Table table{.columns = {{"block", "block"},
                          {"ops", "ops"},
                          {"launches", "launches"},
                          {"device_s", "device", Show::seconds, "s"},
                          {"wall_s", "wall", Show::seconds, "s"},
                          {"time_share", "of kernels", Show::percent},
                          {"share", "share", Show::percent}},
              .rows = {},
              .notes = {}};
  Row row;
  row.set("block", std::string("attention"));
  for (const Column& column : table.columns) {
    if (column.key != "block") row.set(column.key, 0.5);
  }
  table.rows.push_back(std::move(row));
  EXPECT_EQ(keys_of(choose_columns(table, {}, Format::table, 40)),
            (std::vector<std::string>{"block", "device_s", "time_share", "share"}));
}

TEST(ColumnChoice, KnownNamesAreSaidOnce) {
  const Table table = wide_table();
  const std::array tables = {&table, &table};
  try {
    check_columns({.names = {"qqqqqq"}}, tables);
    ADD_FAILURE() << "there is no such column";
  } catch (const core::UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("(known: run time_std time extra more verdict)"),
              std::string::npos)
        << error.what();
  }
}

TEST(ColumnChoice, ProgramsFindTheColumnsThatTheyChose) {
  Table table = wide_table();
  Row failed;
  failed.set("verdict", std::string("oom"));
  table.rows = {failed};
  const Table chosen = choose_columns(table, {.names = {"verdict", "time"}}, Format::json, 0);
  ASSERT_NE(chosen.rows.at(0).find("time"), nullptr) << "though no row has it";
  EXPECT_EQ(*chosen.rows.at(0).find("time"), Cell());
}

TEST(ColumnChoice, TakesKeysTitlesAndWhatOnlyRowsHave) {
  const ColumnChoice choice{.names = {"hidden", "std"}};
  const Table chosen = choose_columns(wide_table(), choice, Format::json, 0);
  EXPECT_EQ(keys_of(chosen), (std::vector<std::string>{"hidden", "time_std"}));
  EXPECT_EQ(chosen.rows.front().cells().size(), 2U);
  const Table table = wide_table();
  const std::array<const Table*, 1> all = {&table};
  EXPECT_NO_THROW(check_columns(choice, all));
  EXPECT_THROW(check_columns({.names = {"tiem"}}, all), core::UsageError);
}

TEST(StudyIndex, LinksPagesAndEscapesTexts) {
  const std::vector<StudyEntry> entries = {
      {.name = "a", .title = "A <b>", .question = "Q & A?", .answer = "42."},
      {.name = "b", .title = "B", .question = "Why?", .problem = "no GPU here"}};
  const std::string page = study_index(entries);
  EXPECT_NE(page.find("<a href=\"a.html\">A &lt;b&gt;</a>"), std::string::npos);
  EXPECT_NE(page.find("Q &amp; A?"), std::string::npos);
  EXPECT_NE(page.find("<p>42.</p>"), std::string::npos);
  EXPECT_EQ(page.find("b.html"), std::string::npos);
  EXPECT_NE(page.find("Not run here: no GPU here"), std::string::npos);
}

}  // namespace
}  // namespace rooflm::report
