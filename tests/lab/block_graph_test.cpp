// The blocks of a model, layers folded: which reads which, and where each is defined.
#include "lab/block_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compile/recipe.h"
#include "model/config.h"

namespace rooflm::lab {
namespace {

program::Program step_of(const char* model, compile::EngineKind engine) {
  const model::ModelConfig config = model::with_overrides(model::preset(model), {.layers = 3, .vocab = 64});
  compile::StepOptions options;
  options.engine = engine;
  return compile::training_step(model::forward(config, 1, 16), options);
}

bool has(const std::vector<BlockEdge>& edges, const BlockEdge& edge) {
  return std::ranges::find(edges, edge) != edges.end();
}

TEST(BlockGraph, ResidualsPassBlocksByAndReachTheNextLayer) {
  const std::vector<BlockEdge> edges = block_edges(step_of("gpt2", compile::EngineKind::eager));
  EXPECT_TRUE(has(edges, {.from = "embedding", .to = "ln1"}));
  EXPECT_TRUE(has(edges, {.from = "embedding", .to = "residual1"}));
  EXPECT_TRUE(has(edges, {.from = "attention/proj", .to = "residual1"}));
  EXPECT_TRUE(has(edges, {.from = "residual1", .to = "residual2"}));
  EXPECT_TRUE(has(edges, {.from = "residual2", .to = "ln1", .to_next_layer = true}));
  EXPECT_TRUE(has(edges, {.from = "residual2", .to = "residual1", .to_next_layer = true}));
  EXPECT_TRUE(has(edges, {.from = "residual2", .to = "ln_f"}));
  EXPECT_TRUE(has(edges, {.from = "lm_head", .to = "loss"}));
  for (const BlockEdge& edge : edges) {
    EXPECT_EQ(std::ranges::count(edges, edge), 1) << edge.from << " " << edge.to;
    EXPECT_TRUE(edge.from != edge.to || edge.to_next_layer) << edge.from;
  }
}

TEST(BlockGraph, FollowsTheProgramThatRuns) {
  const std::vector<BlockEdge> edges = block_edges(step_of("tiny", compile::EngineKind::fused));
  // The sum of a residual is part of the norm after it.
  EXPECT_TRUE(has(edges, {.from = "attention/proj", .to = "ln2"}));
  EXPECT_FALSE(has(edges, {.from = "attention/proj", .to = "residual1"}));
  EXPECT_TRUE(has(edges, {.from = "lm_head", .to = "loss"})) << "the loss is one op with its gradient";
  EXPECT_FALSE(has(edges, {.from = "loss", .to = "lm_head"}));
  EXPECT_TRUE(std::ranges::none_of(edges, [](const BlockEdge& edge) { return edge.to == "optimizer"; }))
      << "the forward pass alone";
}

/// The text of a line of this project, whose tests run in any folder.
std::string line_of(const model::BlockSource& source) {
  const std::string here = __FILE__;
  std::ifstream file(here.substr(0, here.rfind("tests/")) + source.file);
  std::string line;
  for (int i = 0; i < source.line; ++i) std::getline(file, line);
  return line;
}

TEST(BlockSources, AreTheLinesThatOpenTheBlocks) {
  const std::vector<model::BlockSource> sources = model::block_sources(model::preset("gpt2"));
  std::vector<std::string> blocks;
  for (const model::BlockSource& source : sources) {
    blocks.push_back(source.block);
    EXPECT_TRUE(source.file.starts_with("src/model/forward")) << source.file;
    const std::string line = line_of(source);
    if (line.empty()) continue;  // the sources are elsewhere
    EXPECT_NE(line.find("scope("), std::string::npos) << source.block << ": " << line;
    if (source.block == "attention/qkv") {
      EXPECT_NE(line.find("\"qkv\""), std::string::npos) << line;
    }
  }
  for (const char* block : {"embedding", "ln1", "attention", "attention/qkv", "attention/proj", "residual1",
                            "feed_forward/fc2", "ln_f", "lm_head", "loss"}) {
    EXPECT_NE(std::ranges::find(blocks, block), blocks.end()) << block;
  }
}

TEST(BlockGraph, TravelsAsAFact) {
  const auto sources = model::block_sources(model::preset("tiny"));
  const record::Fact fact = model_fact(step_of("tiny", compile::EngineKind::eager), sources);
  EXPECT_EQ(fact.key, record::kModelFact);
  const auto json = nlohmann::json::parse(fact.text);
  EXPECT_EQ(json.at("edges").at(0).size(), 3U);
  EXPECT_TRUE(json.at("sources")
                  .at("attention/qkv")
                  .get<std::string>()
                  .starts_with("src/model/forward_attention.cpp:"));
}

}  // namespace
}  // namespace rooflm::lab
