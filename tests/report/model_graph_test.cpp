// The graph of a model: its frames, figures, arrows and what records lack, and the picture of it.
#include "report/page/model_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/charts/svg.h"
#include "report/page/document.h"
#include "report/views/views.h"
#include "tests/record/record_testing.h"
#include "tests/report/step_record.h"

namespace rooflm::report {
namespace {

constexpr const char* kKnown =
    R"({"edges": [["ln1", "attention/qkv", false], ["ln1", "attention/v", false], ["attention/qkv", "attention/qk", false],
                  ["attention/proj", "ln1", true], ["nobody", "ln1", false], ["ln1"], 7],
        "sources": {"ln1": "src/a.cpp:1", "attention": "src/a.cpp:2", "attention/qkv": "src/a.cpp:3"}})";

RecordSet known_steps(const std::string& text = kKnown) {
  RecordSet set = load_steps({{.seq = 10}});
  set.runs.front().facts.push_back({.key = record::kModelFact, .value = {}, .unit = {}, .text = text});
  return set;
}

const ModelNode& node_of(const ModelGraph& graph, const std::string& name) {
  return *std::ranges::find(graph.nodes, name, &ModelNode::name);
}

TEST(ModelGraph, FoldsLayersAndFramesBlocks) {
  const ModelGraph graph = model_graph(known_steps().runs.front());
  std::vector<std::string> names;
  for (const ModelNode& node : graph.nodes) names.push_back(node.name);
  EXPECT_EQ(names, (std::vector<std::string>{"layer", "ln1", "attention", "qkv", "qk", "softmax", "v", "proj",
                                             "optimizer"}));
  EXPECT_EQ(graph.nodes[0].times, kStepLayers);
  EXPECT_EQ(graph.nodes[0].last, 7U);
  EXPECT_EQ(graph.nodes[2].last, 7U);
  EXPECT_EQ(graph.nodes[3].depth, 2U);
  EXPECT_EQ(graph.nodes[8].depth, 0U);
}

TEST(ModelGraph, FiguresAreOfAllLayersAndAddUp) {
  const ModelGraph graph = model_graph(known_steps().runs.front());
  // T = 10: 2 layers of 1000 ns forward and 2000 ns backward.
  const ModelNode& qkv = node_of(graph, "qkv");
  EXPECT_NEAR(*qkv.time_s, 6e-6, 1e-12);
  EXPECT_DOUBLE_EQ(*qkv.flop, 60000);
  EXPECT_DOUBLE_EQ(*qkv.bytes, 18000);
  EXPECT_EQ(qkv.bound, "matmul fp32");
  double blocks_s = 0;
  double shares = 0;
  for (const ModelNode& node : graph.nodes) {
    if (node.is_frame) continue;
    blocks_s += *node.time_s;
    shares += *node.time_share;
  }
  EXPECT_NEAR(shares, 1, 1e-9);
  EXPECT_NEAR(*graph.nodes[0].time_s, blocks_s - *node_of(graph, "optimizer").time_s, 1e-12);
  EXPECT_TRUE(graph.lacks.empty());
}

TEST(ModelGraph, ArrowsLieBesideTheBlocksWithoutMeeting) {
  const ModelGraph graph = model_graph(known_steps().runs.front());
  ASSERT_EQ(graph.edges.size(), 4U) << "what names no block is left out";
  EXPECT_FALSE(graph.edges[0].lane) << "right below, in a frame";
  EXPECT_EQ(graph.edges[1].lane, 0U);
  EXPECT_FALSE(graph.edges[2].lane);
  EXPECT_TRUE(graph.edges[3].is_back);
  EXPECT_EQ(graph.edges[3].lane, 0U) << "the other side";
  EXPECT_EQ(lanes_of(graph, false), 1U);
  EXPECT_EQ(lanes_of(graph, true), 1U);
  const RecordSet crossing =
      known_steps(R"({"edges": [["ln1", "attention/v"], ["attention/qkv", "attention/proj"]]})");
  EXPECT_EQ(lanes_of(model_graph(crossing.runs.front()), false), 2U);
}

TEST(ModelGraph, ABlockThatAPassMadeIsDefinedWhereItsBlockIs) {
  const ModelGraph graph = model_graph(known_steps().runs.front());
  EXPECT_EQ(node_of(graph, "qkv").source, "src/a.cpp:3");
  EXPECT_EQ(node_of(graph, "softmax").source, "src/a.cpp:2");
  EXPECT_EQ(node_of(graph, "optimizer").source, "");
}

TEST(ModelGraph, RecordsWithoutItSayWhatTheyLack) {
  for (const char* text : {"", "no JSON", "[1]", R"({"edges": 3, "sources": [1]})"}) {
    const ModelGraph graph = model_graph(known_steps(text).runs.front());
    EXPECT_EQ(graph.nodes.size(), 9U);
    EXPECT_TRUE(graph.edges.empty());
    ASSERT_EQ(graph.lacks.size(), 2U) << text;
    EXPECT_NE(graph.lacks[0].find("no arrows"), std::string::npos);
  }
  const record::TemporaryFolder folder;
  {
    record::Writer writer(folder / "a.rooflm", "rooflm record -- python train.py");
    const auto run = writer.begin_run({.label = "train.py", .kind = "foreign"});
    writer.add(run,
               std::vector<record::Op>{
                   {.op = 0, .kind = "module", .phase = "forward", .scope = "wte"},
                   {.op = 1, .kind = "module", .phase = "forward", .scope = "h.0/mlp"},
                   {.op = 2, .kind = "module", .phase = "forward", .scope = "h.1/mlp"},
                   {.op = 3, .kind = "module", .phase = "forward", .scope = std::string(60, 'x') + "_end"}});
    writer.end_run(run, "success");
    writer.finish();
  }
  const RecordSet set = load(std::vector<std::filesystem::path>{folder / "a.rooflm"});
  EXPECT_EQ(model_graph(set.runs.front()).lacks.size(), 4U) << "arrows, lines, work, times";
  const View view = make_view("model", set);
  ASSERT_EQ(view.tables.front().table.rows.size(), 3U);
  EXPECT_EQ(*view.tables.front().table.rows[0].find("flop"), Cell()) << "not counted, and not 0";
  EXPECT_EQ(view.tables.front().table.notes.size(), 4U);
  EXPECT_NE(svg_of(view.charts.at(0)).find(">..." + std::string(29, 'x') + "_end<"), std::string::npos)
      << "of a long name the end is shown";
}

TEST(ModelGraph, IsATableAPictureAndAPartOfThePage) {
  const RecordSet set = known_steps();
  const View view = make_view("model", set);
  ASSERT_EQ(view.tables.size(), 1U);
  const Row& qkv = view.tables[0].table.rows.at(1);
  EXPECT_EQ(qkv.text("block"), "attention/qkv");
  EXPECT_EQ(qkv.number("times"), kStepLayers);
  EXPECT_EQ(qkv.text("reads"), "ln1");
  EXPECT_EQ(view.tables[0].table.rows.at(0).text("reads"), "attention/proj of the layer before");
  EXPECT_NEAR(qkv.number("backward_s"), 4e-6, 1e-12);
  EXPECT_EQ(view.tables[0].table.rows.back().number("times"), 1);
  ASSERT_EQ(view.charts.size(), 1U);
  const std::string svg = svg_of(view.charts[0]);
  for (const char* part :
       {"layer x 2", "a.cpp:3", ">qkv<", "class=\"arrow back\"", "matmul fp32", "4.00 us"}) {
    EXPECT_NE(svg.find(part), std::string::npos) << part << "\n" << svg;
  }
  const nlohmann::json document = nlohmann::json::parse(make_document(set, nullptr));
  const nlohmann::json& run = document.at("runs").at(0);
  EXPECT_EQ(run.at("model").at("nodes").at(3).at("path"), "attention/qkv");
  EXPECT_EQ(run.at("model").at("edges").at(1).at("lane"), 0);
  EXPECT_FALSE(run.at("facts").contains(record::kModelFact)) << "it is JSON, and no fact for people";
}

}  // namespace
}  // namespace rooflm::report
