// What leaves the room: the document, the page, pictures and texts.
#include "report/page/document.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "report/charts/axis_ticks.h"
#include "report/charts/svg.h"
#include "report/model/summaries.h"
#include "report/page/html.h"
#include "report/views/view_format.h"
#include "report/views/views.h"
#include "tests/record/record_testing.h"
#include "tests/report/step_record.h"

namespace rooflm::report {
namespace {

constexpr const char* kTestPage =
    "<html><script>1</script><script id=\"rooflm-data\" type=\"application/json\"></script></html>";

RecordSet load_steps(const std::vector<StepSpec>& specs) {
  const record::TemporaryFolder folder;
  write_steps(folder / "a.rooflm", specs);
  return load(std::vector<std::filesystem::path>{folder / "a.rooflm"});
}

/// Columns are of one length and texts are indices into names. Returns that length.
std::size_t expect_columnar(const nlohmann::json& json, const std::vector<std::string>& texts) {
  std::size_t length = 0;
  bool is_first = true;
  for (const auto& [key, column] : json.items()) {
    if (key == "names") continue;
    if (is_first) length = column.size();
    is_first = false;
    EXPECT_EQ(column.size(), length) << key;
  }
  for (const std::string& key : texts) {
    for (const nlohmann::json& index : json.at(key))
      EXPECT_LT(index.get<std::size_t>(), json.at("names").size()) << key;
  }
  return length;
}

TEST(Document, HoldsARunInFull) {
  const nlohmann::json document = nlohmann::json::parse(make_document(load_steps({{}}), nullptr));
  EXPECT_EQ(document.at("schema"), 1);
  EXPECT_EQ(document.at("command"), "rooflm profile --made-up");
  EXPECT_EQ(document.at("complete"), true);
  EXPECT_EQ(document.at("environment").at(0).at("key"), "cpu");
  EXPECT_EQ(document.at("ceilings").size(), 2U);
  EXPECT_TRUE(document.at("comparison").is_null());
  ASSERT_EQ(document.at("runs").size(), 1U);
  const nlohmann::json& run = document.at("runs").at(0);
  EXPECT_EQ(run.at("config").at("attention"), "batched");
  EXPECT_EQ(run.at("facts").at("stop_reason").at("text"), "interval within 1 %");
  EXPECT_TRUE(run.at("facts").at("stop_reason").at("value").is_null());
  EXPECT_EQ(run.at("step").at("median_s"), 1e-3);
  EXPECT_EQ(run.at("step").at("samples"), kPlainSteps.size());
  ASSERT_EQ(run.at("phases").size(), 3U);
  EXPECT_EQ(run.at("phases").at(1).at("phase"), "backward");
  EXPECT_NEAR(run.at("phases").at(1).at("share").get<double>(), 3600e-9 / 0.6e-3, 1e-9);
  EXPECT_EQ(run.at("blocks").size(), 5U);  // ln1 and attention twice, optimizer
  EXPECT_EQ(run.at("blocks").at(1).at("block"), "attention");
  EXPECT_GE(run.at("method").size() + document.at("method").size(), 3U);
}

TEST(Document, ColumnsFit) {
  const nlohmann::json run = nlohmann::json::parse(make_document(load_steps({{}}), nullptr)).at("runs").at(0);
  EXPECT_EQ(expect_columnar(run.at("samples"), {"phase", "kind"}), 4 * (1 + kPlainSteps.size() + 3));
  const nlohmann::json& ops = run.at("ops");
  ASSERT_EQ(
      expect_columnar(ops, {"kind", "class", "kernel", "name", "phase", "scope", "dtype", "shapes", "bound"}),
      25U);
  EXPECT_EQ(ops.at("names").at(ops.at("scope").at(2).get<std::size_t>()), "h.0/attention/qk");
  EXPECT_NEAR(ops.at("device_s").at(2).get<double>(), 100e-9, 1e-15);
  EXPECT_NEAR(ops.at("max_s").at(2).get<double>(), 200e-9, 1e-15);
  const nlohmann::json& memory = run.at("memory");
  EXPECT_EQ(memory.at("peak_bytes"), 200);
  EXPECT_EQ(memory.at("peak_event"), 2);
  EXPECT_EQ(memory.at("persistent").at(0).at("bytes"), 100);
  EXPECT_EQ(expect_columnar(memory.at("tensors"), {"name", "role", "scope"}), 3U);
  EXPECT_EQ(expect_columnar(memory.at("events"), {}), 5U);
  EXPECT_EQ(memory.at("events").at("tensor").at(2), 2);  // a place among the tensors, not the record's number
}

TEST(Document, HasWhatFollowsFromTimesRoofsAndBytes) {
  const nlohmann::json document = nlohmann::json::parse(make_document(load_steps({{}}), nullptr));
  const nlohmann::json run = document.at("runs").at(0);
  const nlohmann::json& ops = run.at("ops");
  const auto qk = [&](const char* key) { return ops.at(key).at(2).get<double>(); };  // 100 ns, its roof 50 ns
  EXPECT_NEAR(qk("step_share"), 100e-9 / 1e-3, 1e-12);
  EXPECT_NEAR(qk("roof_share"), 0.5, 1e-12);
  EXPECT_NEAR(qk("gain_s"), 50e-9, 1e-15);
  EXPECT_NEAR(qk("flop_per_s") * 100e-9, qk("flop"), 1e-9 * qk("flop"));
  EXPECT_NEAR(qk("byte_per_s") * 100e-9, qk("bytes"), 1e-9 * qk("bytes"));
  EXPECT_DOUBLE_EQ(qk("intensity"), qk("flop") / qk("bytes"));
  const nlohmann::json& block = run.at("blocks").at(1);
  EXPECT_NEAR(block.at("gain_s").get<double>(),
              block.at("measured_s").get<double>() - block.at("roof_s").get<double>(), 1e-15);
  EXPECT_EQ(run.at("roofs"), nlohmann::json::parse(R"({"rates": [{"name": "matmul fp32", "value": 1e10}],
                                             "bandwidths": [{"name": "DRAM", "value": 1e9}]})"));
  EXPECT_TRUE(document.at("ceilings").at(0).at("spread").is_null()) << "no samples, no interval";
  const nlohmann::json advised = nlohmann::json::parse(make_document(load_steps({{.seq = 400}}), nullptr));
  const nlohmann::json& advice = advised.at("advice").at(0);
  EXPECT_NEAR(advice.at("step_share").get<double>(), advice.at("gain_s").get<double>() / 1e-3, 1e-12);
  const nlohmann::json& memory = run.at("memory");
  EXPECT_EQ(memory.at("persistent_bytes"), 100);
  EXPECT_EQ(memory.at("persistent_share"), 0.5);
  EXPECT_EQ(memory.at("peak_holders"), nlohmann::json::parse(R"({"tensor": [0, 2, 1], "bytes": [100, 60, 40],
                                                       "share": [0.5, 0.3, 0.2]})"));
}

/// Page and terminal say the same of a run, and its largest gain is the first of its list: without what
/// another run shown here does already.
TEST(Document, ARunInShortIsWhatTheOverviewSays) {
  const RecordSet set = load_steps({{.seq = 100}, {.seq = 100, .attention = "flash"}});
  const nlohmann::json document = nlohmann::json::parse(make_document(set, nullptr));
  const View overview = make_view("overview", set);
  std::vector<std::string> in_short;
  for (const Row& row : overview.tables.front().table.rows) {
    if (row.text("what") == "in short") in_short.push_back(row.text("shown"));
  }
  ASSERT_EQ(in_short.size(), 2U);
  EXPECT_EQ(in_short[0].find("attention/softmax"), std::string::npos) << "the other run has it";
  const std::string subject = document.at("advice").at(0).at("subject");
  EXPECT_NE(in_short[0].find(subject), std::string::npos) << in_short[0];
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(document.at("runs").at(i).at("headline"), in_short[i]);
}

TEST(Document, ScopesAddUpToTheStep) {
  const RecordSet set = load_steps({{}});
  const nlohmann::json run = nlohmann::json::parse(make_document(set, nullptr)).at("runs").at(0);
  const Work step = phase_work(set.runs.at(0), kStep);
  for (const char* tree : {"layers", "merged"}) {
    const nlohmann::json& scopes = run.at("scopes").at(tree);
    expect_columnar(scopes, {"name"});
    EXPECT_EQ(scopes.at("parent").at(0), -1);
    EXPECT_EQ(scopes.at("ops").at(0), step.ops);
    EXPECT_EQ(scopes.at("bytes").at(0), step.bytes);
    EXPECT_NEAR(scopes.at("device_s").at(0).get<double>(), step.device_s, 1e-15);
    for (std::size_t i = 1; i < scopes.at("parent").size(); ++i) EXPECT_LT(scopes.at("parent").at(i), i);
  }
  const auto nodes_called = [&](const char* tree, const std::string& name) {
    const nlohmann::json& scopes = run.at("scopes").at(tree);
    return std::count_if(scopes.at("name").begin(), scopes.at("name").end(), [&](const nlohmann::json& at) {
      return scopes.at("names").at(at.get<std::size_t>()) == name;
    });
  };
  EXPECT_EQ(nodes_called("layers", "h.1"), 2);  // forward and backward
  EXPECT_EQ(nodes_called("merged", "h.1"), 0);
  EXPECT_EQ(nodes_called("merged", "h.*"), 2);
}

TEST(Document, CarriesTheViewsThatThePageDoesNotDraw) {
  const nlohmann::json document =
      nlohmann::json::parse(make_document(load_steps({{.seq = 10}, {.seq = 20}}), nullptr));
  std::vector<std::string> tables;
  for (const nlohmann::json& table : document.at("tables")) {
    tables.push_back(table.at("id"));
    for (const nlohmann::json& row : table.at("rows")) EXPECT_TRUE(row.is_object());
    EXPECT_FALSE(table.at("note").get<std::string>().empty()) << tables.back();
  }
  for (const char* id : {"classes", "gap", "instances", "attention", "growth", "sweep", "saved"}) {
    EXPECT_NE(std::find(tables.begin(), tables.end(), id), tables.end()) << id;
  }
  EXPECT_EQ(std::find(tables.begin(), tables.end(), "blocks"), tables.end());
  for (const nlohmann::json& chart : document.at("charts")) {
    for (const nlohmann::json& series : chart.at("series")) {
      for (const nlohmann::json& point : series.at("points")) EXPECT_GE(point.size(), 2U);
    }
  }
}

double sum_of(const nlohmann::json& parts, const char* key) {
  double sum = 0;
  for (const nlohmann::json& part : parts) sum += part.at(key).get<double>();
  return sum;
}

TEST(Document, IsSeenAtAGlance) {
  const nlohmann::json document = nlohmann::json::parse(make_document(load_steps({{}}), nullptr));
  const nlohmann::json& run = document.at("runs").at(0);
  const nlohmann::json& time = run.at("glance").at("time").at("parts");
  ASSERT_EQ(time.size(), run.at("blocks").size());
  EXPECT_EQ(time.at(0).at("name"), "backward attention");
  EXPECT_EQ(time.at(0).at("phase"), "backward");
  EXPECT_NEAR(sum_of(time, "share"), 1, 1e-12);
  EXPECT_NEAR(sum_of(time, "seconds"), sum_of(run.at("blocks"), "device_s"), 1e-15);
  const nlohmann::json& bound = run.at("glance").at("bound").at("parts");
  EXPECT_NEAR(sum_of(bound, "seconds"), sum_of(run.at("why"), "time_s"), 1e-15);
  EXPECT_FALSE(bound.at(0).at("note").get<std::string>().empty()) << "what would help";
  EXPECT_TRUE(std::ranges::any_of(time, [](const nlohmann::json& part) {
    return part.at("name") == "optimizer";
  })) << "not \"optimizer optimizer\"";
}

TEST(Document, RunsOfOneLabelSayWhatTheyDifferIn) {
  const nlohmann::json runs =
      nlohmann::json::parse(make_document(load_steps({{}, {.attention = "flash"}, {.seq = 20}}), nullptr))
          .at("runs");
  EXPECT_EQ(runs.at(0).at("label"), "made-up T=10 fp32, batched");
  EXPECT_EQ(runs.at(1).at("label"), "made-up T=10 fp32, flash");
  EXPECT_EQ(runs.at(2).at("label"), "made-up T=20 fp32");
}

TEST(Document, OfNothingAndOfARunThatDidNotFit) {
  const nlohmann::json empty = nlohmann::json::parse(make_document({}, nullptr));
  EXPECT_TRUE(empty.at("runs").empty());
  const nlohmann::json run =
      nlohmann::json::parse(make_document(load_steps({{.status = "oom"}}), nullptr)).at("runs").at(0);
  EXPECT_TRUE(run.at("step").is_null());
  EXPECT_TRUE(run.at("memory").is_null());
  for (const char* list : {"time", "bound", "idle"}) {
    EXPECT_TRUE(run.at("glance").at(list).at("parts").empty());
    EXPECT_FALSE(run.at("glance").at(list).at("of").get<std::string>().empty()) << "says what is missing";
  }
  EXPECT_EQ(expect_columnar(run.at("ops"), {"kind"}), 0U);
}

TEST(Document, ComparesTheFirstTwoFiles) {
  const record::TemporaryFolder folder;
  write_steps(folder / "a.rooflm", {{}});
  write_steps(folder / "b.rooflm", {{.speed = 4}});
  const std::vector<std::filesystem::path> files = {folder / "a.rooflm", folder / "b.rooflm"};
  const Comparison comparison = compare(record::Reader(files[0]), record::Reader(files[1]), {});
  const nlohmann::json document = nlohmann::json::parse(make_document(load(files), &comparison));
  EXPECT_EQ(document.at("files").size(), 2U);
  EXPECT_EQ(document.at("runs").at(1).at("file"), 1);
  const nlohmann::json& row = document.at("comparison").at("rows").at(0);
  EXPECT_EQ(row.at("subject"), "step");
  EXPECT_NEAR(row.at("ratio").get<double>(), 0.25, 1e-9);
  EXPECT_EQ(row.at("verdict"), "FASTER");
  const std::string said = document.at("comparison").at("verdicts").at(0);
  EXPECT_TRUE(said.starts_with("FASTER: a step takes ")) << said;
  EXPECT_EQ(document.at("comparison").at("b"), files[1].string());
}

TEST(Page, DataCannotEndItsElement) {
  const std::string document = R"({"label":"</script><!-- <Script> a<b"})";
  const std::string page = fill_page(kTestPage, document);
  const std::size_t start = page.find("json\">") + 6;
  const std::string data = page.substr(start, page.find("</script>", start) - start);
  EXPECT_EQ(nlohmann::json::parse(data), nlohmann::json::parse(document));
  EXPECT_TRUE(page.ends_with("</script></html>"));
  EXPECT_EQ(data.find("<!--"), std::string::npos);
}

TEST(Page, WithoutAPlaceForDataOrWithoutAPage) {
  EXPECT_THROW(fill_page("<html></html>", "{}"), core::InputError);
  EXPECT_THROW(fill_page("", "{}"), core::Unavailable);
  EXPECT_EQ(page_template().empty(), !page_reason().empty());
}

TEST(Page, ReplacesNothingUnasked) {
  const record::TemporaryFolder folder;
  if (page_template().empty()) {
    EXPECT_THROW(write_page(folder / "a.html", "{}", false), core::Unavailable);
    GTEST_SKIP() << "this build has no page: " << page_reason();
  }
  write_page(folder / "a.html", "{}", false);
  record::expect_input_error([&] { write_page(folder / "a.html", "{}", false); }, {"a.html", "--overwrite"});
  write_page(folder / "a.html", "{}", true);
  EXPECT_EQ(folder.file_count(), 1U);
  record::write_text(folder / "letter.html", "dear");
  record::expect_input_error([&] { write_page(folder / "letter.html", "{}", false); },
                             {"letter.html", "--overwrite"});
  EXPECT_EQ(std::filesystem::file_size(folder / "letter.html"), 4U);
  write_page(folder / "letter.html", "{}", true);
  EXPECT_GT(std::filesystem::file_size(folder / "letter.html"), 1000U);
  EXPECT_THROW(write_page(folder.path(), "{}", true), core::InputError);
  record::expect_input_error([&] { check_page_target(folder / "no/a.html", false); },
                             {"a.html", "no folder"});
}

TEST(Ticks, AreRound) {
  const auto labels = [](const std::vector<Tick>& ticks) {
    std::vector<std::string> all;
    for (const Tick& tick : ticks) all.push_back(tick.label);
    return all;
  };
  EXPECT_EQ(labels(linear_ticks(0, 0.011, 5, "s")), (std::vector<std::string>{"0 s", "5 ms", "10 ms"}));
  EXPECT_EQ(labels(linear_ticks(0, 1, 5, "share")),
            (std::vector<std::string>{"0%", "20%", "40%", "60%", "80%", "100%"}));
  EXPECT_EQ(labels(log_ticks(0.5, 2000, "")), (std::vector<std::string>{"1", "10", "100", "1000"}));
  EXPECT_EQ(labels(log_ticks(60, 600, "")), (std::vector<std::string>{"100", "200", "500"}));
  EXPECT_EQ(tick_label(1.5e9, "byte"), "1.5 GB");
}

/// Whether every element of an XML text is closed in order.
bool is_balanced(const std::string& xml) {
  std::vector<std::string> open;
  for (std::size_t i = xml.find('<'); i != std::string::npos; i = xml.find('<', i + 1)) {
    const std::size_t end = xml.find('>', i);
    if (end == std::string::npos) return false;
    const std::string tag = xml.substr(i + 1, end - i - 1);
    if (tag.ends_with('/')) continue;
    if (!tag.starts_with('/')) {
      open.push_back(tag.substr(0, tag.find(' ')));
    } else if (open.empty() || open.back() != tag.substr(1)) {
      return false;
    } else {
      open.pop_back();
    }
  }
  return open.empty();
}

TEST(Svg, EveryChartOfEveryViewIsDrawn) {
  const RecordSet set = load_steps({{.seq = 10}, {.seq = 20}});
  std::size_t charts = 0;
  for (const ViewInfo& info : all_views()) {
    for (const Chart& chart : make_view(info.name, set).charts) {
      const std::string svg = svg_of(chart);
      ++charts;
      EXPECT_TRUE(is_balanced(svg)) << chart.id;
      EXPECT_EQ(svg.find("nan"), std::string::npos) << chart.id;
      EXPECT_EQ(svg.find("inf"), std::string::npos) << chart.id;
      EXPECT_EQ(svg.find("nothing to draw"), std::string::npos) << chart.id;
    }
  }
  EXPECT_GE(charts, 10U);
}

TEST(Svg, PlacesValues) {
  const Chart chart{.title = "a < b",
                    .kind = ChartKind::stacked,
                    .x = {.title = "x", .categories = {"one"}},
                    .y = {.title = "y"},
                    .series = {{.name = "low", .points = {{.x = 0, .y = 1}}},
                               {.name = "high", .points = {{.x = 0, .y = 3}}}}};
  const std::string svg = svg_of(chart);
  EXPECT_NE(svg.find("a &lt; b"), std::string::npos);
  // 268 px stand for 4 x 1.05: the upper bar is three times as high as the lower one.
  EXPECT_NE(svg.find("height=\"63.8\""), std::string::npos) << svg;
  EXPECT_NE(svg.find("height=\"191.4\""), std::string::npos) << svg;
}

TEST(Svg, WhatCannotBeDrawnIsLeftOut) {
  const Chart chart{.title = "log",
                    .x = {.title = "x", .is_log = true},
                    .y = {.title = "y", .is_log = true},
                    .series = {{.name = "s", .points = {{.x = 0, .y = 1}, {.x = 1, .y = -1}}}}};
  EXPECT_NE(svg_of(chart).find("nothing to draw"), std::string::npos);
}

TEST(ViewText, EachFormat) {
  const RecordSet set = load_steps({{}});
  const std::vector<View> views = {make_view("phases", set), make_view("blocks", set)};
  const std::string text = format_views(views, Format::table);
  EXPECT_NE(text.find("== Phases"), std::string::npos);
  EXPECT_NE(text.find("-- Parts of the blocks"), std::string::npos);
  const std::string md = format_views(views, Format::md);
  EXPECT_NE(md.find("## Phases"), std::string::npos);
  EXPECT_NE(md.find("](data:image/svg+xml;base64,PHN2Zy"), std::string::npos);  // "<svg "
  EXPECT_EQ(format_views(views, Format::md, [](const Chart&) { return ""; }).find("!["), std::string::npos);
  const std::string csv = format_views(views, Format::csv);
  EXPECT_NE(csv.find("# blocks.parts: "), std::string::npos);
  EXPECT_EQ(format_views({views.data(), 1}, Format::csv).find('#'), std::string::npos);
  const nlohmann::json json = nlohmann::json::parse(format_views(views, Format::json));
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json.at(0).at("name"), "phases");
  EXPECT_EQ(json.at(0).at("tables").at(0).at("rows").size(), 4U);
  EXPECT_EQ(json.at(0).at("tables").at(0).at("columns").at(1).at("unit"), "s");
}

}  // namespace
}  // namespace rooflm::report
